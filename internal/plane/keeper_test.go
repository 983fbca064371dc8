package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/history"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/past"
	"fairlead.dev/internal/translate"
)

type hosts = map[model.HostKey]*model.VirtualHost

func historyHost(name string, version int) *model.VirtualHost {
	owner := model.Object{Kind: "HTTPRoute", Namespace: "team", Name: name}
	return &model.VirtualHost{
		HostKey: model.HostKey{Listener: "http-80", Host: name},
		Routes: []model.Route{{
			Name: "HTTPRoute/team/" + name + "/rules/0/matches/0", Owner: owner,
			Forward: &model.Forward{Backends: []model.WeightedGroup{{Group: model.GroupID(fmt.Sprint("team/app/", version)), Weight: 1}}},
		}},
	}
}

func historyGroup(version int) *model.BackendGroup {
	id := fmt.Sprint("team/app/", version)
	return &model.BackendGroup{ID: model.GroupID(id), Set: model.SetID(id)}
}

// life is a history with its keeper and a file, all in the test's goroutine.
type life struct {
	*history.History
	keeper *keeper
	t      *testing.T
	now    time.Time
	file   *fileVault
	epoch  uint64
	steps  uint64
}

// catchUp has the keeper receive what waits.
func (k *keeper) catchUp(t *testing.T) {
	t.Helper()
	var p past.Packer
	for {
		select {
		case i := <-k.items:
			if err := k.receive(&p, i); err != nil {
				t.Fatal(err)
			}
		default:
			return
		}
	}
}

// begin is a plane that starts with these hosts; it leads at once.
func begin(t *testing.T, path string, epoch uint64, now time.Time, wanted hosts) *life {
	t.Helper()
	l := &life{t: t, now: now, epoch: epoch, file: &fileVault{path: path}}
	l.keeper = newKeeper(l.file, slog.New(slog.DiscardHandler), func(_ context.Context, a history.Adoption) error { return l.Prepend(a) })
	l.History = history.New(l.keeper)
	l.Begin(now)
	groups := map[model.GroupID]*model.BackendGroup{}
	for v := range 3 {
		groups[historyGroup(v).ID] = historyGroup(v)
	}
	l.Apply(translate.Changes{VirtualHosts: wanted, Groups: groups}, now, delta.Revision{Number: 1})
	l.keeper.lead(epoch)
	if err := l.flush(); err != nil {
		t.Fatal(err)
	}
	return l
}

// flush packs and writes what there is.
func (l *life) flush() error {
	l.keeper.catchUp(l.t)
	_, err := l.keeper.flush(l.t.Context())
	return err
}

func (l *life) change(changes hosts) {
	l.now = l.now.Add(time.Second)
	l.steps++
	l.Apply(translate.Changes{VirtualHosts: changes}, l.now, delta.Revision{Epoch: l.epoch, Number: 1 + l.steps})
}

// stateAt is what machines would have after a rollback to a time.
func (l *life) stateAt(at time.Time) (hosts, bool) {
	l.t.Helper()
	if _, _, err := l.Freeze(history.Freeze{Since: l.now, AsOf: at}); err != nil {
		l.t.Fatal(err)
	}
	defer l.Thaw()
	return l.Hosts(), !l.Frozen().Lost
}

// known are the steps that can be turned back, oldest first, and what is known of the state before them.
func (l *life) known() (steps []model.Revision, first model.Revision) {
	all := l.Revisions(l.epoch, l.keeper.has)
	slices.Reverse(all)
	return all[1:], all[0]
}

func sameHosts(a, b hosts) bool {
	return maps.EqualFunc(a, b, func(x, y *model.VirtualHost) bool { return reflect.DeepEqual(x, y) })
}

// Planes come one after the other, each killed at any byte that it writes. Whatever was
// written whole can be turned back to, and what the next plane begins with is right.
func TestHistoryOutlivesItsPlanes(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 2))
		path := filepath.Join(t.TempDir(), "revisions")
		now, wanted := time.Unix(1000, 0), hosts{}
		states, times := []hosts{{}}, []time.Time{now}
		certain := 0 // how many of the states are sure to be kept
		l := begin(t, path, 1, now, wanted)
		for epoch := uint64(2); epoch < 6; epoch++ {
			for range 1 + random.IntN(8) {
				changes := hosts{}
				for range 1 + random.IntN(3) {
					host := historyHost(string(rune('a'+random.IntN(4))), random.IntN(3))
					changes[host.HostKey] = host
					if random.IntN(4) == 0 {
						changes[host.HostKey] = nil
					}
				}
				l.change(changes)
				wanted = maps.Clone(wanted)
				merge(wanted, changes)
				states, times = append(states, wanted), append(times, l.now)
				if random.IntN(2) == 0 {
					if err := l.flush(); err != nil {
						t.Fatal(err)
					}
					certain = len(states) - 1
				}
			}
			// It is killed while it writes: what it added since is there in part.
			size := l.file.file.Size()
			if err := l.flush(); err != nil {
				t.Fatal(err)
			}
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if more := int64(len(whole)) - size; more > 0 {
				whole = whole[:size+random.Int64N(more+1)]
			}
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			// Something changes while no plane runs.
			if random.IntN(2) == 0 {
				host := historyHost("b", random.IntN(3))
				wanted = maps.Clone(wanted)
				wanted[host.HostKey] = host
			}
			l = begin(t, path, epoch, l.now.Add(time.Minute), wanted)
			_, first := l.known()
			if first.Lacks != "" {
				t.Fatalf("seed %d: it lacks something: %s", seed, first.Lacks)
			}
			states, times = append(states, wanted), append(times, l.now)
			for i := range states {
				got, known := l.stateAt(times[i])
				if !known {
					t.Fatalf("seed %d, epoch %d: the state of %s is lost; it begins at %s", seed, epoch, times[i], first.At)
				}
				if (i <= certain || i == len(states)-1) && !sameHosts(got, states[i]) {
					t.Fatalf("seed %d, epoch %d, state %d: %v, want %v", seed, epoch, i, got, states[i])
				}
			}
			certain = len(states) - 1
			// The others, cut off, are as the last that was whole: forget them.
			for i := range states {
				states[i], _ = l.stateAt(times[i])
			}
		}
	}
}

// A file that is damaged, of another format or not to be understood stops nobody: the
// plane begins anew and says what it lost.
func TestHistoryThatCannotBeRead(t *testing.T) {
	written := func(t *testing.T) (string, []byte) {
		path := filepath.Join(t.TempDir(), "revisions")
		l := begin(t, path, 1, time.Unix(1000, 0), hosts{})
		for i := range 3 {
			host := historyHost("a", i)
			l.change(hosts{host.HostKey: host})
		}
		if err := l.flush(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return path, data
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"empty":          func([]byte) []byte { return nil },
		"another format": func(b []byte) []byte { return append([]byte("fairlead revisions 9\n"), b[len(vaultHeader):]...) },
		"flipped":        func(b []byte) []byte { b[len(vaultHeader)+12] ^= 1; return b },
	} {
		t.Run(name, func(t *testing.T) {
			path, data := written(t)
			if err := os.WriteFile(path, spoil(data), 0o600); err != nil {
				t.Fatal(err)
			}
			l := begin(t, path, 2, time.Unix(2000, 0), hosts{})
			steps, first := l.known()
			if first.Lacks == "" || len(steps) != 0 || !first.At.Equal(time.Unix(2000, 0)) {
				t.Errorf("it lacks %q, has %d steps since %s", first.Lacks, len(steps), first.At)
			}
			if _, next := begin(t, path, 3, time.Unix(3000, 0), hosts{}).known(); next.Lacks != "" || !next.At.Equal(first.At) {
				t.Errorf("the file was not made anew: %q, %s", next.Lacks, next.At)
			}
		})
	}
}

// A full disk stops nobody; when there is room again everything is kept.
func TestHistoryOnAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "revisions")
	l := begin(t, path, 1, time.Unix(1000, 0), hosts{})
	full := errors.New("no space left")
	l.file.may = func(context.Context) error { return full }
	host := historyHost("a", 1)
	l.change(hosts{host.HostKey: host})
	if err := l.flush(); !errors.Is(err, full) {
		t.Fatalf("it says %v", err)
	}
	l.keeper.note(full)
	if err := l.keeper.healthy(); !errors.Is(err, full) {
		t.Errorf("it is healthy: %v", err)
	}
	l.file.may = nil
	if err := l.flush(); err != nil {
		t.Fatal(err)
	}
	if steps, _ := begin(t, path, 2, time.Unix(2000, 0), hosts{host.HostKey: host}).known(); len(steps) != 1 {
		t.Errorf("%d steps are kept", len(steps))
	}
}

// Large hosts of which a little changes, for ever: neither memory nor file grow beyond
// bounds, and what was let go is counted.
func TestHistoryIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "revisions")
	random := rand.New(rand.NewPCG(1, 3))
	large := func(salt int) *model.VirtualHost {
		h := historyHost("large", salt)
		for i := range 30 {
			r := h.Routes[0]
			r.Name = fmt.Sprint("HTTPRoute/team/large/rules/", i, "/", h.Routes[0].Forward.Backends[0].Group)
			h.Routes = append(h.Routes, r)
		}
		return h
	}
	l := begin(t, path, 1, time.Unix(1000, 0), hosts{})
	const steps = history.Limit + history.Limit/4
	for i := range steps {
		// Every 500th has everything another way; the others differ in one route.
		h := large(i / 500)
		h.Routes[random.IntN(len(h.Routes))].Match.Path.Value = fmt.Sprint("/", i)
		l.change(hosts{h.HostKey: h})
		if i%32 == 0 {
			if err := l.flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.flush(); err != nil {
		t.Fatal(err)
	}
	log, first := l.known()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(log) > history.Limit || info.Size() > 2*fileVaultBytes || first.LetGo != steps-history.Limit {
		t.Errorf("%d steps, file %d bytes, %d let go", len(log), info.Size(), first.LetGo)
	}
	log, first = begin(t, path, 2, l.now.Add(time.Second), l.Hosts()).known()
	if len(log) < history.Limit/2 || first.LetGo < steps-history.Limit || first.LetGo+len(log) != steps {
		t.Errorf("after a restart %d steps, %d let go", len(log), first.LetGo)
	}
}

// A plane that took over keeps what its predecessor kept and what it saw itself since, and
// a clock behind that of its predecessor brings no disorder.
func TestHistoryOfATakeover(t *testing.T) {
	for _, skew := range []time.Duration{0, -time.Hour} {
		path := filepath.Join(t.TempDir(), "revisions")
		leader := begin(t, path, 1, time.Unix(6000, 0), hosts{})
		leader.now = time.Unix(10002, 0)
		standby := begin(t, filepath.Join(t.TempDir(), "none"), 0, time.Unix(10002, 0).Add(skew), hosts{})
		standby.file.path = path
		var states []hosts
		for i := range 6 {
			changes := hosts{}
			host := historyHost("a", i)
			changes[host.HostKey] = host
			standby.change(changes)
			states = append(states, changes)
			if i < 4 { // then it is killed
				leader.change(changes)
			}
			if err := errors.Join(leader.flush(), standby.flush()); err != nil {
				t.Fatal(err)
			}
		}
		standby.keeper.lead(2)
		if err := standby.flush(); err != nil {
			t.Fatal(err)
		}
		log, first := standby.known()
		if !slices.IsSortedFunc(log, func(a, b model.Revision) int { return a.At.Compare(b.At) }) {
			t.Error("the steps are out of order")
		}
		want := states
		if skew < 0 {
			want = append(slices.Clone(states[:4]), states[5]) // what it saw since is one step
		}
		if !first.At.Equal(time.Unix(6000, 0)) || len(log) != len(want) {
			t.Fatalf("skew %s: %d steps since %s", skew, len(log), first.At)
		}
		for i, step := range log {
			got, known := standby.stateAt(step.At)
			if !known || !sameHosts(got, want[i]) {
				t.Errorf("skew %s, step %d: %v, want %v", skew, i, got, want[i])
			}
		}
	}
}

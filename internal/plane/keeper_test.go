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
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
)

// life is a history with its keeper and a file, all in the test's goroutine.
type life struct {
	*history
	t     *testing.T
	now   time.Time
	file  *fileVault
	epoch uint64
	steps uint64
}

// begin is a plane that starts with these hosts; it leads at once.
func begin(t *testing.T, path string, epoch uint64, now time.Time, wanted hosts) *life {
	t.Helper()
	l := &life{t: t, now: now, epoch: epoch, file: &fileVault{path: path}}
	k := newKeeper(l.file, slog.New(slog.DiscardHandler), func(_ context.Context, a adoption) error { return l.prepend(a) })
	l.history = newHistory(k)
	l.begin(now)
	groups := map[model.GroupID]*model.BackendGroup{}
	for v := range 3 {
		groups[historyGroup(v).ID] = historyGroup(v)
	}
	l.take(translate.Changes{VirtualHosts: wanted, Groups: groups}, now, delta.Revision{Number: 1})
	k.lead(epoch)
	if err := l.settle(); err != nil {
		t.Fatal(err)
	}
	return l
}

// settle packs and writes what there is.
func (l *life) settle() error {
	l.keeper.catchUp(l.t)
	_, err := l.keeper.flush(l.t.Context())
	return err
}

func (l *life) change(changes hosts) {
	l.now = l.now.Add(time.Second)
	l.steps++
	l.take(translate.Changes{VirtualHosts: changes}, l.now, delta.Revision{Epoch: l.epoch, Number: 1 + l.steps})
}

// stateAt is what machines would have after a rollback to a time.
func (l *life) stateAt(at time.Time) (hosts, bool) {
	l.t.Helper()
	l.mustFreeze(l.t, freeze{since: l.now, asOf: at})
	defer l.thaw()
	return published(l.wanted.hosts, l.held.hosts), !l.frozen.lost
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
				replace(wanted, changes)
				states, times = append(states, wanted), append(times, l.now)
				if random.IntN(2) == 0 {
					if err := l.settle(); err != nil {
						t.Fatal(err)
					}
					certain = len(states) - 1
				}
			}
			// It is killed while it writes: what it added since is there in part.
			size := l.file.file.Size()
			if err := l.settle(); err != nil {
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
			if l.lacks != "" {
				t.Fatalf("seed %d: it lacks something: %s", seed, l.lacks)
			}
			states, times = append(states, wanted), append(times, l.now)
			for i := range states {
				got, known := l.stateAt(times[i])
				if !known {
					t.Fatalf("seed %d, epoch %d: the state of %s is lost; it begins at %s", seed, epoch, times[i], l.began)
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
		if err := l.settle(); err != nil {
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
			if l.lacks == "" || len(l.log) != 0 || !l.began.Equal(time.Unix(2000, 0)) {
				t.Errorf("it lacks %q, has %d steps since %s", l.lacks, len(l.log), l.began)
			}
			if got := begin(t, path, 3, time.Unix(3000, 0), hosts{}); got.lacks != "" || !got.began.Equal(l.began) {
				t.Errorf("the file was not made anew: %q, %s", got.lacks, got.began)
			}
		})
	}
	t.Run("a field that nobody knows", func(t *testing.T) {
		path, _ := written(t)
		l := begin(t, path, 2, time.Unix(2000, 0), hosts{})
		records, err := l.file.load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := foundIn(records); err != nil {
			t.Fatal(err)
		}
		p := newPicture()
		if err := p.unpack(packedKey(packedView, "v"), []byte(`{"id":"v","listeners":[],"later":1}`)); err == nil {
			t.Error("half of a value is taken for all of it")
		}
	})
}

// A full disk stops nobody; when there is room again everything is kept.
func TestHistoryOnAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "revisions")
	l := begin(t, path, 1, time.Unix(1000, 0), hosts{})
	full := errors.New("no space left")
	l.file.may = func(context.Context) error { return full }
	host := historyHost("a", 1)
	l.change(hosts{host.HostKey: host})
	if err := l.settle(); !errors.Is(err, full) {
		t.Fatalf("it says %v", err)
	}
	l.keeper.note(full)
	if err := l.keeper.healthy(); !errors.Is(err, full) {
		t.Errorf("it is healthy: %v", err)
	}
	l.file.may = nil
	if err := l.settle(); err != nil {
		t.Fatal(err)
	}
	if got := begin(t, path, 2, time.Unix(2000, 0), hosts{host.HostKey: host}); len(got.log) != 1 {
		t.Errorf("%d steps are kept", len(got.log))
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
	const steps = historyLimit + historyLimit/4
	for i := range steps {
		// Every 500th has everything another way; the others differ in one route.
		h := large(i / 500)
		h.Routes[random.IntN(len(h.Routes))].Match.Path.Value = fmt.Sprint("/", i)
		l.change(hosts{h.HostKey: h})
		if i%32 == 0 {
			if err := l.settle(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.settle(); err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, c := range l.log {
		size += len(c.packed)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.log) > historyLimit || size > historyBytes || info.Size() > 2*fileVaultBytes || l.letGo != steps-historyLimit {
		t.Errorf("%d steps, %d bytes, file %d bytes, %d let go", len(l.log), size, info.Size(), l.letGo)
	}
	next := begin(t, path, 2, l.now.Add(time.Second), l.wanted.hosts)
	if len(next.log) < historyLimit/2 || next.letGo < steps-historyLimit || next.letGo+len(next.log) != steps {
		t.Errorf("after a restart %d steps, %d let go", len(next.log), next.letGo)
	}
}

// Values large and all different are bounded in bytes.
func TestHistoryIsBoundedInBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 4))
	k := newKeeper(nil, slog.New(slog.DiscardHandler), nil)
	now := time.Unix(1000, 0)
	h := newTestHistory(k, now)
	noise := make([]byte, 600<<10)
	for i := range 120 {
		for j := range noise {
			noise[j] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[random.IntN(64)]
		}
		host := historyHost("a", 1)
		host.Routes[0].Respond = &model.Respond{Body: string(noise)}
		now = now.Add(time.Second)
		h.take(translate.Changes{VirtualHosts: hosts{host.HostKey: host}}, now, delta.Revision{Epoch: 1, Number: uint64(i)})
		k.catchUp(t)
	}
	size := 0
	for _, c := range h.log {
		size += len(c.packed)
	}
	if size > historyBytes+historyBytes/16 || size < historyBytes/2 || h.letGo == 0 {
		t.Errorf("%d steps take %d bytes, %d let go", len(h.log), size, h.letGo)
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
			if err := errors.Join(leader.settle(), standby.settle()); err != nil {
				t.Fatal(err)
			}
		}
		standby.keeper.lead(2)
		if err := standby.settle(); err != nil {
			t.Fatal(err)
		}
		if !slices.IsSortedFunc(standby.log, func(a, b *change) int { return a.at.Compare(b.at) }) {
			t.Error("the steps are out of order")
		}
		want := states
		if skew < 0 {
			want = append(slices.Clone(states[:4]), states[5]) // what it saw since is one step
		}
		if !standby.began.Equal(time.Unix(6000, 0)) || len(standby.log) != len(want) {
			t.Fatalf("skew %s: %d steps since %s", skew, len(standby.log), standby.began)
		}
		for i, c := range standby.log {
			got, known := standby.stateAt(c.at)
			if !known || !sameHosts(got, want[i]) {
				t.Errorf("skew %s, step %d: %v, want %v", skew, i, got, want[i])
			}
		}
	}
}

// No value that is kept has a secret in it, or anything that would be lost on the way.
func TestHistoryHasNoSecrets(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type, string)
	look = func(of reflect.Type, path string) {
		if seen[of] {
			return
		}
		seen[of] = true
		if of == reflect.TypeFor[model.Redacted]() || of == reflect.TypeFor[model.Certificate]() {
			t.Errorf("%s is a secret", path)
		}
		if strings.HasPrefix(of.PkgPath(), "net/netip") || of == reflect.TypeFor[time.Time]() {
			return // they write themselves
		}
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			look(of.Elem(), path)
		case reflect.Map:
			look(of.Key(), path)
			look(of.Elem(), path)
		case reflect.Interface, reflect.Func, reflect.Chan:
			t.Errorf("%s cannot be read again", path)
		case reflect.Struct:
			for i := range of.NumField() {
				f := of.Field(i)
				if !f.IsExported() || f.Tag.Get("json") == "-" {
					t.Errorf("%s.%s is not written", path, f.Name)
				}
				look(f.Type, path+"."+f.Name)
			}
		}
	}
	for _, of := range []reflect.Type{
		reflect.TypeFor[model.Listener](), reflect.TypeFor[model.VirtualHost](), reflect.TypeFor[model.TLSHost](), reflect.TypeFor[model.View](), reflect.TypeFor[model.BackendGroup](),
	} {
		look(of, of.String())
	}
}

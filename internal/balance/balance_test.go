package balance

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

var (
	epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	vip   = model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.TCP, Port: 80}
)

func addr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8080)
}

// set is of words such as "1", "2:draining" and "3:unready@machine".
func set(id string, words ...string) *model.BackendSet {
	s := &model.BackendSet{ID: model.SetID(id)}
	for _, w := range words {
		var b model.Backend
		w, b.Machine, _ = strings.Cut(w, "@")
		number, state, _ := strings.Cut(w, ":")
		for b.State = model.BackendReady; state != "" && b.State.String() != state; b.State++ {
		}
		var n int
		if _, err := fmt.Sscan(number, &n); err != nil {
			panic(err)
		}
		b.Address = addr(n)
		s.Backends = append(s.Backends, b)
	}
	return s
}

func sets(list ...*model.BackendSet) map[model.SetID]*model.BackendSet {
	m := map[model.SetID]*model.BackendSet{}
	for _, s := range list {
		m[s.ID] = s
	}
	return m
}

func frontend(targets ...model.Target) *model.Frontend {
	return &model.Frontend{FrontendKey: vip, Targets: targets}
}

// text is "1=100/100 2=0/100 draining".
func text(backends []model.FrontendBackend) string {
	var out []string
	for _, b := range backends {
		a := b.Address.Addr().As4()
		name := fmt.Sprint(int(a[2])<<8 | int(a[3]))
		if b.Proxy(vip) {
			name = b.Machine
		} else if b.Machine != "" {
			name += "@" + b.Machine
		}
		line := fmt.Sprintf("%s=%d/%d", name, b.Weight, b.HopWeight)
		if b.State != model.BackendReady {
			line += " " + b.State.String()
		}
		if b.Health != "" {
			line += " " + string(b.Health)
		}
		out = append(out, line)
	}
	return strings.Join(out, ", ")
}

func unhealthy(numbers ...int) func(netip.AddrPort) model.Health {
	return func(a netip.AddrPort) model.Health {
		for _, n := range numbers {
			if addr(n) == a {
				return model.Unhealthy
			}
		}
		return model.Healthy
	}
}

func TestWeights(t *testing.T) {
	one, two := model.Target{Set: "a", Weight: 1}, model.Target{Set: "b", Weight: 3}
	weighted := frontend(one)
	weighted.Weights = map[netip.Addr]uint32{addr(2).Addr(): 40, addr(3).Addr(): 0}
	drained := frontend(one)
	drained.Drained = []netip.Addr{addr(1).Addr()}
	careful := frontend(one)
	careful.Panic = 50
	datagrams := frontend(one)
	datagrams.Transport = model.UDP
	quic := frontend(one)
	quic.Transport, quic.QUIC = model.UDP, &model.QUICServer{Length: 1}
	listener := frontend()
	listener.Listener = "http-80"
	presumed := frontend(one)
	presumed.Check = model.PresumedCheck()
	lost := func(names ...string) func(string) bool {
		return func(m string) bool { return slices.Contains(names, m) }
	}
	for name, c := range map[string]struct {
		in   Input
		want string
	}{
		"nothing":                      {Input{Frontend: frontend()}, ""},
		"a set that is not there":      {Input{Frontend: frontend(one)}, ""},
		"ready ones":                   {Input{Frontend: frontend(one), Sets: sets(set("a", "1", "2@m"))}, "1=100/100, 2@m=100/100"},
		"not all ready":                {Input{Frontend: frontend(one), Sets: sets(set("a", "1", "2:draining", "3:unready"))}, "1=100/100, 2=0/0 draining, 3=0/0 unready"},
		"all drain":                    {Input{Frontend: frontend(one), Sets: sets(set("a", "2:draining", "3:unready"))}, "2=100/100, 3=0/0 unready"},
		"own weights":                  {Input{Frontend: weighted, Sets: sets(set("a", "1", "2", "3"))}, "1=100/100, 2=40/40, 3=0/0 draining"},
		"drained by hand":              {Input{Frontend: drained, Sets: sets(set("a", "1", "2"))}, "1=0/0 draining, 2=100/100"},
		"drained by hand, all of them": {Input{Frontend: drained, Sets: sets(set("a", "1"))}, "1=0/0 draining"},
		"two targets": {
			Input{Frontend: frontend(one, two), Sets: sets(set("a", "1"), set("b", "2", "3", "4"))},
			"1=250000/250000, 2=250000/250000, 3=250000/250000, 4=250000/250000",
		},
		"a target without backends": {Input{Frontend: frontend(one, two), Sets: sets(set("a", "1", "2"))}, "1=500000/500000, 2=500000/500000"},
		"in both targets":           {Input{Frontend: frontend(one, two), Sets: sets(set("a", "1", "2:unready"), set("b", "1", "2"))}, "1=625000/625000, 2=375000/375000"},
		"a target of weight 0":      {Input{Frontend: frontend(one, model.Target{Set: "b"}), Sets: sets(set("a", "1"), set("b", "2"))}, "1=1000000/1000000, 2=0/0 draining"},
		"unhealthy": {
			Input{Frontend: frontend(one), Sets: sets(set("a", "1", "2")), Health: unhealthy(2)},
			"1=100/100 healthy, 2=0/0 draining unhealthy",
		},
		"unhealthy, without connections": {
			Input{Frontend: datagrams, Sets: sets(set("a", "1", "2")), Health: unhealthy(2)},
			"1=100/100 healthy, 2=0/0 unready unhealthy",
		},
		"unhealthy, with connections of their own": {
			Input{Frontend: quic, Sets: sets(set("a", "1", "2")), Health: unhealthy(2)},
			"1=100/100 healthy, 2=0/0 draining unhealthy",
		},
		"no panic": {Input{Frontend: careful, Sets: sets(set("a", "1", "2")), Health: unhealthy(2)}, "1=100/100 healthy, 2=0/0 draining unhealthy"},
		"panic": {
			Input{Frontend: careful, Sets: sets(set("a", "1", "2", "3", "4:unready")), Health: unhealthy(2, 3)},
			"1=100/100 healthy, 2=100/100 unhealthy, 3=100/100 unhealthy, 4=0/0 unready healthy",
		},
		"all unhealthy, and panic never": {Input{Frontend: frontend(one), Sets: sets(set("a", "1")), Health: unhealthy(1)}, "1=0/0 draining unhealthy"},
		"all unhealthy, and nobody asked for the check": {
			Input{Frontend: presumed, Sets: sets(set("a", "1", "2", "3:unready")), Health: unhealthy(1, 2)},
			"1=100/100 unhealthy, 2=100/100 unhealthy, 3=0/0 unready healthy",
		},
		"one unhealthy, and nobody asked for the check": {
			Input{Frontend: presumed, Sets: sets(set("a", "1", "2")), Health: unhealthy(2)},
			"1=100/100 healthy, 2=0/0 draining unhealthy",
		},
		"on a machine that is lost": {
			Input{Frontend: frontend(one), Sets: sets(set("a", "1@m", "2@n", "3")), Lost: lost("m")},
			"1@m=0/0 draining, 2@n=100/100, 3=100/100",
		},
		"on a machine that is lost, without connections": {
			Input{Frontend: datagrams, Sets: sets(set("a", "1@m", "2@n")), Lost: lost("m")},
			"1@m=0/0 unready, 2@n=100/100",
		},
		"on a machine that is lost, and others find it well": {
			Input{Frontend: frontend(one), Sets: sets(set("a", "1@m", "2@n")), Lost: lost("m"), Health: unhealthy()},
			"1@m=100/100 healthy, 2@n=100/100 healthy",
		},
		"all on machines that are lost": {Input{Frontend: frontend(one), Sets: sets(set("a", "1@m", "2@n")), Lost: lost("m", "n")}, "1@m=100/100, 2@n=100/100"},
		"unhealthy, or on a machine that is lost": {
			Input{Frontend: presumed, Sets: sets(set("a", "1@m", "2@n")), Lost: lost("m"), Health: func(a netip.AddrPort) model.Health {
				if a == addr(2) {
					return model.Unhealthy
				}
				return model.HealthUnknown
			}},
			"1@m=100/100 unknown, 2@n=100/100 unhealthy",
		},
		"proxies": {
			Input{Frontend: listener, Proxies: []Proxy{{"x", model.BackendReady}, {"y", model.BackendDraining}, {"z", model.BackendUnready}}},
			"x=100/100, y=0/0 draining, z=0/0 unready",
		},
	} {
		c.in.Now = epoch
		got, _, next := Backends(c.in)
		if text(got) != c.want || !next.IsZero() {
			t.Errorf("%s: %s, next %s; want %s", name, text(got), next, c.want)
		}
	}
}

// TestHistory plays what happens to one frontend with a drain time of 10 s.
func TestHistory(t *testing.T) {
	f := frontend(model.Target{Set: "a", Weight: 1})
	f.Drain = 10 * time.Second
	weighted := *f
	weighted.Weights = map[netip.Addr]uint32{addr(1).Addr(): 40}
	lighter := *f
	lighter.Weights = map[netip.Addr]uint32{addr(1).Addr(): 20}
	canary := *f
	canary.Targets = append(slices.Clone(f.Targets), model.Target{Set: "b", Weight: 1})
	var h History
	for _, step := range []struct {
		at   int
		f    *model.Frontend
		sets map[model.SetID]*model.BackendSet
		want string
		next int // -1: never
	}{
		{0, f, sets(set("a", "1", "2")), "1=100/100, 2=100/100", -1},
		{1, &weighted, sets(set("a", "1", "2")), "1=40/100, 2=100/100", 11},
		{5, &lighter, sets(set("a", "1", "2")), "1=20/100, 2=100/100", 11},
		{11, &lighter, sets(set("a", "1", "2")), "1=20/40, 2=100/100", 15},
		{12, &weighted, sets(set("a", "1", "2")), "1=40/40, 2=100/100", -1},
		{20, &weighted, sets(set("a", "1")), "1=40/40, 2=0/100 draining", 30},
		{25, &weighted, sets(set("a", "1")), "1=40/40, 2=0/100 draining", 30},
		{26, &weighted, sets(set("a", "1", "2@m")), "1=40/40, 2@m=100/100", -1}, // it is back
		{30, &weighted, sets(set("a", "1", "2:unready@m")), "1=40/40, 2@m=0/100 unready", 40},
		{31, &weighted, sets(set("a", "1")), "1=40/40, 2@m=0/100 unready", 40},
		{41, &weighted, sets(set("a", "1")), "1=40/40", -1},
		{42, &weighted, sets(set("a", "1", "3:unready")), "1=40/40, 3=0/0 unready", -1},
		{42, &weighted, sets(set("a", "1")), "1=40/40", -1},
		{42, &weighted, sets(set("a", "1", "3")), "1=40/40, 3=100/100", -1},
		{43, &weighted, sets(set("a", "1")), "1=40/40, 3=0/100 draining", 53},
		{53, &weighted, sets(set("a", "1")), "1=40/40", -1},
		// The measure changes with the number of targets, and what was is worded in it.
		{60, f, sets(set("a", "1", "2")), "1=100/100, 2=100/100", -1},
		{61, &canary, sets(set("a", "1", "2"), set("b", "4")), "1=250000/250000, 2=250000/250000, 4=500000/500000", -1},
		{62, f, sets(set("a", "1", "2"), set("b", "4")), "1=100/100, 2=100/100, 4=0/200 draining", 72},
	} {
		var got []model.FrontendBackend
		var next time.Time
		got, h, next = Backends(Input{Frontend: step.f, Sets: step.sets, Before: h, Now: epoch.Add(time.Duration(step.at) * time.Second)})
		want := time.Time{}
		if step.next >= 0 {
			want = epoch.Add(time.Duration(step.next) * time.Second)
		}
		if text(got) != step.want || !next.Equal(want) {
			t.Fatalf("at %d s: %s, next %s; want %s, next %s", step.at, text(got), next, step.want, want)
		}
	}
}

// world is a random frontend and what happens to it.
type world struct {
	random *rand.Rand
	f      model.Frontend
	sets   map[model.SetID]*model.BackendSet
	sick   map[netip.AddrPort]bool
	now    time.Time
}

func (w *world) step() {
	r := w.random
	w.now = w.now.Add(time.Duration(r.IntN(8)) * time.Second)
	switch r.IntN(4) {
	case 0:
		w.f.Weights = map[netip.Addr]uint32{addr(r.IntN(8)).Addr(): uint32(r.IntN(200))}
	case 1:
		w.f.Targets = nil
		for _, id := range []model.SetID{"a", "b", "c"}[:1+r.IntN(3)] {
			w.f.Targets = append(w.f.Targets, model.Target{Set: id, Weight: uint32(r.IntN(4))})
		}
	case 2:
		w.sick = map[netip.AddrPort]bool{addr(r.IntN(8)): true, addr(r.IntN(8)): true}
	}
	id := []string{"a", "b", "c"}[r.IntN(3)]
	var words []string
	for i := range 8 {
		if n := r.IntN(6); n < 3 {
			words = append(words, fmt.Sprintf("%d:%s", i, model.BackendState(n)))
		}
	}
	w.sets[model.SetID(id)] = set(id, words...)
}

func (w *world) input(h History) Input {
	f := w.f
	return Input{Frontend: &f, Sets: w.sets, Before: h, Now: w.now, Health: func(a netip.AddrPort) model.Health {
		if w.sick[a] {
			return model.Unhealthy
		}
		return model.HealthUnknown
	}}
}

func (w *world) shuffled(in Input) Input {
	f := *in.Frontend
	f.Targets = slices.Clone(f.Targets)
	w.random.Shuffle(len(f.Targets), func(i, j int) { f.Targets[i], f.Targets[j] = f.Targets[j], f.Targets[i] })
	in.Frontend = &f
	in.Sets = map[model.SetID]*model.BackendSet{}
	for id, s := range w.sets {
		c := &model.BackendSet{ID: id, Backends: slices.Clone(s.Backends)}
		w.random.Shuffle(len(c.Backends), func(i, j int) { c.Backends[i], c.Backends[j] = c.Backends[j], c.Backends[i] })
		in.Sets[id] = c
	}
	return in
}

func TestProperties(t *testing.T) {
	for seed := range uint64(300) {
		w := &world{random: rand.New(rand.NewPCG(seed, 1)), f: *frontend(), sets: map[model.SetID]*model.BackendSet{}, now: epoch}
		w.f.Drain, w.f.Panic = 10*time.Second, uint8(w.random.IntN(101))
		var mine, theirs History
		recent := map[netip.AddrPort][]peak{}
		var due time.Time
		var last []model.FrontendBackend
		for range 40 {
			// Nothing changes before the time that was said.
			if quiet := w.input(mine); !due.IsZero() {
				quiet.Now = due.Add(-1)
				if got, _, _ := Backends(quiet); quiet.Now.After(w.now) && !slices.Equal(got, last) {
					t.Fatalf("seed %d: before %s it is %s, and was %s", seed, due, text(got), text(last))
				}
			} else {
				quiet.Now = w.now.Add(time.Hour)
				if got, _, _ := Backends(quiet); !slices.Equal(got, last) && last != nil {
					t.Fatalf("seed %d: without a time it is %s, and was %s", seed, text(got), text(last))
				}
			}
			w.step()
			in := w.input(mine)
			got, after, next := Backends(in)
			again := w.shuffled(w.input(theirs))
			other, otherAfter, otherNext := Backends(again)
			if !slices.Equal(got, other) || !next.Equal(otherNext) {
				t.Fatalf("seed %d: two planes say\n%s\n%s", seed, text(got), text(other))
			}
			if !reflect.DeepEqual(after, otherAfter) {
				t.Fatalf("seed %d: two planes remember\n%+v\n%+v", seed, after, otherAfter)
			}
			mine, theirs, due, last = after, otherAfter, next, got
			if !slices.IsSortedFunc(got, model.FrontendBackend.Compare) {
				t.Fatalf("seed %d: not sorted: %s", seed, text(got))
			}
			for _, b := range got {
				if b.HopWeight < b.Weight || b.Weight > 0 && b.State != model.BackendReady || b.Weight == 0 && b.State == model.BackendReady {
					t.Fatalf("seed %d: %s", seed, text([]model.FrontendBackend{b}))
				}
				// With one target throughout, the measure is the same: every weight within the
				// drain time counts.
				if len(w.f.Targets) > 1 || mine.split {
					clear(recent)
					break
				}
				for _, k := range recent[b.Address] {
					if w.now.Sub(k.until) < w.f.Drain && b.HopWeight < k.weight {
						t.Fatalf("seed %d: %s, and had %d at %s", seed, text([]model.FrontendBackend{b}), k.weight, k.until)
					}
				}
				recent[b.Address] = append(recent[b.Address], peak{b.Weight, w.now})
			}
		}
	}
}

func TestOneFamilyOnly(t *testing.T) {
	both := set("s", "1:draining")
	both.Backends = append(both.Backends, model.Backend{Address: netip.MustParseAddrPort("[2001:db8::1]:80")})
	for _, v := range []string{"192.0.2.1", "2001:db8:1::1"} {
		f := frontend(model.Target{Set: "s", Weight: 1})
		f.VIP = netip.MustParseAddr(v)
		got, _, _ := Backends(Input{Frontend: f, Sets: sets(both), Now: epoch})
		if len(got) != 1 || got[0].Address.Addr().Is4() != f.VIP.Is4() || got[0].Weight == 0 {
			t.Errorf("the backends of %s are %+v", v, got)
		}
	}
}

func TestProxiesThatGoDrain(t *testing.T) {
	f := frontend()
	f.Listener = "http-80"
	at := func(s int, h History, machines ...string) (string, History) {
		in := Input{Frontend: f, Before: h, Now: epoch.Add(time.Duration(s) * time.Second)}
		for _, m := range machines {
			in.Proxies = append(in.Proxies, Proxy{Machine: m})
		}
		got, h, _ := Backends(in)
		return text(got), h
	}
	_, h := at(0, History{}, "x", "y")
	got, h := at(1, h, "x")
	if want := "x=100/100, y=0/100 draining"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, _ = at(31, h, "x"); got != "x=100/100" {
		t.Errorf("later: %s", got)
	}
}

// A proxy whose machine says that it has connections left is kept for them, as it was, but
// not for ever.
func TestProxiesThatGoAreKeptForWhatIsLeft(t *testing.T) {
	f := frontend()
	f.Listener = "http-80"
	parting := true
	var h History
	at := func(s int, machines ...string) (got string, next time.Time) {
		in := Input{Frontend: f, Before: h, Now: epoch.Add(time.Duration(s) * time.Second), Parting: func(m string) bool { return m == "y" && parting }}
		for _, m := range machines {
			in.Proxies = append(in.Proxies, Proxy{Machine: m})
		}
		list, after, next := Backends(in)
		h = after
		return text(list), next
	}
	at(0, "x", "y", "z")
	at(1, "x")
	const kept, over = "x=100/100, y=0/100 draining", "x=100/100"
	for _, s := range []int{31, 32, 60, 90} {
		if got, next := at(s, "x"); got != kept || !next.Equal(epoch.Add(time.Duration(s+1)*time.Second)) {
			t.Errorf("after %d s: %s until %s, want %s, and another look", s, got, next, kept)
		}
	}
	before := h
	if got, next := at(91, "x"); got != over || !next.IsZero() {
		t.Errorf("in the end: %s until %s, want %s", got, next, over)
	}
	h, parting = before, false
	if got, _ := at(90, "x"); got != over {
		t.Errorf("when the last has ended: %s, want %s", got, over)
	}
}

func TestAvailable(t *testing.T) {
	got, _, _ := Backends(Input{Frontend: frontend(model.Target{Set: "a", Weight: 1}), Sets: sets(set("a", "1", "2", "3:unready")), Now: epoch})
	if n := Available(got); n != 2 {
		t.Errorf("%d are available", n)
	}
}

func BenchmarkBackends(b *testing.B) {
	s := &model.BackendSet{ID: "a"}
	for i := range 1000 {
		s.Backends = append(s.Backends, model.Backend{Address: addr(i)})
	}
	in := Input{Frontend: frontend(model.Target{Set: "a", Weight: 1}), Sets: sets(s), Now: epoch}
	for b.Loop() {
		_, in.Before, _ = Backends(in)
	}
}

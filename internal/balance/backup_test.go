package balance

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// rated is a set whose backends have weights and are backups, by their numbers.
func rated(s *model.BackendSet, weights map[int]uint32, backups ...int) *model.BackendSet {
	for i := range s.Backends {
		b := &s.Backends[i]
		for n, w := range weights {
			if addr(n) == b.Address {
				b.Weight = w
			}
		}
		b.Backup = slices.ContainsFunc(backups, func(n int) bool { return addr(n) == b.Address })
	}
	return s
}

// standby is text with what backups on standby would have: "9:100".
func standby(backends []model.FrontendBackend) string {
	out := text(backends)
	for _, b := range backends {
		if b.Standby > 0 {
			out += fmt.Sprintf("; %d:%d", b.Address.Addr().As4()[3], b.Standby)
		}
	}
	return out
}

func TestWeightsOfEndpoints(t *testing.T) {
	one, two := model.Target{Set: "a", Weight: 1}, model.Target{Set: "b", Weight: 3}
	weighted := frontend(one)
	weighted.Weights = map[netip.Addr]uint32{addr(1).Addr(): 40, addr(3).Addr(): 0}
	extreme := frontend(one)
	extreme.Weights = map[netip.Addr]uint32{addr(1).Addr(): 4_000_000_000}
	for name, c := range map[string]struct {
		in   Input
		want string
	}{
		"alone":                       {Input{Frontend: frontend(one), Sets: sets(rated(set("a", "1", "2"), map[int]uint32{2: 3}))}, "1=100/100, 2=300/300"},
		"times those of a policy":     {Input{Frontend: weighted, Sets: sets(rated(set("a", "1", "2", "3"), map[int]uint32{1: 3, 2: 3, 3: 9}))}, "1=120/120, 2=300/300, 3=0/0 draining"},
		"of those that drain":         {Input{Frontend: frontend(one), Sets: sets(rated(set("a", "1", "2:draining"), map[int]uint32{2: 3}))}, "1=100/100, 2=0/0 draining"},
		"among a target's":            {Input{Frontend: frontend(one, two), Sets: sets(rated(set("a", "1", "2"), map[int]uint32{2: 3}), set("b", "4"))}, "1=62500/62500, 2=187500/187500, 4=750000/750000"},
		"no larger than can be":       {Input{Frontend: extreme, Sets: sets(rated(set("a", "1"), map[int]uint32{1: 10_000}))}, "1=4294967295/4294967295"},
		"of unhealthy ones count not": {Input{Frontend: frontend(one), Sets: sets(rated(set("a", "1", "2"), map[int]uint32{2: 3})), Health: unhealthy(2)}, "1=100/100 healthy, 2=0/0 draining unhealthy"},
	} {
		c.in.Now = epoch
		if got, _, next := Backends(c.in); text(got) != c.want || !next.IsZero() {
			t.Errorf("%s: %s, next %s; want %s", name, text(got), next, c.want)
		}
	}
}

func TestBackups(t *testing.T) {
	one, two := model.Target{Set: "a", Weight: 1}, model.Target{Set: "b", Weight: 3}
	drained := frontend(one)
	drained.Drained = []netip.Addr{addr(1).Addr()}
	weightless := frontend(one)
	weightless.Weights = map[netip.Addr]uint32{addr(1).Addr(): 0}
	careful := frontend(one)
	careful.Panic = 60
	datagrams := frontend(one)
	datagrams.Transport = model.UDP
	presumed := frontend(one)
	presumed.Check = model.PresumedCheck()
	lost := func(m string) bool { return m == "m" }
	a := func(backups []int, words ...string) map[model.SetID]*model.BackendSet {
		return sets(rated(set("a", words...), map[int]uint32{9: 2}, backups...))
	}
	nine := []int{9}
	for name, c := range map[string]struct {
		in   Input
		want string
	}{
		"another is ready":        {Input{Frontend: frontend(one), Sets: a(nine, "1", "9")}, "1=100/100, 9=0/0 draining; 9:200"},
		"none is ready":           {Input{Frontend: frontend(one), Sets: a(nine, "1:draining", "2:unready", "9")}, "1=0/0 draining, 2=0/0 unready, 9=200/200"},
		"all drain":               {Input{Frontend: frontend(one), Sets: a(nine, "1:draining", "9:draining")}, "1=100/100, 9=0/0 draining; 9:200"},
		"backups alone":           {Input{Frontend: frontend(one), Sets: a([]int{1, 9}, "1", "9")}, "1=100/100, 9=200/200"},
		"others drained by hand":  {Input{Frontend: drained, Sets: a(nine, "1", "9")}, "1=0/0 draining, 9=200/200"},
		"others of weight 0":      {Input{Frontend: weightless, Sets: a(nine, "1", "9")}, "1=0/0 draining, 9=200/200"},
		"others fail":             {Input{Frontend: frontend(one), Sets: a(nine, "1", "2", "9"), Health: unhealthy(1, 2)}, "1=0/0 draining unhealthy, 2=0/0 draining unhealthy, 9=200/200 healthy"},
		"one of the others fails": {Input{Frontend: frontend(one), Sets: a(nine, "1", "2", "9"), Health: unhealthy(1)}, "1=0/0 draining unhealthy, 2=100/100 healthy, 9=0/0 draining healthy; 9:200"},
		"all fail":                {Input{Frontend: frontend(one), Sets: a(nine, "1", "9"), Health: unhealthy(1, 9)}, "1=0/0 draining unhealthy, 9=0/0 draining unhealthy; 9:200"},
		"all fail, and nobody asked for the check":    {Input{Frontend: presumed, Sets: a(nine, "1", "9"), Health: unhealthy(1, 9)}, "1=100/100 unhealthy, 9=0/0 draining unhealthy; 9:200"},
		"others fail, and nobody asked for the check": {Input{Frontend: presumed, Sets: a(nine, "1", "9"), Health: unhealthy(1)}, "1=0/0 draining unhealthy, 9=200/200 healthy"},
		"panic is of the others":                      {Input{Frontend: careful, Sets: a(nine, "1", "2", "9"), Health: unhealthy(1)}, "1=100/100 unhealthy, 2=100/100 healthy, 9=0/0 draining healthy; 9:200"},
		"backups before panic":                        {Input{Frontend: careful, Sets: a(nine, "1", "2", "9"), Health: unhealthy(1, 2)}, "1=0/0 draining unhealthy, 2=0/0 draining unhealthy, 9=200/200 healthy"},
		"panic among backups":                         {Input{Frontend: careful, Sets: a([]int{8, 9}, "1", "8", "9"), Health: unhealthy(1, 8)}, "1=0/0 draining unhealthy, 8=100/100 unhealthy, 9=200/200 healthy"},
		"without connections":                         {Input{Frontend: datagrams, Sets: a([]int{8, 9}, "1", "8", "9"), Health: unhealthy(8)}, "1=100/100 healthy, 8=0/0 unready unhealthy, 9=0/0 draining healthy; 8:100; 9:200"},
		"others on a machine that is lost":            {Input{Frontend: frontend(one), Sets: a(nine, "1@m", "9"), Lost: lost}, "1@m=0/0 draining, 9=200/200"},
		"a target by itself":                          {Input{Frontend: frontend(one, two), Sets: sets(rated(set("a", "1", "9"), nil, 9), set("b", "4")), Health: unhealthy(1)}, "1=0/0 draining unhealthy, 4=750000/750000 healthy, 9=250000/250000 healthy"},
		"a target's standby": {
			Input{Frontend: frontend(one, two), Sets: sets(rated(set("a", "1", "8", "9"), map[int]uint32{9: 3}, 8, 9), set("b", "4"))},
			"1=250000/250000, 4=750000/750000, 8=0/0 draining, 9=0/0 draining; 8:62500; 9:187500",
		},
		"a target's standby, with nothing else": {
			Input{Frontend: frontend(one, two), Sets: sets(rated(set("a", "1", "9"), nil, 9), set("b", "4")), Health: unhealthy(1, 9)},
			"1=0/0 draining unhealthy, 4=1000000/1000000 healthy, 9=0/0 draining unhealthy; 9:250000",
		},
		"a backup of one target, and not of another": {Input{Frontend: frontend(one, two), Sets: sets(rated(set("a", "1", "9"), nil, 9), set("b", "9"))}, "1=250000/250000, 9=750000/750000"},
		"a backup of both targets":                   {Input{Frontend: frontend(one, two), Sets: sets(rated(set("a", "1", "9"), nil, 9), rated(set("b", "2", "9"), nil, 9))}, "1=250000/250000, 2=750000/750000, 9=0/0 draining; 9:1000000"},
		"of the other family": {Input{Frontend: frontend(one), Sets: func() map[model.SetID]*model.BackendSet {
			s := rated(set("a", "9"), nil, 9)
			s.Backends = append(s.Backends, model.Backend{Address: netip.MustParseAddrPort("[2001:db8::1]:80")})
			return sets(s)
		}()}, "9=100/100"},
	} {
		c.in.Now = epoch
		if got, _, next := Backends(c.in); standby(got) != c.want || !next.IsZero() {
			t.Errorf("%s: %s, next %s; want %s", name, standby(got), next, c.want)
		}
	}
}

// TestBackupsTakeOverAndGiveBack plays a failure with a drain time of 10 s: the hop weights of both sides last for
// that, and a backup gives back to one that is known to be well.
func TestBackupsTakeOverAndGiveBack(t *testing.T) {
	asked := frontend(model.Target{Set: "a", Weight: 1})
	asked.Drain, asked.Check = 10*time.Second, &model.HealthCheck{}
	presumed := *asked
	presumed.Check = model.PresumedCheck()
	well, ill, unknown := model.Healthy, model.Unhealthy, model.HealthUnknown
	var h History
	for _, step := range []struct {
		at     int
		f      *model.Frontend
		set    *model.BackendSet
		health map[int]model.Health
		want   string
		next   int // -1: never
	}{
		{0, asked, set("a", "1", "9"), map[int]model.Health{1: unknown, 9: unknown}, "1=100/100 unknown, 9=0/0 draining unknown; 9:100", -1},
		{1, asked, set("a", "1", "9"), map[int]model.Health{1: unknown, 9: well}, "1=100/100 unknown, 9=0/0 draining healthy; 9:100", -1},
		{2, asked, set("a", "1", "9"), map[int]model.Health{1: ill, 9: well}, "1=0/100 draining unhealthy, 9=100/100 healthy", 12},
		{3, asked, set("a", "1", "2", "9"), map[int]model.Health{1: ill, 2: unknown, 9: well}, "1=0/100 draining unhealthy, 2=0/0 draining unknown, 9=100/100 healthy", 12},
		{12, asked, set("a", "1", "2", "9"), map[int]model.Health{1: ill, 2: unknown, 9: well}, "1=0/0 draining unhealthy, 2=0/0 draining unknown, 9=100/100 healthy", -1},
		{13, asked, set("a", "1", "2", "9"), map[int]model.Health{1: ill, 2: well, 9: well}, "1=0/0 draining unhealthy, 2=100/100 healthy, 9=0/100 draining healthy; 9:100", 23},
		{14, asked, set("a", "1", "2", "9"), map[int]model.Health{1: ill, 2: ill, 9: well}, "1=0/0 draining unhealthy, 2=0/100 draining unhealthy, 9=100/100 healthy", 24},
		// Both are out: one that nobody knows is better than nothing.
		{15, asked, set("a", "1", "3", "9"), map[int]model.Health{1: ill, 3: unknown, 9: ill}, "1=0/0 draining unhealthy, 2=0/100 draining, 3=100/100 unknown, 9=0/100 draining unhealthy; 9:100", 24},
		{40, asked, set("a", "1", "9"), map[int]model.Health{1: ill, 9: well}, "1=0/0 draining unhealthy, 3=0/100 draining, 9=100/100 healthy", 50},
		// A check that nobody asked for may never be answered.
		{60, &presumed, set("a", "1", "2", "9"), map[int]model.Health{1: ill, 2: unknown, 9: well}, "1=0/0 draining unhealthy, 2=100/100 unknown, 9=0/100 draining healthy; 9:100", 70},
		{80, &presumed, set("a", "9"), map[int]model.Health{9: well}, "1=0/0 draining, 2=0/100 draining, 9=100/100 healthy", 90},
		{100, &presumed, set("a", "1"), map[int]model.Health{1: well}, "1=100/100 healthy, 9=0/100 draining", 110},
	} {
		rated(step.set, nil, 9)
		in := Input{Frontend: step.f, Sets: sets(step.set), Before: h, Now: epoch.Add(time.Duration(step.at) * time.Second), Health: func(a netip.AddrPort) model.Health {
			return step.health[int(a.Addr().As4()[3])]
		}}
		var got []model.FrontendBackend
		var next time.Time
		got, h, next = Backends(in)
		want := time.Time{}
		if step.next >= 0 {
			want = epoch.Add(time.Duration(step.next) * time.Second)
		}
		if standby(got) != step.want || !next.Equal(want) {
			t.Fatalf("at %d s: %s, next %s; want %s, next %s", step.at, standby(got), next, step.want, want)
		}
	}
}

// TestPropertiesOfBackups holds, of random sets, health and histories, that a backup has no flows while another
// backend of its set has, that flows go somewhere if anybody works, and that asking again changes nothing.
func TestPropertiesOfBackups(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 2))
		f := frontend(model.Target{Set: "a", Weight: 1})
		f.Panic = uint8(r.IntN(2) * r.IntN(101))
		f.Check = []*model.HealthCheck{nil, {}, model.PresumedCheck()}[r.IntN(3)]
		var h History
		now := epoch
		for range 20 {
			now = now.Add(time.Duration(r.IntN(40)) * time.Second)
			s := &model.BackendSet{ID: "a"}
			known := map[netip.AddrPort]model.Health{}
			for i := range 6 {
				if r.IntN(4) > 0 {
					s.Backends = append(s.Backends, model.Backend{
						Address: addr(i), State: model.BackendState(max(0, r.IntN(5)-2)), Backup: r.IntN(2) == 0, Weight: uint32(r.IntN(4)),
					})
					known[addr(i)] = []model.Health{model.Healthy, model.Healthy, model.Unhealthy, model.HealthUnknown}[r.IntN(4)]
				}
			}
			in := Input{Frontend: f, Sets: sets(s), Before: h, Now: now}
			if f.Check != nil {
				in.Health = func(a netip.AddrPort) model.Health { return known[a] }
			}
			got, after, _ := Backends(in)
			say := func(what string) { t.Fatalf("seed %d: %s: %+v become %s", seed, what, s.Backends, standby(got)) }
			flows, backups, able := false, false, false
			state, _ := s.Accepting()
			for _, b := range s.Backends {
				able = able || b.State == state && state < model.BackendUnready && (f.Check == nil || known[b.Address] == model.Healthy)
			}
			for _, b := range got {
				flows, backups = flows || b.Weight > 0 && !b.Backup, backups || b.Weight > 0 && b.Backup
				if b.Weight > 0 && b.Standby > 0 || b.Standby > 0 && !b.Backup {
					say("it stands by, and has flows or is no backup")
				}
			}
			if flows && backups {
				say("backups have flows with others")
			}
			if able && !flows && !backups {
				say("one could have flows, and none has")
			}
			in.Before = after
			if again, twice, _ := Backends(in); !slices.Equal(again, got) || !reflect.DeepEqual(twice, after) {
				say("again it is " + standby(again))
			}
			h = after
		}
	}
}

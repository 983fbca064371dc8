package lbtest

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// Run holds a data plane against the contract.
func Run(t *testing.T, s Subject) {
	t.Run("state", func(t *testing.T) { State(t, s) })
	if !s.InProcess {
		t.Run("traffic", func(t *testing.T) { Traffic(t, s) })
	}
}

// State is the first part of the contract.
func State(t *testing.T, s Subject) {
	for _, c := range []struct {
		name string
		run  func(*site)
	}{
		{"set-twice", setTwice},
		{"come-and-go", comeAndGo},
		{"not-here", notHere},
		{"available", available},
		{"refused", refused},
		{"adopt", adopt},
		{"others", others},
		{"repair", repair},
		{"thousand", thousand},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(bareSite(t, s)) })
	}
}

// bareSite is a load balancer alone.
func bareSite(t *testing.T, s Subject) *site {
	t.Helper()
	x := &site{t: t, subject: s}
	if !s.InProcess {
		x.need()
		x.lb = newSpace(t, "lb")
		x.settle()
		for _, v := range vips {
			x.lb.address(t, "lo", host(v))
		}
	}
	x.plane = start(t, s, x.lb, x.env)
	if s.InProcess { // its kernel is that of the last case
		x.set()
	}
	return x
}

// again starts a data plane after the last one.
func (x *site) again() {
	x.t.Helper()
	x.plane = start(x.t, x.subject, x.lb, x.env)
}

func (x *site) dump() string { return x.plane.do("dump") }

// four frontends: both families, both transports.
func (x *site) four() []*model.Balanced {
	return []*model.Balanced{
		x.frontend(key(model.TCP, vips[0], 80), 3),
		x.frontend(key(model.UDP, vips[0], 53), 2),
		x.frontend(key(model.TCP, vips[1], 80), 3),
		x.frontend(key(model.UDP, vips[1], 53), 1),
	}
}

func setTwice(x *site) {
	empty := x.dump()
	x.set()
	x.set(x.four()...)
	first := x.dump()
	if first == empty {
		x.t.Fatal("frontends leave no trace in the kernel")
	}
	x.set(x.four()...)
	if again := x.dump(); again != first {
		x.t.Errorf("the same again gives\n%s\nbefore\n%s", again, first)
	}
	x.plane.close(false)
	x.again()
	if after := x.dump(); after != empty {
		x.t.Errorf("after Close(false) there is\n%s\nand was\n%s", after, empty)
	}
}

func comeAndGo(x *site) {
	f := x.four()
	x.set(f...)
	whole := x.dump()
	fewer := changed(f[0], func(b []model.FrontendBackend) []model.FrontendBackend { return b[:2] })
	weighted := changed(f[0], func(b []model.FrontendBackend) []model.FrontendBackend {
		b[0].Weight, b[0].HopWeight = 40, 100
		return b
	})
	seen := map[string]string{"whole": whole}
	for name, set := range map[string][]*model.Balanced{
		"fewer-frontends": f[:3], "fewer-backends": append([]*model.Balanced{fewer}, f[1:]...), "weighted": append([]*model.Balanced{weighted}, f[1:]...),
	} {
		x.set(set...)
		now := x.dump()
		for other, text := range seen {
			if text == now {
				x.t.Errorf("%s and %s are the same in the kernel:\n%s", name, other, now)
			}
		}
		seen[name] = now
		if got := len(x.plane.observed()); got != len(set) {
			x.t.Errorf("%s: %d frontends observed, want %d", name, got, len(set))
		}
		x.set(f...)
		if now := x.dump(); now != whole {
			x.t.Errorf("back from %s there is\n%s\nbefore\n%s", name, now, whole)
		}
	}
	figures, _ := x.plane.figures()
	for _, g := range f {
		k := g.Frontend.FrontendKey
		if got := len(figures[k].Backends); got != len(g.Backends) {
			x.t.Errorf("%s: figures of %d backends, want %d", k, got, len(g.Backends))
		}
	}
}

// notHere: a frontend whose VIP is at another machine is not balanced.
func notHere(x *site) {
	f := x.four()
	there := altered(f[0], func(g *model.Frontend) { g.Machines = []string{"other"} })
	x.plane.set(balancingOf(there, f[1]))
	for k, o := range x.plane.observed() {
		if k == there.Frontend.FrontendKey && o.State == model.FrontendBalanced {
			x.t.Errorf("%s is balanced at a machine that does not have the VIP", k)
		}
	}
	if o := x.plane.observed()[f[1].Frontend.FrontendKey]; o.State != model.FrontendBalanced {
		x.t.Errorf("%s is %s: %s", o.FrontendKey, o.State, o.Message)
	}
}

func available(x *site) {
	f := x.frontend(key(model.TCP, vips[0], 80), 4)
	k := f.Frontend.FrontendKey
	f.Backends[3].Machine = machine
	check := func(what string, want uint32, b model.Balancing) {
		x.t.Helper()
		x.plane.set(b)
		if o := x.plane.observed()[k]; o.State != model.FrontendBalanced || o.Available != want || o.DataPlane != x.subject.Kind || o.Mode == model.ModeAuto {
			x.t.Errorf("%s: observed %s; want %d available", what, text(o), want)
		}
	}
	check("ready", 4, balancingOf(f))
	check("draining", 3, balancingOf(changed(f, with(model.BackendDraining, 0))))
	check("unready", 3, balancingOf(changed(f, with(model.BackendUnready, 1))))
	check("weight 0", 3, balancingOf(changed(f, func(b []model.FrontendBackend) []model.FrontendBackend {
		b[2].Weight = 0
		return b
	})))
	check("none", 0, balancingOf(changed(f, func([]model.FrontendBackend) []model.FrontendBackend { return nil })))
	local := altered(f, func(g *model.Frontend) { g.LocalOnly = true })
	check("local only", 1, balancingOf(local))
	unready := balancingOf(local)
	unready.Unready[k] = true
	check("local only, and not ready", 0, unready)
}

// text is what is observed of a frontend.
func text(o model.FrontendObserved) string {
	return fmt.Sprintf("%s %s by %s, mode %s, %d available: %q", o.FrontendKey, o.State, o.DataPlane, o.Mode, o.Available, o.Message)
}

// demanding are frontends that ask for one feature each.
func (x *site) demanding() map[Feature]*model.Balanced {
	f := x.frontend(key(model.TCP, vips[2], 80), 2)
	ask := func(change func(*model.Frontend)) *model.Balanced { return altered(f, change) }
	mode := func(m model.ForwardMode) *model.Balanced { return ask(func(g *model.Frontend) { g.Mode = m }) }
	listener := ask(func(g *model.Frontend) { g.Mode, g.Listener = model.ModeLocal, "http-80" })
	listener.Backends = []model.FrontendBackend{{Address: netip.AddrPortFrom(f.Frontend.VIP, 80), Machine: machine, Weight: 100, HopWeight: 100}}
	return map[Feature]*model.Balanced{
		Sources:   ask(func(g *model.Frontend) { g.Sources = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }),
		NewFlows:  ask(func(g *model.Frontend) { g.NewFlows = 100 }),
		MaxFlows:  ask(func(g *model.Frontend) { g.MaxFlows = 100 }),
		Scheduler: ask(func(g *model.Frontend) { g.Scheduler = "wlc" }),
		Affinity:  ask(func(g *model.Frontend) { g.Affinity = time.Hour }),
		QUIC:      ask(func(g *model.Frontend) { g.QUIC = &model.QUICServer{Offset: 1, Length: 4} }),
		NAT:       mode(model.ModeNAT),
		DSRGeneve: mode(model.ModeDSRGeneve),
		DSRIPIP:   mode(model.ModeDSRIPIP),
		DSRL2:     mode(model.ModeDSRL2),
		Listener:  listener,
	}
}

// refused: what cannot be done says why, what can instead, and hurts itself only.
func refused(x *site) {
	good := x.frontend(key(model.TCP, vips[0], 80), 2)
	x.set(good)
	before := x.dump()
	for feature, f := range x.demanding() {
		x.t.Run(strings.ReplaceAll(string(feature), " ", "-"), func(t *testing.T) {
			why, cannot := x.subject.Cannot[feature]
			err := x.plane.supports(f)
			if !cannot {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), why) {
				t.Fatalf("got %v, want that it is not supported and %q", err, why)
			}
			x.plane.set(balancingOf(good, f))
			seen := x.plane.observed()
			if o := seen[f.Frontend.FrontendKey]; o.State != model.FrontendRefused || !strings.Contains(o.Message, why) || o.Available != 0 {
				t.Errorf("observed %s", text(o))
			}
			if o := seen[good.Frontend.FrontendKey]; o.State != model.FrontendBalanced || o.Available != 2 {
				t.Errorf("the other one is %s", text(o))
			}
			if now := x.dump(); now != before {
				t.Errorf("the refused one left\n%s\nbefore\n%s", now, before)
			}
		})
	}
}

// adopt: the next process finds what a killed one left, and changes nothing that is right.
func adopt(x *site) {
	f := x.four()
	x.set(f...)
	before := x.dump()
	for _, leave := range []bool{true, false} {
		if leave {
			x.plane.close(true)
		} else {
			x.plane.kill()
		}
		x.again()
		if now := x.dump(); now != before {
			x.t.Fatalf("starting changed\n%s\nto\n%s", before, now)
		}
		x.set(f...)
		if now := x.dump(); now != before {
			x.t.Errorf("setting the same changed\n%s\nto\n%s", before, now)
		}
	}
	x.plane.kill()
	x.again()
	x.set(f[1:]...)
	if len(x.plane.observed()) != 3 || x.dump() == before {
		x.t.Error("a frontend of the last process did not go")
	}
	// One that never said anything takes nothing away.
	whole := x.dump()
	x.plane.kill()
	x.again()
	x.plane.close(false)
	x.again()
	if now := x.dump(); now != whole {
		x.t.Errorf("one that was never told anything removed\n%s\nleft\n%s", whole, now)
	}
}

// others: what is somebody else's stays.
func others(x *site) {
	empty := x.dump()
	x.plane.do("meddle")
	theirs := x.dump()
	if theirs == empty {
		x.t.Fatal("the dump does not show others' things")
	}
	x.set(x.four()...)
	x.set(x.four()[:1]...)
	x.plane.kill()
	x.again()
	x.set()
	x.plane.close(false)
	x.again()
	if now := x.dump(); now != theirs {
		x.t.Errorf("of\n%s\nthere is left\n%s", theirs, now)
	}
}

// repair: what somebody takes away comes back.
func repair(x *site) {
	x.set(x.four()...)
	before := x.dump()
	x.plane.do("damage")
	if x.dump() == before && !x.subject.Watches {
		x.t.Fatal("the damage did nothing")
	}
	x.plane.do("repair")
	if now := x.dump(); now != before {
		x.t.Errorf("repaired is\n%s\nwas\n%s", now, before)
	}
	if got := len(x.plane.observed()); got != 4 {
		x.t.Errorf("%d frontends observed, want 4", got)
	}
}

// thousand frontends are not too many.
func thousand(x *site) {
	var all []*model.Balanced
	for i := range 1000 {
		f := x.frontend(key(model.TCP, vips[i%2], uint16(1000+i)), 4)
		if x.subject.Cannot[Sources] == "" && i%4 == 0 {
			f.Frontend.Sources = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
		}
		all = append(all, f)
	}
	begin := time.Now()
	x.set(all...)
	x.t.Logf("set 1,000 frontends in %s", time.Since(begin).Round(time.Millisecond))
	all[500] = changed(all[500], with(model.BackendDraining, 1))
	begin = time.Now()
	x.set(all...)
	x.t.Logf("changed one in %s", time.Since(begin).Round(time.Microsecond))
	if o := x.plane.observed()[all[500].Frontend.FrontendKey]; o.Available != 3 {
		x.t.Errorf("the changed one is %s", text(o))
	}
	x.plane.kill()
	x.again()
	x.set(all[:10]...)
	figures, _ := x.plane.figures()
	if len(figures) != 10 {
		x.t.Errorf("figures of %d frontends, want 10", len(figures))
	}
}

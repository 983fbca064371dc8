package xdp

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// A machine is silent when it had answered and three rounds in a row went without.
func TestSilentMachines(t *testing.T) {
	changes := 0
	l := newLiveness(slog.New(slog.DiscardHandler), func() { changes++ })
	now := time.Now()
	l.now = func() time.Time { return now }
	us := netip.MustParseAddr("192.0.2.1")
	one := peer{"m2", us, netip.MustParseAddr("192.0.2.2")}
	two := peer{"m3", us, netip.MustParseAddr("192.0.2.3")}
	round := func(answer ...peer) {
		t.Helper()
		now = now.Add(askEvery)
		ask, wait := l.round()
		if len(ask) != len(l.peers) || wait != askEvery {
			t.Fatalf("%d are asked, and again after %s", len(ask), wait)
		}
		for _, v := range ask {
			l.sent(v)
		}
		for _, p := range answer {
			l.answered(l.peers[p].number, p.remote)
		}
	}
	is := func(when, machine string, want bool) {
		t.Helper()
		if l.silent()[machine] != want {
			t.Errorf("%s: %s is silent: %t", when, machine, !want)
		}
	}
	if ask, wait := l.round(); len(ask) > 0 || wait != 0 {
		t.Errorf("nobody is there, and %v is asked", ask)
	}
	l.set([]peer{one, two})
	for range 5 {
		round(one)
	}
	is("it never answered", "m3", false)
	round(two)
	for range askMisses {
		is("one was missed", "m2", false)
		round(two)
	}
	is("it was missed three times", "m2", true)
	is("the other answers", "m3", false)
	if changes != 1 || l.age() != 1 {
		t.Errorf("%d changes, epoch %d", changes, l.age())
	}
	l.answered(l.peers[one].number, two.remote)
	is("somebody else answered", "m2", true)
	l.answered(99, one.remote)
	is("a number of nobody's", "m2", true)
	l.answered(l.peers[one].number, one.remote)
	is("it answers", "m2", false)

	// Who does not run for a while hears nobody, and that says nothing.
	for range askMisses {
		now = now.Add(2 * askEvery)
		ask, _ := l.round()
		for _, v := range ask {
			l.sent(v)
		}
	}
	is("this process did not run", "m2", false)
	round(one, two)
	for range askMisses + 1 {
		now = now.Add(askEvery)
		l.round()
	}
	is("nothing could be sent", "m2", false)
	round(one, two)
	for range askMisses + 1 {
		round(two)
	}
	is("it is missed again", "m2", true)
	for range askMisses + 1 {
		round()
	}
	is("both are missed: it is the way", "m2", false)
	round(two)
	is("the other answers again", "m2", true)
	l.set([]peer{two})
	is("it is no peer any more", "m2", false)
	three := peer{"m4", us, netip.MustParseAddr("192.0.2.4")}
	l.set([]peer{two, three})
	if l.peers[two].number == l.peers[three].number || len(l.at) != 2 {
		t.Errorf("numbers %d and %d of %d", l.peers[two].number, l.peers[three].number, len(l.at))
	}
	l.set(nil)
	if len(l.mute) > 0 {
		t.Errorf("left are %v", l.mute)
	}
}

// Only machines are asked that have backends of this one's frontends, and which could answer.
func TestWhoIsAsked(t *testing.T) {
	vip := frontendKey(t, "tcp://203.0.113.1:80")
	other := frontendKey(t, "tcp://203.0.113.2:80")
	third := frontendKey(t, "tcp://203.0.113.3:80")
	proxies := func(k model.FrontendKey, machines ...string) (list []model.FrontendBackend) {
		for _, m := range machines {
			list = append(list, model.FrontendBackend{Address: netip.AddrPortFrom(k.VIP, k.Port), Machine: m, Weight: 1, HopWeight: 1})
		}
		return list
	}
	b := model.Balancing{Machine: "m1", Nodes: nodes("m1", "m2", "m3", "m4", "m5"), Frontends: map[model.FrontendKey]*model.Balanced{
		vip:   {Frontend: &model.Frontend{FrontendKey: vip, Machines: []string{"m1"}, Listener: "l"}, Backends: proxies(vip, "m1", "m2", "m3")},
		other: {Frontend: &model.Frontend{FrontendKey: other, Machines: []string{"m5"}, Listener: "l"}, Backends: proxies(other, "m5")},
		third: {Frontend: &model.Frontend{FrontendKey: third, Machines: []string{"m1"}}, Backends: []model.FrontendBackend{{Address: netip.MustParseAddrPort("10.0.0.1:80"), Machine: "m4"}, {Address: netip.MustParseAddrPort("10.0.0.2:80")}}},
	}}
	b.Nodes["m3"].Decaps = false
	list := peersOf(b, func(n *model.Node) bool { return n.Decaps })
	slices.SortFunc(list, func(x, y peer) int { return strings.Compare(x.machine, y.machine) })
	if len(list) != 2 || list[1].machine != "m4" || list[0].machine != "m2" || list[0].remote != b.Nodes["m2"].Tunnel4 || list[0].source != b.Nodes["m1"].Tunnel4 {
		t.Errorf("asked are %+v", list)
	}
}

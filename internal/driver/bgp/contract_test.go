package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
)

const (
	vip4, vip6   = "203.0.113.1", "2001:db8:1::1"
	other4       = "203.0.113.2"
	route4       = vip4 + "/32"
	route6       = vip6 + "/128"
	otherRoute4  = other4 + "/32"
	routerOnLoop = "10.99.0.1"
)

// TestRouters holds the speaker against real routers, one contract for all.
func TestRouters(t *testing.T) {
	beside(t, map[string]router{"bird": &bird{}, "frr": &frr{}}, func(t *testing.T, _ string, s site) {
		for _, c := range contract {
			t.Run(c.name, func(t *testing.T) {
				forget(t, s.box)
				s := s
				s.T = t
				c.run(&s)
			})
		}
	})
}

// beside runs cases beside each of the routers, in a lab with one machine and the router.
func beside(t *testing.T, routers map[string]router, run func(t *testing.T, name string, s site)) {
	t.Helper()
	if err := lab.Supported(); err != nil {
		t.Skip("needs root: ", err)
	}
	for name, r := range routers {
		t.Run(name, func(t *testing.T) {
			l, err := lab.Up(t.Context(), lab.Topology{
				Name:     fmt.Sprintf("bgp-%s-%d", name, os.Getpid()),
				Machines: []lab.MachineSpec{{Name: "edge"}, {Name: "router"}},
			}, lab.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Down(context.WithoutCancel(t.Context())) })
			run(t, name, site{T: t, router: r, edge: l.Machine("edge"), box: l.Machine("router")})
		})
	}
}

// site is where a case of the contract plays.
type site struct {
	*testing.T
	router
	edge, box *lab.Machine
}

var contract = []struct {
	name string
	run  func(*site)
}{
	{"external", external},
	{"internal", internal},
	{"over-ipv6", overIPv6},
	{"link-local", linkLocal},
	{"unnumbered", unnumbered},
	{"link-anew", linkAnew},
	{"attributes", pathAttributes},
	{"password", password},
	{"multihop", farAway},
	{"add-path", addPath},
	{"role", role},
	{"ttl-security", ttlSecurity},
	{"no-ttl-security", noTTLSecurity},
	{"passive", passive},
	{"both-connect", bothConnect},
	{"port-taken", portTaken},
	{"own-addresses", ownAddresses},
	{"device", device},
	{"ipv6-next-hop", ipv6NextHop},
	{"withdraw", withdraw},
	{"refresh-storm", refreshStorm},
	{"prefixes-of-the-router", unwanted},
	{"long-messages", longMessages},
	{"wrong-as", wrongAS},
	{"one-family", oneFamily},
	{"no-ipv6", noIPv6},
	{"bfd", bfdContract},
	{"bfd-multihop", bfdMultihop},
	{"bfd-restart", bfdRestart},
	{"bfd-killed", bfdKilled},
	{"bfd-dead", bfdDead},
	{"bfd-gone", bfdGone},
	{"bfd-stale", bfdStale},
	{"restart", restart},
	{"leave", leave},
	{"cease", ceaseContract},
}

func (s *site) neighbour() neighbour {
	return neighbour{address: s.edge.Addr4().String(), local: s.box.Addr4().String(), asn: ourASN}
}

func (s *site) peer() model.Peer {
	return model.Peer{
		Name: "router", Address: s.box.Addr4(), LocalASN: ourASN, PeerASN: routerASN,
		HoldTime: 9 * time.Second, Keepalive: 3 * time.Second, ConnectRetry: time.Second,
		IPv4: true, IPv6: true, MaxPrefixes: 10,
	}
}

func speaking(p model.Peer, prefixes ...string) Speaking {
	w := Speaking{Machine: "edge", Peers: []model.Peer{p}}
	for _, x := range prefixes {
		w.Prefixes = append(w.Prefixes, Advertisement{Prefix: netip.MustParsePrefix(x)})
	}
	return w
}

// has waits for a route in the router's BGP and kernel.
func (s *site) has(prefix, via string) seen {
	s.Helper()
	var r seen
	eventually(s.T, "the router has "+prefix, func() (ok bool) { r, ok = s.route(s.T, prefix); return ok && !r.Stale })
	if r.NextHop != via {
		s.Errorf("the router's next hop of %s is %s, want %s", prefix, r.NextHop, via)
	}
	address := strings.Split(prefix, "/")[0]
	eventually(s.T, "the router's kernel has "+prefix+" via "+via, func() bool {
		return strings.Contains(kernelRoute(s.T, s.box, address), "via "+via+" ")
	})
	return r
}

// lacks waits until a route is gone from the router's BGP and kernel.
func (s *site) lacks(prefix string) {
	s.Helper()
	eventually(s.T, "the router lacks "+prefix, func() bool { _, ok := s.route(s.T, prefix); return !ok })
	eventually(s.T, "the router's kernel lacks "+prefix, func() bool { return kernelRoute(s.T, s.box, strings.Split(prefix, "/")[0]) == "" })
}

// stale waits until the router keeps a route only because the machine is to come back.
func (s *site) stale(prefix string) {
	s.Helper()
	s.Cleanup(func() {
		if s.Failed() {
			r, ok := s.route(s.T, prefix)
			s.Logf("at the end the route is %+v, %t", r, ok)
		}
	})
	eventually(s.T, "the router keeps "+prefix+" as stale", func() bool { r, _ := s.route(s.T, prefix); return r.Stale })
}

// monitor writes down what happens to the router's kernel routes until it is called.
func (s *site) monitor() func() string {
	s.Helper()
	var out lockedBuffer
	c := s.box.Command(s.Context(), "ip", "-o", "monitor", "route")
	c.Stdout = &out
	if err := c.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	// It listens once it tells of a change.
	marker := "192.0.2.123"
	eventually(s.T, "ip monitor listens", func() bool {
		for _, verb := range []string{"replace", "del"} {
			if b, err := s.box.Command(s.Context(), "ip", "route", verb, "blackhole", marker).CombinedOutput(); err != nil {
				s.Fatalf("ip route %s: %v: %s", verb, err, b)
			}
		}
		return strings.Contains(out.String(), marker)
	})
	return out.String
}

func external(s *site) {
	s.start(s.T, s.box, s.neighbour())
	c := startChild(s.T, s.edge, speaking(s.peer(), route4, route6))
	before := c.established()
	if r := s.has(route4, s.edge.Addr4().String()); asNumbers(r.ASPath...) != asNumbers(ourASN) {
		s.Errorf("the AS path is %v, want our AS", r.ASPath)
	}
	s.has(route6, s.edge.Addr6().String())
	c.set(speaking(s.peer(), route4, route6, otherRoute4))
	s.has(otherRoute4, s.edge.Addr4().String())
	events := s.monitor()
	c.set(speaking(s.peer(), route4))
	s.lacks(otherRoute4)
	s.lacks(route6)
	s.has(route4, s.edge.Addr4().String())
	if strings.Contains(events(), vip4) {
		s.Errorf("a change of other prefixes touched %s:\n%s", vip4, events())
	}
	after := c.until("one prefix", func(x model.Session) bool { return len(x.Advertised) == 1 })
	if after.Flaps != 0 || !after.Since.Equal(before.Since) {
		s.Errorf("a change of prefixes touched the session: %+v, before %+v", after, before)
	}
	if after.Reason != model.SessionOK || after.Message != "" || after.PeerID != s.box.Addr4() || after.RouterID != s.edge.Addr4() || after.HoldTime != 9*time.Second {
		s.Errorf("the session is %+v", after)
	}
}

func internal(s *site) {
	n, p := s.neighbour(), s.peer()
	n.asn, p.LocalASN, p.PeerASN = routerASN, routerASN, routerASN
	s.start(s.T, s.box, n)
	preference := uint32(250)
	p.Path.Prepend = 3 // not to internal peers
	w := speaking(p, route4, route6)
	w.Prefixes[1].Path.LocalPreference = &preference
	startChild(s.T, s.edge, w)
	if r := s.has(route4, s.edge.Addr4().String()); len(r.ASPath) != 0 || r.LocalPref != "100" {
		s.Errorf("AS path and local preference are %v and %s, want none and 100", r.ASPath, r.LocalPref)
	}
	if r := s.has(route6, s.edge.Addr6().String()); r.LocalPref != "250" {
		s.Errorf("the local preference is %s, want 250", r.LocalPref)
	}
}

func overIPv6(s *site) {
	n, p := s.neighbour(), s.peer()
	n.address, n.local, p.Address = s.edge.Addr6().String(), s.box.Addr6().String(), s.box.Addr6()
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4, route6))
	c.established()
	s.has(route4, s.edge.Addr4().String())
	s.has(route6, s.edge.Addr6().String())
}

// linkLocalOf is the link-local address of a machine.
func (s *site) linkLocalOf(m *lab.Machine) string {
	s.Helper()
	out, err := m.Command(s.Context(), "ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "link").Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 4 {
		s.Fatalf("no link-local address (%v): %s", err, out)
	}
	return strings.Split(fields[3], "/")[0]
}

func linkLocal(s *site) {
	n, p := s.neighbour(), s.peer()
	n.address, n.local = s.linkLocalOf(s.edge), s.linkLocalOf(s.box)
	n.link, p.Address = "eth0", netip.MustParseAddr(n.local).WithZone("eth0")
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4, route6))
	c.established()
	s.has(route4, s.edge.Addr4().String())
	s.has(route6, s.edge.Addr6().String())
	p.Address = p.Address.WithZone("eth7")
	c.set(speaking(p, route4))
	c.until("told that there is no such interface", func(x model.Session) bool {
		return x.State != model.SessionEstablished && strings.Contains(x.Message, "this machine has no interface eth7: correct")
	})
}

func pathAttributes(s *site) {
	s.start(s.T, s.box, s.neighbour())
	p := s.peer()
	med, poolMED := uint32(20), uint32(30)
	p.Path = model.PathOptions{Communities: []string{"65000:100", "65000:1:2"}, MED: &med}
	w := speaking(p, route4, route6)
	w.Prefixes[0].Path = model.PathOptions{Communities: []string{"65000:200", "no-export"}, MED: &poolMED, Prepend: 2}
	c := startChild(s.T, s.edge, w)
	r := s.has(route4, s.edge.Addr4().String())
	noExport := map[bool]string{true: "no-export", false: "65535:65281"}[strings.Contains(r.Communities, "no-export")]
	if want := "65000:100 65000:200 " + noExport; r.Communities != want {
		s.Errorf("communities are %q, want %q", r.Communities, want)
	}
	if r.Large != "65000:1:2" || r.MED != "20" || asNumbers(r.ASPath...) != asNumbers(ourASN, ourASN, ourASN) {
		s.Errorf("the route is %+v, want large community 65000:1:2, MED 20 and our AS three times", r)
	}
	if r := s.has(route6, s.edge.Addr6().String()); r.Communities != "65000:100" || asNumbers(r.ASPath...) != asNumbers(ourASN) {
		s.Errorf("the IPv6 route is %+v, want the peer's options alone", r)
	}
	events := s.monitor()
	p.Path.Communities = []string{"65000:300"}
	w.Peers = []model.Peer{p}
	c.set(w)
	eventually(s.T, "the router has the new community", func() bool {
		r, _ := s.route(s.T, route4)
		return strings.Contains(r.Communities, "65000:300") && !strings.Contains(r.Communities, "65000:100")
	})
	if strings.Contains(events(), "Deleted "+vip4) {
		s.Errorf("a change of attributes took the route away:\n%s", events())
	}
	if x := c.established(); x.Flaps != 0 {
		s.Errorf("a change of attributes ended the session: %+v", x)
	}
}

func password(s *site) {
	n, p := s.neighbour(), s.peer()
	n.password, p.Password, p.NeedsPassword = "secret", "wrong", true
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	if x := c.saw(model.SessionWrongPassword); !strings.Contains(x.Message, "password") {
		s.Errorf("the message is %q", x.Message)
	}
	p.Password = ""
	c.set(speaking(p, route4))
	c.until("blocked", func(x model.Session) bool {
		return x.State == model.SessionBlocked && x.Reason == model.SessionMissingPassword
	})
	p.Password = "secret"
	c.set(speaking(p, route4))
	c.established()
	s.has(route4, s.edge.Addr4().String())
}

// far puts the router's end of the session on its loopback.
func (s *site) far() (neighbour, model.Peer) {
	s.Helper()
	for _, c := range [][]string{{"router", "addr", "replace", routerOnLoop + "/32", "dev", "lo"}, {"edge", "route", "replace", routerOnLoop, "via", s.box.Addr4().String()}} {
		m := s.edge
		if c[0] == "router" {
			m = s.box
		}
		if out, err := m.Command(s.Context(), append([]string{"ip"}, c[1:]...)...).CombinedOutput(); err != nil {
			s.Fatalf("ip %v: %v: %s", c, err, out)
		}
	}
	n, p := s.neighbour(), s.peer()
	n.local, n.multihop = routerOnLoop, true
	p.Address, p.TTL = netip.MustParseAddr(routerOnLoop), 2
	return n, p
}

func farAway(s *site) {
	n, p := s.far()
	s.start(s.T, s.box, n)
	startChild(s.T, s.edge, speaking(p, route4, route6)).established()
	s.has(route4, s.edge.Addr4().String())
	s.has(route6, s.edge.Addr6().String())
}

func addPath(s *site) {
	n, p := s.neighbour(), s.peer()
	n.addPath, p.AddPath = true, true
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4, route6))
	s.has(route4, s.edge.Addr4().String())
	s.has(route6, s.edge.Addr6().String())
	c.set(speaking(p, route4))
	s.lacks(route6)
}

// Prefixes come and go while the router asks for all of them again and again: it ends up with those that are wanted.
func refreshStorm(s *site) {
	s.start(s.T, s.box, s.neighbour())
	c := startChild(s.T, s.edge, speaking(s.peer(), route4, route6, otherRoute4))
	s.has(otherRoute4, s.edge.Addr4().String())
	for range 5 {
		var storm sync.WaitGroup
		storm.Go(func() {
			for range 5 {
				s.refresh(s.T)
			}
		})
		c.set(speaking(s.peer(), route4))
		s.refresh(s.T)
		c.set(speaking(s.peer(), otherRoute4))
		s.refresh(s.T)
		c.set(speaking(s.peer(), route4))
		storm.Wait()
		s.lacks(otherRoute4)
		s.lacks(route6)
		s.has(route4, s.edge.Addr4().String())
	}
	if x := c.established(); x.Flaps != 0 {
		s.Errorf("the session was lost: %+v", x)
	}
}

func withdraw(s *site) {
	s.start(s.T, s.box, s.neighbour())
	c := startChild(s.T, s.edge, speaking(s.peer(), route4, route6))
	s.has(route4, s.edge.Addr4().String())
	s.has(route6, s.edge.Addr6().String())
	c.withdraw()
	c.until("nothing advertised", func(x model.Session) bool {
		return x.State == model.SessionEstablished && len(x.Advertised) == 0
	})
	s.lacks(route4)
	s.lacks(route6)
	c.set(speaking(s.peer(), route4))
	s.has(route4, s.edge.Addr4().String())
}

func unwanted(s *site) {
	n, p := s.neighbour(), s.peer()
	n.exports = 4
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	if x := c.until("four prefixes ignored", func(x model.Session) bool { return x.Received == 4 }); x.Reason != model.SessionUnwanted {
		s.Errorf("the session is %+v, want reason UnwantedPrefixes", x)
	}
	if got := kernelRoute(s.T, s.edge, "198.51.100.1"); got != "" {
		s.Errorf("the machine took a route: %s", got)
	}
	s.has(route4, s.edge.Addr4().String())
	p.MaxPrefixes = 3
	c.set(speaking(p, route4))
	if x := c.until("above the limit", func(x model.Session) bool { return x.Reason == model.SessionTooManyPrefixes }); x.State != model.SessionEstablished || x.Flaps > 0 {
		s.Errorf("the session is %+v, want it established: what a router sends must not cost the VIPs", x)
	}
	s.has(route4, s.edge.Addr4().String())
	p.EndAboveMax = true
	c.set(speaking(p, route4))
	c.until("ended, as was asked for", func(x model.Session) bool {
		return x.Reason == model.SessionTooManyPrefixes && x.State != model.SessionEstablished
	})
	s.lacks(route4)
}

func wrongAS(s *site) {
	n, p := s.neighbour(), s.peer()
	n.asn = 65432 // the router expects this one
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	if x := c.saw(model.SessionWrongAS); !strings.Contains(x.Message, fmt.Sprint(ourASN)) {
		s.Errorf("the message is %q, want our AS in it", x.Message)
	}
	p.LocalASN, p.PeerASN = 65432, 65433
	c.set(speaking(p, route4))
	c.until("wrong AS of the router", func(x model.Session) bool {
		return x.Reason == model.SessionWrongAS && strings.Contains(x.Message, fmt.Sprintf("it has AS %d, and AS 65433", routerASN))
	})
	p.PeerASN = routerASN
	c.set(speaking(p, route4))
	c.established()
}

func oneFamily(s *site) {
	n, p := s.neighbour(), s.peer()
	n.only4 = true
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4, route6))
	if x := c.saw(model.SessionNoFamily); x.State != model.SessionEstablished || !strings.Contains(x.Message, "IPv6") {
		s.Errorf("the session is %+v, want established without IPv6", x)
	}
	s.has(route4, s.edge.Addr4().String())
	p.IPv4 = false
	c.set(speaking(p, route6))
	c.until("no family in common", func(x model.Session) bool {
		return x.Reason == model.SessionNoFamily && !strings.Contains(x.Message, "IPv4,")
	})
}

func noIPv6(s *site) {
	s.start(s.T, s.box, s.neighbour())
	const setting = "/proc/sys/net/ipv6/conf/all/disable_ipv6"
	always := context.WithoutCancel(s.Context()) // a cleanup runs when the test's own has ended
	write := func(value string) {
		s.Helper()
		if out, err := s.edge.Command(always, "sh", "-c", "echo "+value+" > "+setting).CombinedOutput(); err != nil {
			s.Fatalf("write %s: %v: %s", setting, err, out)
		}
	}
	write("1")
	s.Cleanup(func() {
		write("0")
		if out, err := s.edge.Command(always, "ip", "-6", "addr", "replace", s.edge.Addr6().String()+"/64", "dev", "eth0", "nodad").CombinedOutput(); err != nil {
			s.Errorf("give the IPv6 address back: %v: %s", err, out)
		}
	})
	p := s.peer()
	c := startChild(s.T, s.edge, speaking(p, route4, route6))
	x := c.saw(model.SessionNoLocalAddress)
	if x.State != model.SessionEstablished || !strings.Contains(x.Message, route6) || !strings.Contains(x.Message, "nextHopIPv6") {
		s.Errorf("the session is %+v, want it established without %s", x, route6)
	}
	s.has(route4, s.edge.Addr4().String())
	p.Address = s.box.Addr6()
	c.set(speaking(p, route4))
	x = c.until("no local address", func(x model.Session) bool {
		return x.Address == p.Address && x.Reason == model.SessionNoLocalAddress
	})
	if !strings.Contains(x.Message, "disable_ipv6") {
		s.Errorf("the message is %q", x.Message)
	}
}

func bfdContract(s *site) {
	n, p := s.neighbour(), s.peer()
	n.bfd = true
	p.BFD = &model.BFD{Interval: 300 * time.Millisecond, Multiplier: 3}
	s.watch(n, p)
}

func bfdMultihop(s *site) {
	n, p := s.far()
	n.bfd = true
	p.BFD = &model.BFD{Interval: 300 * time.Millisecond, Multiplier: 3}
	s.watch(n, p)
}

// watch sees BFD find out on both sides that the other hangs. The hold time alone would take minutes.
func (s *site) watch(n neighbour, p model.Peer) {
	s.Helper()
	p.HoldTime, n.hold = 10*time.Minute, 600
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	up := func(x model.Session) bool { return x.State == model.SessionEstablished && x.BFD == "up" }
	c.until("BFD up", up)
	s.has(route4, s.edge.Addr4().String())
	s.freeze(s.T, true)
	if x := c.saw(model.SessionBFDDown); x.State == model.SessionEstablished || x.Flaps == 0 { // more on a busy machine, which BFD notices too
		s.Errorf("the session is %+v, want it ended by BFD", x)
	}
	s.freeze(s.T, false)
	c.until("BFD up again", up)
	s.has(route4, s.edge.Addr4().String())
	c.signal(syscall.SIGSTOP)
	s.lacks(route4)
	c.signal(syscall.SIGCONT)
	c.until("BFD up once more", up)
	s.has(route4, s.edge.Addr4().String())
}

func restart(s *site) {
	n, p := s.neighbour(), s.peer()
	n.restart, p.RestartTime = true, 2*time.Minute
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4, route6, otherRoute4))
	for prefix, via := range map[string]string{route4: s.edge.Addr4().String(), route6: s.edge.Addr6().String(), otherRoute4: s.edge.Addr4().String()} {
		s.has(prefix, via)
	}
	events := s.monitor()
	c.kill()
	s.stale(route4)
	startChild(s.T, s.edge, speaking(p, route4, route6)).established()
	s.has(route4, s.edge.Addr4().String())
	s.has(route6, s.edge.Addr6().String())
	s.lacks(otherRoute4) // End-of-RIB said that it is no longer there
	for _, vip := range []string{vip4, vip6} {
		if strings.Contains(events(), "Deleted "+vip) {
			s.Errorf("the route to %s went away:\n%s", vip, events())
		}
	}
}

func leave(s *site) {
	n, p := s.neighbour(), s.peer()
	n.restart, p.RestartTime = true, 2*time.Minute
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4, route6))
	s.has(route4, s.edge.Addr4().String())
	s.has(route6, s.edge.Addr6().String())
	c.stop("leave")
	s.stale(route4)
	if got := kernelRoute(s.T, s.box, vip4); got == "" {
		s.Error("the router's kernel lost the route")
	}
}

func ceaseContract(s *site) {
	n, p := s.neighbour(), s.peer()
	n.restart, p.RestartTime = true, 2*time.Minute
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4, route6))
	s.has(route4, s.edge.Addr4().String())
	s.has(route6, s.edge.Addr6().String())
	c.stop("cease")
	s.lacks(route4)
	s.lacks(route6)
}

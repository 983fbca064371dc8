package bgp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
	"fairlead.dev/lab/program"
)

// TestOtherRouters holds the speaker against real speakers that are less often in front of machines than BIRD and FRR.
// They bring nothing into their kernel here.
func TestOtherRouters(t *testing.T) {
	routers := map[string]router{"openbgpd": &openBGPD{}, "gobgp": &goBGP{}, "exabgp": &exaBGP{}}
	beside(t, routers, func(t *testing.T, name string, s site) {
		for _, c := range []struct {
			name string
			run  func(*site)
			not  []string // routers that cannot
		}{
			{"attributes", otherAttributes, nil},
			{"connects", otherConnects, nil},
			{"both-connect", otherBoth, nil},
			{"ttl-security", otherSecurity, nil},
			{"enhanced-refresh", otherRefresh, []string{"gobgp", "exabgp"}},
			{"role", otherRole, []string{"gobgp", "exabgp"}},
			{"ipv6-next-hop", otherNextHop, []string{"openbgpd"}},
			{"unnumbered", otherUnnumbered, []string{"openbgpd", "exabgp"}},
			{"restart", otherRestart, nil},
			{"no-restart", otherNoRestart, nil},
		} {
			if slices.Contains(c.not, name) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				s := s
				s.T = t
				c.run(&s)
			})
		}
	})
}

// knows waits for a route in the router's BGP.
func (s *site) knows(prefix, via string) (r seen) {
	s.Helper()
	eventually(s.T, "the router has "+prefix+" via "+via, func() (ok bool) {
		r, ok = s.route(s.T, prefix)
		return ok && !r.Stale && r.NextHop == via
	})
	return r
}

// misses waits until the router has no route.
func (s *site) misses(prefix string) {
	s.Helper()
	eventually(s.T, "the router lacks "+prefix, func() bool { _, ok := s.route(s.T, prefix); return !ok })
}

func otherAttributes(s *site) {
	s.start(s.T, s.box, s.neighbour())
	p := s.peer()
	med := uint32(20)
	p.Path = model.PathOptions{Communities: []string{"65000:100", "65000:1:2"}, MED: &med}
	w := speaking(p, route4, route6, otherRoute4)
	w.Prefixes[0].Path = model.PathOptions{Communities: []string{"65000:200"}, Prepend: 2}
	c := startChild(s.T, s.edge, w)
	c.established()
	r := s.knows(route4, s.edge.Addr4().String())
	if r.Communities != "65000:100 65000:200" || r.Large != "65000:1:2" || r.MED != "20" || asNumbers(r.ASPath...) != asNumbers(ourASN, ourASN, ourASN) {
		s.Errorf("the route is %+v, want communities 65000:100 65000:200 and 65000:1:2, MED 20 and our AS three times", r)
	}
	s.knows(route6, s.edge.Addr6().String())
	s.knows(otherRoute4, s.edge.Addr4().String())
	w.Prefixes = w.Prefixes[1:]
	c.set(w)
	s.misses(route4)
	s.knows(route6, s.edge.Addr6().String())
	c.withdraw()
	s.misses(route6)
	s.misses(otherRoute4)
	if x := c.established(); x.Flaps != 0 || x.Reason != model.SessionOK {
		s.Errorf("the session is %+v", x)
	}
}

func otherConnects(s *site) {
	n, p := s.neighbour(), s.peer()
	n.connects, p.Connection = true, model.ConnectionPassive
	c := startChild(s.T, s.edge, speaking(p, route4))
	c.saw(model.SessionAwaited)
	s.start(s.T, s.box, n)
	c.established()
	s.knows(route4, s.edge.Addr4().String())
}

func otherBoth(s *site) {
	n, p := s.neighbour(), s.peer()
	n.connects, p.Connection = true, model.ConnectionBoth
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	c.established()
	s.knows(route4, s.edge.Addr4().String())
	// Another OPEN: both ends connect at once again. OpenBGPD would refuse everybody for half a minute after one more.
	p.HoldTime += time.Second
	c.set(speaking(p, route4))
	c.until("a session of the new hold time", func(x model.Session) bool {
		return x.State == model.SessionEstablished && x.Reason == model.SessionOK && len(x.Advertised) == 1
	})
	s.knows(route4, s.edge.Addr4().String())
}

// OpenBGPD asks for all again, in the enhanced form (RFC 7313), and loses nothing.
func otherRefresh(s *site) {
	s.start(s.T, s.box, s.neighbour())
	c := startChild(s.T, s.edge, speaking(s.peer(), route4, route6))
	s.knows(route4, s.edge.Addr4().String())
	for range 3 {
		s.refresh(s.T)
	}
	c.set(speaking(s.peer(), route6, otherRoute4))
	s.misses(route4)
	s.knows(otherRoute4, s.edge.Addr4().String())
	s.knows(route6, s.edge.Addr6().String())
	if x := c.established(); x.Flaps != 0 {
		s.Errorf("the session is %+v", x)
	}
}

// Roles that fit make a session, and others none.
func otherRole(s *site) {
	n, p := s.neighbour(), s.peer()
	n.role, p.Role, p.StrictRole = "provider", model.RoleCustomer, true
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	c.established()
	s.knows(route4, s.edge.Addr4().String())
	p.Role = model.RoleRouteServer
	c.set(speaking(p, route4))
	c.until("the roles do not fit", func(x model.Session) bool {
		return x.State != model.SessionEstablished && x.Reason == model.SessionWrongRole
	})
	s.misses(route4)
}

// IPv4 prefixes have IPv6 next hops where the machine has no IPv4 address on the link (RFC 8950).
func otherNextHop(s *site) {
	address := s.edge.Addr4().String()
	out, err := s.edge.Command(s.Context(), "ip", "-4", "-o", "addr", "show", "dev", "eth0").Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 4 {
		s.Fatalf("no IPv4 address (%v): %s", err, out)
	}
	s.ip(s.edge, "ip", "addr", "del", fields[3], "dev", "eth0")
	s.Cleanup(func() { s.ip(s.edge, "ip", "addr", "replace", fields[3], "dev", "eth0") })
	n, p := s.neighbour(), s.peer()
	n.address, n.local, n.nextHop6, p.Address = s.edge.Addr6().String(), s.box.Addr6().String(), true, s.box.Addr6()
	s.start(s.T, s.box, n)
	w := speaking(p, route4, route6)
	w.RouterID = netip.MustParseAddr(address)
	c := startChild(s.T, s.edge, w)
	c.established()
	s.knows(route4, s.edge.Addr6().String())
	s.knows(route6, s.edge.Addr6().String())
	w.Prefixes = w.Prefixes[1:]
	c.set(w)
	s.misses(route4)
	s.knows(route6, s.edge.Addr6().String())
}

// GoBGP looks for its neighbour in the kernel's table when it starts, and sends no advertisements: BIRD does, beside it.
func otherUnnumbered(s *site) {
	advertiser := &bird{}
	advertiser.start(s.T, s.box, neighbour{link: "eth0", unnumbered: true, asn: 65333, port: 1179})
	n, p := s.neighbour(), s.peer()
	n.unnumbered, n.link, n.address = true, "eth0", "eth0"
	p.Address, p.Interface = netip.Addr{}, "eth0"
	w := speaking(p, route4, route6)
	w.RouterID = s.edge.Addr4()
	c := startChild(s.T, s.edge, w)
	c.saw(model.SessionRefused) // it is found
	s.start(s.T, s.box, n)
	c.established()
	s.knows(route4, s.linkLocalOf(s.edge))
	s.knows(route6, s.linkLocalOf(s.edge))
}

func otherSecurity(s *site) {
	n, p := s.neighbour(), s.peer()
	n.security, p.TTLSecurity = true, 1
	if _, is := s.router.(*exaBGP); is { // it answers a SYN with TTL 64, whatever it is told
		n.connects, p.Connection = true, model.ConnectionPassive
	}
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	c.established()
	s.knows(route4, s.edge.Addr4().String())
}

// A router that keeps routes over a restart does, and loses what did not come back. One that does not has them again.
func otherRestart(s *site) {
	n, p := s.neighbour(), s.peer()
	n.restart, p.RestartTime = true, 2*time.Minute
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4, otherRoute4))
	s.knows(route4, s.edge.Addr4().String())
	s.knows(otherRoute4, s.edge.Addr4().String())
	c.kill()
	if _, forgets := s.router.(*exaBGP); forgets { // it is no router, and keeps nothing
		s.misses(route4)
	} else {
		s.stale(route4)
	}
	c = startChild(s.T, s.edge, speaking(p, route4))
	c.established()
	s.knows(route4, s.edge.Addr4().String())
	s.misses(otherRoute4)
	c.stop("cease")
	s.misses(route4)
}

func otherNoRestart(s *site) {
	s.start(s.T, s.box, s.neighbour())
	c := startChild(s.T, s.edge, speaking(s.peer(), route4))
	s.knows(route4, s.edge.Addr4().String())
	c.kill()
	s.misses(route4)
}

// plain is what is the same of routers that are asked for routes only.
type plain struct {
	m       *lab.Machine
	dir     string
	process *lab.Process
}

func (p *plain) freeze(t *testing.T, frozen bool) { signal(t, frozen, p.process) }

func (p *plain) refresh(t *testing.T)      { t.Fatal("it is not asked to") }
func (p *plain) bfd(t *testing.T) string   { t.Fatal("it has no BFD here"); return "" }
func (p *plain) bfdOver(t *testing.T) bool { t.Fatal("it has no BFD here"); return false }
func (p *plain) bfdEndsRestart() bool      { return false }
func (p *plain) path(name string) string   { return filepath.Join(p.dir, name) }
func (p *plain) write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(p.path(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p.path(name)
}

func (p *plain) ask(argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := p.m.Command(ctx, argv...).CombinedOutput()
	return string(out), err
}

// read has a program's answer as JSON.
func (p *plain) read(t *testing.T, into any, argv ...string) {
	t.Helper()
	out, err := p.ask(argv...)
	if err == nil {
		err = json.Unmarshal([]byte(out), into)
	}
	if err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

type openBGPD struct {
	plain
	neighbour string
}

func (o *openBGPD) start(t *testing.T, m *lab.Machine, n neighbour) {
	o.m, o.dir, o.neighbour = m, t.TempDir(), n.address
	options := ""
	for text, ok := range map[string]bool{"passive": !n.connects, "ttl-security yes": n.security, "announce restart no": !n.restart, "announce policy " + n.role + " enforce": n.role != ""} {
		if ok {
			options += "  " + text + "\n"
		}
	}
	conf := o.write(t, "bgpd.conf", fmt.Sprintf(`AS %d
router-id %s
socket %q
fib-update no
connect-retry 5
neighbor %s {
  remote-as %d
  announce IPv4 unicast
  announce IPv6 unicast
  announce enhanced refresh yes
  holdtime %d
%s}
allow from any
deny to any
`, routerASN, m.Addr4(), o.path("ctl"), n.address, n.asn, cmp.Or(n.hold, 9), options))
	// It enters its user's directory, which only its service makes: here it has another one.
	if err := os.Mkdir(o.path("home"), 0o755); err != nil {
		t.Fatal(err)
	}
	users, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	passwd := o.write(t, "passwd", strings.ReplaceAll(string(users), ":/run/openbgpd:", ":"+o.path("home")+":"))
	o.process = daemonOf(t, m, lab.ProcessSpec{
		Name: "bgpd", Argv: []string{need(t, program.OpenBGPD), "-d", "-f", conf}, Mounts: map[string]string{"/etc/passwd": passwd},
	})
	t.Cleanup(func() { // its children would outlive a kill, with its port
		if err := o.process.Stop(context.WithoutCancel(t.Context()), patience); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "bgpd answers", func() bool { _, err := o.ask(need(t, program.BGPCtl), "-s", o.path("ctl"), "show"); return err == nil })
}

func (o *openBGPD) refresh(t *testing.T) {
	t.Helper()
	if out, err := o.ask(need(t, program.BGPCtl), "-s", o.path("ctl"), "neighbor", o.neighbour, "refresh"); err != nil {
		t.Fatalf("bgpctl: %v: %s", err, out)
	}
}

func (o *openBGPD) route(t *testing.T, prefix string) (seen, bool) {
	t.Helper()
	var table struct {
		RIB []struct {
			Prefix      string
			ASPath      string `json:"aspath"`
			ExitNexthop string `json:"exit_nexthop"`
			Metric      int
			Stale       bool
			Communities []string
			Large       []string `json:"large_communities"`
		}
	}
	o.read(t, &table, need(t, program.BGPCtl), "-s", o.path("ctl"), "-j", "show", "rib", "detail", prefix)
	if len(table.RIB) == 0 {
		return seen{}, false
	}
	r := table.RIB[0]
	s := seen{NextHop: r.ExitNexthop, MED: fmt.Sprint(r.Metric), Stale: r.Stale}
	for _, as := range strings.Fields(r.ASPath) {
		var n uint32
		_, _ = fmt.Sscan(as, &n)
		s.ASPath = append(s.ASPath, n)
	}
	s.Communities, s.Large = strings.Join(r.Communities, " "), strings.Join(r.Large, " ")
	return s, true
}

type goBGP struct{ plain }

func (g *goBGP) start(t *testing.T, m *lab.Machine, n neighbour) {
	g.m, g.dir = m, t.TempDir()
	target := fmt.Sprintf("neighbor-address = %q", n.address)
	if n.unnumbered {
		target = fmt.Sprintf("neighbor-interface = %q", n.link)
	}
	options := fmt.Sprintf("[neighbors.transport.config]\npassive-mode = %t\n", !n.connects)
	if n.security {
		options += "[neighbors.ttl-security.config]\nenabled = true\nttl-min = 255\n"
	}
	if n.restart {
		options += "[neighbors.graceful-restart.config]\nenabled = true\nrestart-time = 120\n"
	}
	for _, f := range []string{"ipv4", "ipv6"} {
		options += fmt.Sprintf("[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"%s-unicast\"\n", f)
		if n.restart {
			options += "[neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true\n"
		}
	}
	conf := g.write(t, "gobgpd.toml", fmt.Sprintf(`[global.config]
as = %d
router-id = %q
[[neighbors]]
[neighbors.config]
%s
peer-as = %d
[neighbors.timers.config]
connect-retry = 1
hold-time = %d
keepalive-interval = 3
%s`, routerASN, m.Addr4(), target, n.asn, cmp.Or(n.hold, 9), options))
	g.process = daemon(t, m, need(t, program.GoBGPd), "-f", conf, "--api-hosts", g.target(), "--pprof-disable")
	eventually(t, "gobgpd answers", func() bool {
		_, err := g.ask(need(t, program.GoBGP), "--target", g.target(), "global")
		return err == nil
	})
}

func (g *goBGP) target() string { return "unix://" + g.path("ctl") }

func (g *goBGP) route(t *testing.T, prefix string) (seen, bool) {
	t.Helper()
	family := "ipv4"
	if strings.Contains(prefix, ":") {
		family = "ipv6"
	}
	var table map[string][]struct {
		Stale bool
		Attrs []struct {
			Type        int
			NextHop     string `json:"nexthop"`
			Metric      *uint32
			Communities []uint32
			Paths       []struct{ ASNs []uint32 } `json:"as_paths"`
			Value       json.RawMessage
		}
	}
	g.read(t, &table, need(t, program.GoBGP), "--target", g.target(), "-j", "global", "rib", "-a", family)
	if len(table[prefix]) == 0 {
		return seen{}, false
	}
	p := table[prefix][0]
	s := seen{Stale: p.Stale}
	var communities []string
	for _, a := range p.Attrs {
		s.NextHop += a.NextHop
		for _, c := range a.Communities {
			communities = append(communities, fmt.Sprintf("%d:%d", c>>16, c&0xffff))
		}
		for _, segment := range a.Paths {
			s.ASPath = append(s.ASPath, segment.ASNs...)
		}
		if a.Metric != nil {
			s.MED = fmt.Sprint(*a.Metric)
		}
		if a.Type == 32 { // large communities
			var list []struct{ ASN, LocalData1, LocalData2 uint32 }
			if err := json.Unmarshal(a.Value, &list); err != nil {
				t.Fatalf("large communities %s: %v", a.Value, err)
			}
			for _, c := range list {
				s.Large += fmt.Sprintf("%d:%d:%d", c.ASN, c.LocalData1, c.LocalData2)
			}
		}
	}
	s.Communities = strings.Join(communities, " ")
	return s, true
}

// exaBGP keeps no table: it tells a program what it hears, here one that writes it down.
type exaBGP struct{ plain }

func (e *exaBGP) start(t *testing.T, m *lab.Machine, n neighbour) {
	e.m, e.dir = m, t.TempDir()
	options := ""
	for text, ok := range map[string]bool{
		"passive true;": !n.connects, "incoming-ttl 255; outgoing-ttl 255;": n.security, "capability { graceful-restart 120; }": n.restart,
		"capability { nexthop enable; } nexthop { ipv4 unicast ipv6; }": n.nextHop6,
	} {
		if ok {
			options += text + "\n"
		}
	}
	conf := e.write(t, "exabgp.conf", fmt.Sprintf(`
process journal { run /bin/cp /dev/stdin %s; encoder json; }
neighbor %s {
  router-id %s; local-address %s; local-as %d; peer-as %d; hold-time %d;
  family { ipv4 unicast; ipv6 unicast; }
  %s
  api { processes [ journal ]; neighbor-changes; receive { parsed; update; } }
}
`, e.path("journal"), n.address, m.Addr4(), n.local, routerASN, n.asn, cmp.Or(n.hold, 9), options))
	settings := []string{"exabgp.daemon.user=root", "exabgp.daemon.drop=false", "exabgp.tcp.bind=" + n.local, "exabgp.api.ack=false", "exabgp.api.cli=false"}
	e.process = daemon(t, m, slices.Concat([]string{"/usr/bin/env"}, settings, []string{need(t, program.ExaBGP), conf})...)
	eventually(t, "exabgp runs its journal", func() bool { _, err := os.Stat(e.path("journal")); return err == nil })
}

func (e *exaBGP) route(t *testing.T, prefix string) (seen, bool) {
	t.Helper()
	raw, err := os.ReadFile(e.path("journal"))
	if err != nil {
		t.Fatal(err)
	}
	family := "ipv4 unicast"
	if strings.Contains(prefix, ":") {
		family = "ipv6 unicast"
	}
	type nlri struct{ NLRI string }
	has := func(list []nlri) bool { return slices.Contains(list, nlri{prefix}) }
	var s seen
	found := false
	for line := range strings.Lines(string(raw)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		var event struct {
			Neighbor struct {
				State   string
				Message struct {
					Update struct {
						Attribute struct {
							Path      []uint32 `json:"as-path"`
							MED       *uint32
							Community [][2]uint32
							Large     [][3]uint32 `json:"large-community"`
						}
						Announce map[string]map[string][]nlri
						Withdraw map[string][]nlri
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("exabgp says %s: %v", line, err)
		}
		u := event.Neighbor.Message.Update
		if event.Neighbor.State == "down" || has(u.Withdraw[family]) {
			s, found = seen{}, false
		}
		for hop, list := range u.Announce[family] {
			if !has(list) {
				continue
			}
			s, found = seen{NextHop: hop, ASPath: u.Attribute.Path}, true
			if u.Attribute.MED != nil {
				s.MED = fmt.Sprint(*u.Attribute.MED)
			}
			var communities []string
			for _, c := range u.Attribute.Community {
				communities = append(communities, fmt.Sprintf("%d:%d", c[0], c[1]))
			}
			s.Communities = strings.Join(communities, " ")
			for _, c := range u.Attribute.Large {
				s.Large += fmt.Sprintf("%d:%d:%d", c[0], c[1], c[2])
			}
		}
	}
	return s, found
}

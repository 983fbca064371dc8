package bgp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv6"

	"fairlead.dev/internal/driver/bgp/discovery"
	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
)

// Neither end is told the other's address.
func unnumbered(s *site) {
	ours, theirs := s.linkLocalOf(s.edge), s.linkLocalOf(s.box)
	n, p := s.neighbour(), s.peer()
	n.unnumbered, n.link, n.nextHop6, n.address, n.local = true, "eth0", true, "eth0", ""
	p.Address, p.Interface = netip.Addr{}, "eth0"
	p.BFD, n.bfd = &model.BFD{Interval: 300 * time.Millisecond, Multiplier: 3}, true
	w := speaking(p, route4, route6)
	w.RouterID = s.edge.Addr4()
	c := startChild(s.T, s.edge, w)
	if x := c.saw(model.SessionNoRouter); x.State != model.SessionBlocked || x.Address.IsValid() || x.Interface != "eth0" {
		s.Errorf("without a router, the session is %+v", x)
	}
	s.start(s.T, s.box, n)
	x := c.until("BFD up", func(x model.Session) bool { return x.State == model.SessionEstablished && x.BFD == "up" })
	if want := netip.MustParseAddr(theirs).WithZone("eth0"); x.Address != want {
		s.Errorf("the session is with %s, want %s", x.Address, want)
	}
	for _, route := range []string{route4, route6} {
		s.viaLink(route, ours)
	}

	// The router's link-local address changes.
	s.ip(s.box, "ip", "addr", "add", "fe80::77/64", "dev", "eth0", "nodad")
	s.Cleanup(func() { s.ip(s.box, "ip", "addr", "del", "fe80::77/64", "dev", "eth0") })
	s.ip(s.box, "ip", "addr", "del", theirs+"/64", "dev", "eth0")
	s.Cleanup(func() { s.ip(s.box, "ip", "addr", "replace", theirs+"/64", "dev", "eth0", "nodad") })
	c.until("a session with the router's new address", func(x model.Session) bool {
		return x.State == model.SessionEstablished && x.Address.WithZone("").String() == "fe80::77"
	})
	s.viaLink(route4, ours)

	// The link goes and comes.
	s.ip(s.edge, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/eth0/keep_addr_on_down && ip link set eth0 down")
	c.until("no session without the link", func(x model.Session) bool {
		return x.State == model.SessionBlocked && x.Reason == model.SessionNoRouter && strings.Contains(x.Message, "down")
	})
	s.ip(s.edge, "ip", "link", "set", "eth0", "up")
	c.established()
	s.viaLink(route6, s.linkLocalOf(s.edge))

	p.Interface = "eth7"
	w.Peers[0] = p
	c.set(w)
	c.until("told that there is no such interface", func(x model.Session) bool {
		return x.State == model.SessionBlocked && strings.Contains(x.Message, "this machine has no interface eth7")
	})
	s.lacks(route4)
	s.lacks(route6)
}

// A link that is taken away and made anew is another one, for BFD, too.
func linkAnew(s *site) {
	n, p := s.neighbour(), s.peer()
	n.address, n.local, n.link, n.nextHop6 = "fe80::ff:fe00:2", "fe80::ff:fe00:1", "tor0", true
	p.Address = netip.MustParseAddr(n.local).WithZone(n.link)
	p.BFD, n.bfd = &model.BFD{Interval: 300 * time.Millisecond, Multiplier: 3}, true
	w := speaking(p, route4)
	w.RouterID = s.edge.Addr4()
	c := startChild(s.T, s.edge, w)
	build := func() {
		s.Helper()
		s.ip(s.box, "ip", "link", "add", "tor0", "address", "02:00:00:00:00:01", "type", "veth",
			"peer", "name", "tor0", "address", "02:00:00:00:00:02", "netns", fmt.Sprint(c.cmd.Process.Pid))
		s.ip(s.box, "ip", "link", "set", "tor0", "up")
		s.ip(s.edge, "ip", "link", "set", "tor0", "up")
	}
	build()
	s.Cleanup(func() { s.ip(s.box, "ip", "link", "del", "tor0") })
	s.start(s.T, s.box, n)
	c.watched()
	s.ip(s.box, "ip", "link", "del", "tor0")
	c.until("no session without the link", func(x model.Session) bool { return x.State != model.SessionEstablished })
	build()
	c.watched()
	eventually(s.T, "the router has "+route4, func() bool { _, ok := s.route(s.T, route4); return ok })
}

// viaLink waits for a route to the machine's link-local address in the router's BGP and kernel.
func (s *site) viaLink(route, via string) {
	s.Helper()
	eventually(s.T, "the router has "+route, func() bool { _, ok := s.route(s.T, route); return ok })
	address := strings.Split(route, "/")[0]
	eventually(s.T, "the router's kernel has "+route+" via "+via, func() bool {
		return strings.Contains(kernelRoute(s.T, s.box, address), via+" dev eth0")
	})
}

// TestWhichRouterIsThePeer holds which of several routers on a link is the peer, and what is said.
func TestWhichRouterIsThePeer(t *testing.T) {
	t.Parallel()
	one, two := netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("fe80::2%eth0")
	var none netip.Addr
	for name, c := range map[string]struct {
		last   netip.Addr // of a session
		up     bool
		heard  []netip.Addr
		err    error
		want   netip.Addr
		reason model.SessionReason
	}{
		"nobody":                             {want: none, reason: model.SessionNoRouter},
		"one":                                {heard: []netip.Addr{one}, want: one},
		"two at first":                       {heard: []netip.Addr{one, two}, want: none, reason: model.SessionManyRouters},
		"another while there is a session":   {last: two, up: true, heard: []netip.Addr{one, two}, want: two, reason: model.SessionManyRouters},
		"another after the session was lost": {last: two, heard: []netip.Addr{one, two}, want: two, reason: model.SessionManyRouters},
		"silent while there is a session":    {last: two, up: true, want: two},
		"silent after the session was lost":  {last: two, want: none, reason: model.SessionNoRouter},
		"another address":                    {last: two, heard: []netip.Addr{one}, want: one},
		"a link that is gone under it":       {last: two, up: true, err: discovery.ErrNoInterface, want: two},
		"a link that is gone":                {last: two, heard: []netip.Addr{two}, err: discovery.ErrNoInterface, want: none, reason: model.SessionNoLocalAddress},
		"a link that is down":                {err: discovery.ErrDown, heard: []netip.Addr{two}, want: none, reason: model.SessionNoRouter},
		"a link without IPv6":                {err: discovery.ErrNoAddress, want: none, reason: model.SessionNoLocalAddress},
	} {
		got, trouble := choose(model.Peer{Name: "tor", Interface: "eth0"}, c.last, c.up, c.heard, c.err)
		if got != c.want || trouble.reason != c.reason || (trouble.message == "") != (c.reason == "") {
			t.Errorf("%s: got %s, %+v", name, got, trouble)
		}
	}
}

// heardLinks are links on which routers are heard.
type heardLinks map[string][]netip.Addr

func (h heardLinks) Watch(map[string]discovery.Session) {}
func (h heardLinks) Routers(name string) ([]netip.Addr, error) {
	return slices.Clone(h[name]), nil
}
func (h heardLinks) Close() {}

// TestTheRouterOfASessionOutlivesItsPeer holds which router is the peer, of two that are heard, after what the user may
// change and what the session may do.
func TestTheRouterOfASessionOutlivesItsPeer(t *testing.T) {
	t.Parallel()
	one, two := netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("fe80::2%eth0")
	tor := model.Peer{Name: "tor", Interface: "eth0", LocalASN: ourASN, PeerASN: theirASN}
	secret, other, elsewhere := tor, tor, tor
	secret.Password, other.Name, elsewhere.Interface = "s3cret", "other", "eth1"
	state := func(state model.SessionState, flaps uint32) func(*model.Session) {
		return func(x *model.Session) { x.State, x.Flaps = state, flaps }
	}
	up, lost := state(model.SessionEstablished, 0), state(model.SessionConnect, 1)
	for name, c := range map[string]struct {
		session func(*model.Session)
		anew    bool   // every session starts again
		restart string // of the process: what else is done to its file
		then    []model.Peer
		want    netip.Addr
	}{
		"it is up":                                    {session: up, then: []model.Peer{tor}, want: two},
		"it was lost":                                 {session: lost, then: []model.Peer{tor}, want: two},
		"there was none":                              {session: state(model.SessionConnect, 0), then: []model.Peer{tor}},
		"another password":                            {session: up, then: []model.Peer{secret}, want: two},
		"another password, and back":                  {session: up, then: []model.Peer{secret, tor}, want: two},
		"another password after its loss":             {session: lost, then: []model.Peer{secret}, want: two},
		"another router id":                           {session: up, anew: true, then: []model.Peer{tor, secret}, want: two},
		"another process":                             {session: up, restart: "kept", then: []model.Peer{secret}, want: two},
		"another process, after one without the peer": {session: up, restart: "unused", then: []model.Peer{secret}, want: two},
		"another process without its file":            {session: up, restart: "damaged", then: []model.Peer{secret}},
		"another name":                                {session: up, then: []model.Peer{other}},
		"another interface":                           {session: up, then: []model.Peer{elsewhere}},
		"another interface, and back again":           {session: up, then: []model.Peer{elsewhere, tor}},
	} {
		dir := t.TempDir()
		s := New(Config{StateDir: dir})
		heard := heardLinks{"eth0": {two}}
		s.links = heard
		at := func(c model.Peer) netip.Addr {
			s.mu.Lock()
			defer s.mu.Unlock()
			found := s.find([]model.Peer{c})[0].peer
			s.remove(cease(subcodeConfigChange), func(p *peer) bool { return p.name != c.Name || !p.keeps(found) })
			if s.peers[c.Name] == nil {
				s.peers[c.Name] = newPeer(s, netip.Addr{}, found)
			}
			return found.Address
		}
		at(tor)
		s.peers["tor"].update(c.session)
		heard["eth0"] = []netip.Addr{one, two}
		heard["eth1"] = []netip.Addr{one.WithZone("eth1"), two.WithZone("eth1")}
		got := at(tor)
		if c.anew {
			s.mu.Lock()
			s.remove(cease(subcodeConfigChange), func(*peer) bool { return true })
			s.mu.Unlock()
		}
		if c.restart == "damaged" {
			if err := os.WriteFile(filepath.Join(dir, "bgp-routers.json"), []byte(`[{"peer": "tor"`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range map[string]int{"kept": 1, "damaged": 1, "unused": 2}[c.restart] {
			s = New(Config{StateDir: dir})
			s.links = heard
			s.recall()
			s.find(nil) // as before the first Set
		}
		for range 2 { // the second time without the session
			for _, then := range c.then {
				got = at(then)
			}
		}
		if got != c.want {
			t.Errorf("%s: the peer is %s, want %s", name, got, c.want)
		}
	}
}

// TestForgedAdvertisements holds that advertisements count only if they come from the link itself, from a link-local
// address, and are well-formed.
func TestForgedAdvertisements(t *testing.T) {
	if err := lab.Supported(); err != nil {
		t.Skip("needs root: ", err)
	}
	l, err := lab.Up(t.Context(), lab.Topology{
		Name: fmt.Sprintf("bgp-forged-%d", os.Getpid()), Machines: []lab.MachineSpec{{Name: "edge"}, {Name: "router"}},
	}, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Down(context.WithoutCancel(t.Context())) })
	s := &site{T: t, edge: l.Machine("edge"), box: l.Machine("router")}
	for _, address := range []string{"fe80::66/64", "fe80::67/64", "fe80::99/64"} {
		s.ip(s.box, "ip", "addr", "add", address, "dev", "eth0", "nodad")
	}
	links, err := s.box.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	link, err := links.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := s.box.ListenPacket(t.Context(), "ip6:58", "::")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	index := link.Attrs().Index
	send := func(source string, hops int, message []byte) {
		t.Helper()
		cm := &ipv6.ControlMessage{HopLimit: hops, Src: net.ParseIP(source), IfIndex: index}
		to := &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: strconv.Itoa(index)}
		if _, err := ipv6.NewPacketConn(raw).WriteTo(message, cm, to); err != nil {
			t.Fatalf("send from %s: %v", source, err)
		}
	}
	p := s.peer()
	p.Address, p.Interface = netip.Addr{}, "eth0"
	w := speaking(p, route4)
	w.RouterID = s.edge.Addr4()
	c := startChild(t, s.edge, w)
	c.saw(model.SessionNoRouter)
	advertisement := append([]byte{134}, make([]byte, 15)...)
	found := func(x model.Session) bool { return x.Address.IsValid() }
	eventually(t, "the router is found", func() bool {
		send("fe80::66", 64, advertisement)
		send("fe80::66", 254, advertisement)
		send(s.box.Addr6().String(), 255, advertisement)
		send("fe80::67", 255, advertisement[:15])
		send("fe80::67", 255, append(advertisement[:16:16], 1, 0, 0, 0, 0, 0, 0, 0))
		send("fe80::99", 255, advertisement)
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.last) == 1 && found(c.last[0])
	})
	x := c.until("the router is found", found)
	if x.Address.WithZone("").String() != "fe80::99" {
		t.Errorf("the peer is %s", x.Address)
	}
	c.until("still the one that is real", func(x model.Session) bool { return x.Reason == model.SessionRefused })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.seen {
		if x.Reason == model.SessionManyRouters {
			t.Errorf("a forged advertisement counts: %s", x.Message)
		}
	}
}

package bgp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/rtdump"
)

// journal is a good peer that writes down what it is told.
type journal struct {
	*fake
	mu    sync.Mutex
	pages [][]string // a connection each: the next one can begin before the end of one was read
	open  *packet.BGPOpen
}

func newJournal(t *testing.T) *journal {
	t.Helper()
	j := &journal{}
	j.fake = newFake(t, func(l *line) {
		m := l.read()
		if m == nil {
			return
		}
		j.mu.Lock()
		j.open = m.Body.(*packet.BGPOpen)
		page := len(j.pages)
		j.pages = append(j.pages, nil)
		j.mu.Unlock()
		l.send(openOf(theirASN, 30, "192.0.2.1", packet.RF_IPv4_UC, packet.RF_IPv6_UC), packet.NewBGPKeepAliveMessage())
		for m := l.read(); m != nil; m = l.read() {
			switch body := m.Body.(type) {
			case *packet.BGPKeepAlive:
				l.send(m)
			case *packet.BGPUpdate:
				j.write(page, describe(body))
			case *packet.BGPNotification:
				j.write(page, fmt.Sprintf("notification %d/%d", body.ErrorCode, body.ErrorSubcode))
			}
		}
		j.write(page, "end")
	})
	return j
}

// describe is an UPDATE in a line.
func describe(u *packet.BGPUpdate) string {
	var out []string
	for _, n := range u.NLRI {
		out = append(out, "+"+n.NLRI.String())
	}
	for _, n := range u.WithdrawnRoutes {
		out = append(out, "-"+n.NLRI.String())
	}
	for _, a := range u.PathAttributes {
		switch v := a.(type) {
		case *packet.PathAttributeMpReachNLRI:
			for _, n := range v.Value {
				out = append(out, "+"+n.NLRI.String())
			}
		case *packet.PathAttributeMpUnreachNLRI:
			for _, n := range v.Value {
				out = append(out, "-"+n.NLRI.String())
			}
			if len(v.Value) == 0 {
				out = append(out, "end-of-rib ipv6")
			}
		case *packet.PathAttributeMultiExitDisc:
			out = append(out, fmt.Sprintf("med %d", v.Value))
		}
	}
	if len(out) == 0 {
		return "end-of-rib ipv4"
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (j *journal) write(page int, s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pages[page] = append(j.pages[page], s)
}

// wants waits until the journal, a connection after the other, is exactly this.
func (j *journal) wants(lines ...string) {
	j.t.Helper()
	var got []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		j.mu.Lock()
		got = slices.Concat(j.pages...)
		j.mu.Unlock()
		if len(got) >= len(lines) {
			break
		}
	}
	if !slices.Equal(got, lines) {
		j.t.Errorf("the peer was told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

func prefixes(list ...string) []Advertisement {
	var out []Advertisement
	for _, p := range list {
		out = append(out, Advertisement{Prefix: netip.MustParsePrefix(p)})
	}
	return out
}

func TestOnlyDifferencesTravel(t *testing.T) {
	t.Parallel()
	a, b := newJournal(t), newJournal(t)
	w := only(a.peer("a"), b.peer("b"))
	w.Prefixes = prefixes("203.0.113.2/32", "203.0.113.1/32")
	s := speak(t, w)
	first := []string{"+203.0.113.1/32 +203.0.113.2/32", "end-of-rib ipv4"}
	a.wants(first...)
	b.wants(first...)

	s.Set(w) // nothing
	w.Prefixes = prefixes("203.0.113.1/32", "203.0.113.3/32")
	s.Set(w)
	second := append(slices.Clone(first), "+203.0.113.3/32", "-203.0.113.2/32")
	a.wants(second...)
	b.wants(second...)

	med := uint32(7)
	w.Peers = slices.Clone(w.Peers)
	w.Peers[0].Path.MED = &med
	s.Set(w)
	third := append(slices.Clone(second), "+203.0.113.1/32 +203.0.113.3/32 med 7")
	a.wants(third...)

	w.Peers = w.Peers[1:]
	s.Set(w)
	a.wants(append(third, "notification 6/3", "end")...)

	w.Peers = slices.Clone(w.Peers)
	w.Peers[0].HoldTime += time.Second
	s.Set(w)
	b.wants(append(second, "notification 6/6", "end", "+203.0.113.1/32 +203.0.113.3/32", "end-of-rib ipv4")...)
	if a.connections() != 1 || b.connections() != 2 {
		t.Errorf("connections are %d and %d, want 1 and 2", a.connections(), b.connections())
	}
}

func TestWithdrawReturnsOnceSent(t *testing.T) {
	t.Parallel()
	a := newJournal(t)
	dead := newFake(t, func(l *line) { l.drain() }) // it never answers, and does not hold Withdraw up
	w := only(a.peer("a"), dead.peer("dead"))
	s := speak(t, w)
	s.established("a")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Withdraw(ctx); err != nil {
		t.Fatal(err)
	}
	if x := s.established("a"); len(x.Advertised) != 0 {
		t.Errorf("still advertised: %v", x.Advertised)
	}
	a.wants("+203.0.113.1/32", "end-of-rib ipv4", "-203.0.113.1/32")
	s.Set(w)
	a.wants("+203.0.113.1/32", "end-of-rib ipv4", "-203.0.113.1/32", "+203.0.113.1/32")
}

func TestStopPolicies(t *testing.T) {
	t.Parallel()
	for _, leave := range []bool{true, false} {
		a := newJournal(t)
		s := speak(t, only(a.peer("a")))
		a.wants("+203.0.113.1/32", "end-of-rib ipv4")
		s.StopPolicy(leave)
		s.end()
		want := []string{"+203.0.113.1/32", "end-of-rib ipv4", "notification 6/2", "end"}
		if leave {
			want = slices.Delete(want, 2, 3)
		}
		a.wants(want...)
		if len(s.Sessions()) != 0 {
			t.Errorf("sessions after the end: %+v", s.Sessions())
		}
	}
}

func TestNewRouterIDStartsAllSessionsAgain(t *testing.T) {
	t.Parallel()
	a := newJournal(t)
	w := only(a.peer("a"))
	s := speak(t, w)
	a.wants("+203.0.113.1/32", "end-of-rib ipv4")
	w.RouterID = netip.MustParseAddr("192.0.2.98")
	s.Set(w)
	a.wants("+203.0.113.1/32", "end-of-rib ipv4", "notification 6/6", "end", "+203.0.113.1/32", "end-of-rib ipv4")
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open.ID != w.RouterID {
		t.Errorf("the router id in OPEN is %s, want %s", a.open.ID, w.RouterID)
	}
}

// A peer that is not there is tried again soon.
func TestRefusedThenThere(t *testing.T) {
	t.Parallel()
	// Bound, but not listening yet: nobody else can take the port.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "socket")
	defer func() { _ = file.Close() }()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(name.(*unix.SockaddrInet4).Port))
	s := speak(t, only(model.Peer{
		Name: "late", Address: port.Addr(), Port: port.Port(), LocalASN: ourASN, PeerASN: theirASN,
		HoldTime: 30 * time.Second, ConnectRetry: time.Second, IPv4: true,
	}))
	if x := s.reason("late", model.SessionRefused, "refused", port.String()); x.State != model.SessionConnect {
		t.Errorf("the state is %s, want connect", x.State)
	}
	if err := unix.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		there := &line{f: &fake{}, conn: conn.(*net.TCPConn)}
		there.shake()
		there.keep()
	}()
	s.established("late")
}

func TestBlockedUntilItCanBeTried(t *testing.T) {
	t.Parallel()
	a := newJournal(t)
	p := a.peer("a")
	p.NeedsPassword = true
	s := speak(t, only(p))
	if x := s.reason("a", model.SessionMissingPassword, "Secret"); x.State != model.SessionBlocked {
		t.Errorf("the state is %s, want blocked", x.State)
	}
	p.NeedsPassword, p.HoldTime = false, 2*time.Second
	s.Set(only(p))
	if x := s.reason("a", model.SessionProtocolError, "hold time of 2s"); x.State != model.SessionBlocked {
		t.Errorf("the state is %s, want blocked", x.State)
	}
	p.HoldTime = 0
	s.Set(only(p))
	if x := s.established("a"); x.HoldTime != 0 || a.connections() != 1 {
		t.Errorf("hold time %s and %d connections, want 0 and 1", x.HoldTime, a.connections())
	}
}

func TestSessionWithoutLocalAddress(t *testing.T) {
	t.Parallel()
	a := newJournal(t)
	p := a.peer("a")
	p.Source = netip.MustParsePrefix("192.0.2.77/32")
	s := speak(t, only(p))
	s.reason("a", model.SessionNoLocalAddress, "192.0.2.77")
	p.Source, p.IPv6 = netip.Prefix{}, true
	w := only(p)
	w.Prefixes = prefixes("203.0.113.1/32", "2001:db8::1/128")
	s.Set(w)
	s.until("a", "established without IPv6 prefixes", func(x model.Session) bool {
		return x.State == model.SessionEstablished && x.Reason == model.SessionNoLocalAddress &&
			strings.Contains(x.Message, "2001:db8::1/128") && strings.Contains(x.Message, "nextHopIPv6")
	})
	a.wants("+203.0.113.1/32", "end-of-rib ipv4", "end-of-rib ipv6")
	w.Peers = []model.Peer{p}
	w.Peers[0].NextHop6 = netip.MustParsePrefix("2001:db8::ffff/128")
	s.Set(w)
	a.wants("+203.0.113.1/32", "end-of-rib ipv4", "end-of-rib ipv6", "+2001:db8::1/128")
	s.until("a", "no trouble", func(x model.Session) bool { return x.Reason == model.SessionOK && x.Message == "" })
}

func TestRefreshIsAnswered(t *testing.T) {
	t.Parallel()
	updates := make(chan string, 10)
	f := newFake(t, func(l *line) {
		l.shake()
		asked := false
		for m := l.read(); m != nil; m = l.read() {
			if u, ok := m.Body.(*packet.BGPUpdate); ok {
				updates <- describe(u)
			}
			if !asked {
				asked = true
				l.send(packet.NewBGPRouteRefreshMessage(packet.AFI_IP, 0, packet.SAFI_UNICAST))
			}
		}
	})
	speak(t, only(f.peer("a")))
	for _, want := range []string{"+203.0.113.1/32", "end-of-rib ipv4", "+203.0.113.1/32"} {
		select {
		case got := <-updates:
			if got != want {
				t.Errorf("the peer was told %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("the peer was not told %q", want)
		}
	}
}

func TestChooseRouterID(t *testing.T) {
	w := Speaking{Machine: "edge-1", Prefixes: prefixes("10.0.0.0/30")}
	addr := func(list ...string) (out []rtdump.Address) {
		for _, a := range list {
			out = append(out, rtdump.Address{Addr: netip.MustParseAddr(a)})
		}
		return out
	}
	held := rtdump.Address{Addr: netip.MustParseAddr("10.9.0.1"), Interface: "lo", Up: true, HostScope: true} // a VIP
	proxied := rtdump.Address{Addr: netip.MustParseAddr("10.96.0.1"), Interface: "kube-ipvs0"}                // a cluster IP, on every node
	if got := chooseRouterID(w, append(addr("127.0.0.1", "10.0.0.1", "192.0.2.9", "172.16.0.1", "2001:db8::1", "169.254.1.1"), held, proxied)); got.String() != "172.16.0.1" {
		t.Errorf("chose %s, want 172.16.0.1", got)
	}
	one, two := chooseRouterID(w, nil), chooseRouterID(Speaking{Machine: "edge-2"}, nil)
	if !one.Is4() || one.IsUnspecified() || one == two || one != chooseRouterID(w, addr("127.0.0.1")) {
		t.Errorf("without addresses, edge-1 chose %s and edge-2 %s", one, two)
	}
}

// TestAddressesThatCannotBeListed: a session goes on from the address that it had, with the next hops that it had.
func TestAddressesThatCannotBeListed(t *testing.T) {
	had := []rtdump.Address{
		{Addr: netip.MustParseAddr("127.0.0.1"), Interface: "lo", Up: true, Loopback: true, HostScope: true},
		{Addr: netip.MustParseAddr("192.0.2.1"), Interface: "eth0", Up: true},
		{Addr: netip.MustParseAddr("fe80::1"), Interface: "eth0", Up: true},
		{Addr: netip.MustParseAddr("2001:db8::9"), Interface: "eth0", Up: true, Unstable: true},
		{Addr: netip.MustParseAddr("2001:db8::1"), Interface: "eth0", Up: true},
		{Addr: netip.MustParseAddr("192.0.2.7"), Interface: "eth1"}, // which is down
	}
	var fails error
	s := New(Config{Log: testLog(t), Addresses: func() ([]rtdump.Address, error) { return had, fails }})
	conf := model.Peer{Name: "tor", Address: netip.MustParseAddr("192.0.2.254"), Source: netip.MustParsePrefix("192.0.2.0/24")}
	for _, fails = range []error{nil, errors.New("interrupted")} {
		addrs, err := s.localAddrs()
		if !errors.Is(err, fails) || len(addrs) != 5 || addrs[0].addr.String() != "127.0.0.1" || addrs[2].addr.String() != "fe80::1%eth0" {
			t.Fatalf("%v: addresses are %v, %v", fails, addrs, err)
		}
		from, f := source(conf, addrs, nil)
		if f != nil || from.String() != "192.0.2.1" {
			t.Errorf("%v: it connects from %s: %v", fails, from, f)
		}
		if hop := nextHop(conf, true, from, addrs, nil); hop.String() != "2001:db8::1" {
			t.Errorf("%v: the next hop is %s", fails, hop)
		}
		if id := s.identify(Speaking{Machine: "edge-1"}); id.String() != "192.0.2.1" {
			t.Errorf("%v: the router id is %s", fails, id)
		}
		s.chosen = netip.Addr{}
	}
}

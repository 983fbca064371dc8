package bgp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
)

// freePort is a port that nobody listens at.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// listening is a speaker with one peer, at 127.0.0.1, that may connect to it.
func listening(t *testing.T, c model.Peer) (*watched, uint16) {
	t.Helper()
	port := freePort(t)
	s := &watched{t: t, poke: make(chan struct{}, 1), ended: make(chan struct{})}
	s.Speaker = New(Config{Log: testLog(t), ListenPort: port, Changed: func() {
		select {
		case s.poke <- struct{}{}:
		default:
		}
	}})
	s.Set(only(c))
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.ended)
		_ = s.Run(ctx)
	}()
	t.Cleanup(s.end)
	return s, port
}

// knock connects to the speaker from an address, and tries again while nobody listens.
func knock(t *testing.T, from string, port uint16) *line {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	var conn net.Conn
	eventually(t, "the speaker listens", func() (ok bool) {
		var err error
		conn, err = d.DialContext(t.Context(), "tcp4", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port).String())
		return err == nil
	})
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &line{f: &fake{t: t}, conn: conn.(*net.TCPConn)}
}

func theirs() model.Peer {
	return model.Peer{
		Name: "router", Address: netip.MustParseAddr("127.0.0.1"), Port: 1, LocalASN: ourASN, PeerASN: theirASN,
		HoldTime: 30 * time.Second, ConnectRetry: 500 * time.Millisecond, IPv4: true, MaxPrefixes: 10, Connection: model.ConnectionPassive,
	}
}

// A peer that may connect has its session; everybody else is reset, and told nothing.
func TestPeersMayConnect(t *testing.T) {
	t.Parallel()
	s, port := listening(t, theirs())
	s.until("router", "awaited", func(x model.Session) bool {
		return x.State == model.SessionActive && x.Reason == model.SessionAwaited
	})
	stranger := knock(t, "127.0.0.2", port)
	if n, err := io.Copy(io.Discard, stranger.conn); n != 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a stranger read %d bytes, %v", n, err)
	}
	router := knock(t, "127.0.0.1", port)
	router.shake()
	s.established("router")
	go router.keep()

	// While it stands, another one is refused (RFC 4271, 6.8).
	again := knock(t, "127.0.0.1", port)
	if again.drain(); again.f.told != "6/7" {
		t.Errorf("a second connection was told %q, want NOTIFICATION 6/7", again.f.told)
	}
	if x := s.established("router"); x.Flaps != 0 {
		t.Errorf("a second connection touched the session: %+v", x)
	}
	_ = router.conn.Close()
	s.until("router", "lost", func(x model.Session) bool { return x.State != model.SessionEstablished })
	next := knock(t, "127.0.0.1", port)
	next.shake()
	s.until("router", "established again", func(x model.Session) bool { return x.State == model.SessionEstablished && x.Flaps == 1 })

	w := only(theirs())
	w.Peers[0].Connection = model.ConnectionActive
	s.Set(w)
	eventually(t, "nobody listens any more", func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp4", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port).String())
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

// A peer that speaks graceful restart and connects again has restarted, and its old connection is gone (RFC 4724, 5).
func TestAPeerThatRestartedConnectsAgain(t *testing.T) {
	t.Parallel()
	c := theirs()
	c.RestartTime = time.Minute
	s, port := listening(t, c)
	restarting := func() *packet.BGPMessage {
		m := openOf(theirASN, 30, "192.0.2.1", packet.RF_IPv4_UC)
		list := m.Body.(*packet.BGPOpen).OptParams[0].(*packet.OptionParameterCapability)
		list.Capability = append(list.Capability, packet.NewCapGracefulRestart(false, false, 60, []*packet.CapGracefulRestartTuple{
			packet.NewCapGracefulRestartTuple(packet.RF_IPv4_UC, true),
		}))
		return m
	}
	shake := func() *line {
		l := knock(t, "127.0.0.1", port)
		l.read()
		l.send(restarting(), packet.NewBGPKeepAliveMessage())
		l.read()
		return l
	}
	before := shake()
	s.established("router")
	after := shake()
	s.until("router", "established anew", func(x model.Session) bool { return x.State == model.SessionEstablished && x.Flaps == 1 })
	go after.keep()
	if before.drain(); before.f.told != "" {
		t.Errorf("the old connection was told %s: the peer would drop our routes", before.f.told)
	}
}

// Both ends connect at the same time: the connection of the larger router id stays, whichever OPEN comes first.
func TestCollisions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, id  string
		oursFirst bool
		ours      bool // stays
	}{
		{name: "ours is larger, its OPEN first", id: "192.0.2.1", oursFirst: true, ours: true},
		{name: "ours is larger, its OPEN last", id: "192.0.2.1", ours: true},
		{name: "theirs is larger, its OPEN first", id: "192.0.2.200"},
		{name: "theirs is larger, its OPEN last", id: "192.0.2.200", oursFirst: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dialed := make(chan *line, 1)
			release := make(chan struct{})
			f := newFake(t, func(l *line) {
				if l.n == 1 {
					dialed <- l
				}
				<-release // the test plays it
			})
			t.Cleanup(func() { close(release) }) // before the fake waits for its script
			conf := f.peer("router")
			conf.Connection = model.ConnectionBoth
			s, port := listening(t, conf)
			theirs := knock(t, "127.0.0.1", port)
			var ours *line
			select {
			case ours = <-dialed:
			case <-time.After(patience):
				t.Fatal("the speaker does not connect")
			}
			first, second := theirs, ours
			if c.oursFirst {
				first, second = ours, theirs
			}
			_ = ours.conn.SetDeadline(time.Now().Add(patience))
			open := openOf(theirASN, 30, c.id, packet.RF_IPv4_UC)
			for _, l := range []*line{first, second} {
				l.read() // its OPEN
			}
			first.send(open)
			if m := first.read(); m == nil || m.Header.Type != packet.BGP_MSG_KEEPALIVE {
				t.Fatalf("the first OPEN is answered by %+v", m)
			}
			second.send(open)
			stays, goes := theirs, ours
			if c.ours {
				stays, goes = ours, theirs
			}
			if goes.drain(); goes.f.lastTold() != "6/7" {
				t.Errorf("the connection that goes was told %q, want NOTIFICATION 6/7", goes.f.lastTold())
			}
			if stays == second {
				if m := stays.read(); m == nil || m.Header.Type != packet.BGP_MSG_KEEPALIVE {
					t.Fatalf("the second OPEN is answered by %+v", m)
				}
			}
			stays.send(packet.NewBGPKeepAliveMessage())
			if x := s.established("router"); x.Flaps != 0 {
				t.Errorf("the session is %+v", x)
			}
		})
	}
}

// lastTold is the last NOTIFICATION that the fake has read.
func (f *fake) lastTold() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.told
}

// A router with GTSM that connects hears the answer: it leaves with the full TTL (RFC 5082).
func TestPeersWithTTLSecurityMayConnect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address             string
		level, ttl, minimum int
	}{
		{"127.0.0.1", unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MINTTL},
		{"::1", unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MINHOPCOUNT},
	} {
		t.Run(c.address, func(t *testing.T) {
			t.Parallel()
			conf := theirs()
			conf.Address, conf.TTLSecurity = netip.MustParseAddr(c.address), 1
			s, port := listening(t, conf)
			s.until("router", "awaited", func(x model.Session) bool { return x.Reason == model.SessionAwaited })
			d := net.Dialer{Timeout: time.Second, Control: control(func(fd int) error {
				return errors.Join(unix.SetsockoptInt(fd, c.level, c.ttl, 255), unix.SetsockoptInt(fd, c.level, c.minimum, 255))
			})}
			var conn net.Conn
			eventually(t, "the speaker's answer arrives", func() (ok bool) {
				var err error
				conn, err = d.DialContext(t.Context(), "tcp", netip.AddrPortFrom(conf.Address, port).String())
				return err == nil
			})
			t.Cleanup(func() { _ = conn.Close() })
			_ = conn.SetDeadline(time.Now().Add(patience))
			router := &line{f: &fake{t: t}, conn: conn.(*net.TCPConn)}
			router.shake()
			s.established("router")
		})
	}
}

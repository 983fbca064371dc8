package bgp

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

const (
	ourASN   = 64512
	theirASN = 64513
	patience = 30 * time.Second
)

// fake is a scripted BGP speaker on the loopback: each connection plays the script.
type fake struct {
	t    *testing.T
	l    net.Listener
	mu   sync.Mutex
	seen int    // connections
	told string // the last NOTIFICATION that we sent it
}

func newFake(t *testing.T, script func(*line)) *fake {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, l: l}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.seen++
			n := f.seen
			f.mu.Unlock()
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				stop := context.AfterFunc(t.Context(), func() { _ = conn.Close() })
				defer stop()
				script(&line{f: f, conn: conn.(*net.TCPConn), n: n})
			})
		}
	})
	return f
}

func (f *fake) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

// wasTold waits until the fake has read a NOTIFICATION.
func (f *fake) wasTold(want string) {
	f.t.Helper()
	var got string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		f.mu.Lock()
		got = f.told
		f.mu.Unlock()
		if got == want {
			return
		}
	}
	f.t.Errorf("the peer was told %q, want NOTIFICATION %s", got, want)
}

// peer is the configuration of a session with the fake.
func (f *fake) peer(name string) model.Peer {
	at := netip.MustParseAddrPort(f.l.Addr().String())
	return model.Peer{
		Name: name, Address: at.Addr(), Port: at.Port(), LocalASN: ourASN, PeerASN: theirASN,
		HoldTime: 30 * time.Second, ConnectRetry: 500 * time.Millisecond, IPv4: true, MaxPrefixes: 10,
	}
}

// line is a connection from the side of the fake.
type line struct {
	f    *fake
	conn *net.TCPConn
	n    int // the how manieth it is
}

func (l *line) send(messages ...*packet.BGPMessage) {
	for _, m := range messages {
		b, err := m.Serialize()
		if err != nil {
			panic(err)
		}
		_, _ = l.conn.Write(b)
	}
}

// read returns the next message, or nil when the connection has ended.
func (l *line) read() *packet.BGPMessage {
	header := make([]byte, packet.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(l.conn, header); err != nil {
		return nil
	}
	body := make([]byte, binary.BigEndian.Uint16(header[16:])-packet.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(l.conn, body); err != nil {
		return nil
	}
	m, err := packet.ParseBGPBody(&packet.BGPHeader{Type: header[18]}, body)
	if err != nil {
		panic(err)
	}
	if n, ok := m.Body.(*packet.BGPNotification); ok {
		l.f.mu.Lock()
		l.f.told = fmt.Sprintf("%d/%d", n.ErrorCode, n.ErrorSubcode)
		l.f.mu.Unlock()
	}
	return m
}

// keep answers keepalives until the connection ends.
func (l *line) keep() {
	for {
		m := l.read()
		if m == nil {
			return
		}
		if m.Header.Type == packet.BGP_MSG_KEEPALIVE {
			l.send(m)
		}
	}
}

// drain reads until the connection ends, and returns the last message.
func (l *line) drain() (last *packet.BGPMessage) {
	for {
		m := l.read()
		if m == nil {
			return last
		}
		last = m
	}
}

func openOf(as uint32, hold uint16, id string, families ...packet.Family) *packet.BGPMessage {
	capabilities := []packet.ParameterCapabilityInterface{packet.NewCapFourOctetASNumber(as)}
	for _, f := range families {
		capabilities = append(capabilities, packet.NewCapMultiProtocol(f))
	}
	m, err := packet.NewBGPOpenMessage(shortASN(as), hold, netip.MustParseAddr(id),
		[]packet.OptionParameterInterface{packet.NewOptionParameterCapability(capabilities)})
	if err != nil {
		panic(err)
	}
	return m
}

// shake establishes the session.
func (l *line) shake() {
	l.read()
	l.send(openOf(theirASN, 30, "192.0.2.1", packet.RF_IPv4_UC), packet.NewBGPKeepAliveMessage())
	l.read()
}

// update advertises prefixes to the machine.
func update(prefixes ...string) *packet.BGPMessage {
	var list []netip.Prefix
	for _, p := range prefixes {
		list = append(list, netip.MustParsePrefix(p))
	}
	n, err := nlri(list)
	if err != nil {
		panic(err)
	}
	hop, err := packet.NewPathAttributeNextHop(netip.MustParseAddr("192.0.2.1"))
	if err != nil {
		panic(err)
	}
	return packet.NewBGPUpdateMessage(nil, []packet.PathAttributeInterface{
		packet.NewPathAttributeOrigin(0), asPath([]uint32{theirASN}, true), hop,
	}, n)
}

// speak runs a speaker for the length of the test.
func speak(t *testing.T, w Speaking) *watched {
	t.Helper()
	s := &watched{t: t, poke: make(chan struct{}, 1)}
	s.Speaker = New(Config{Log: testLog(t), Changed: func() {
		select {
		case s.poke <- struct{}{}:
		default:
		}
	}})
	s.Set(w)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		_ = s.Run(ctx)
	}()
	t.Cleanup(s.end)
	return s
}

type watched struct {
	*Speaker
	t      *testing.T
	poke   chan struct{}
	cancel context.CancelFunc
	ended  chan struct{}
}

func (s *watched) end() {
	s.cancel()
	<-s.ended
}

// until waits for a session as wanted, and returns it. It sees every status that lasts for a moment.
func (s *watched) until(name, what string, ok func(model.Session) bool) model.Session {
	s.t.Helper()
	deadline := time.After(patience)
	var last model.Session
	for {
		for _, x := range s.Sessions() {
			if x.Peer == name {
				if last = x; ok(x) {
					return x
				}
			}
		}
		select {
		case <-s.poke:
		case <-time.After(100 * time.Millisecond): // Changed says that something changed; nobody says that all was seen
		case <-deadline:
			s.t.Fatalf("session %s did not come to: %s\nlast seen: %+v", name, what, last)
		}
	}
}

// reason waits for a reason, and checks that its message has the words.
func (s *watched) reason(name string, want model.SessionReason, words ...string) model.Session {
	s.t.Helper()
	x := s.until(name, "reason "+string(want), func(x model.Session) bool { return x.Reason == want })
	for _, w := range append(words, "peer "+name, x.Address.String()) {
		if !strings.Contains(x.Message, w) {
			s.t.Errorf("the message of %s lacks %q: %s", name, w, x.Message)
		}
	}
	return x
}

func (s *watched) established(name string) model.Session {
	s.t.Helper()
	return s.until(name, "established", func(x model.Session) bool { return x.State == model.SessionEstablished })
}

func only(peers ...model.Peer) Speaking {
	return Speaking{
		Machine: "edge-1", RouterID: netip.MustParseAddr("192.0.2.99"), Peers: peers,
		Prefixes: []Advertisement{{Prefix: netip.MustParsePrefix("203.0.113.1/32")}},
	}
}

// testLog writes to the test's log, which is shown when it fails.
func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

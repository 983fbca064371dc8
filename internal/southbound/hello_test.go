package southbound

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestSilentConnectionsKeepNobodyOut holds that who connects and says nothing takes no place from others.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	r := newRig(t)
	a := r.join("edge-1")
	var silent []net.Conn
	for range maxGreetingsOfOne + maxHandshakes {
		c, err := r.listener.DialContext(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	for range 3 {
		if _, err := agentv1.NewEnrollmentClient(r.dial(a.cert)).Renew(r.ctx(), &agentv1.RenewRequest{Csr: request(t, a.key)}); err != nil {
			t.Errorf("while %d connections say nothing: %v", len(silent), err)
		}
	}
	// What is no TLS, and what begins and does not go on, is closed.
	for _, begins := range [][]byte{[]byte("GET / HTTP/1.1\r\n"), {22, 3, 1, 1, 0}, {22, 3, 1, 0xff, 0xff}} {
		c := silent[len(silent)-1] // the first ones made room for others
		silent = silent[:len(silent)-1]
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Write(begins); err != nil {
			continue // it is closed already
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%q is answered", begins)
		}
	}
}

func addressOf(t *testing.T, text string) net.Addr {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestGreetingsAreBounded holds that connections whose handshake has not begun are so many, of a network
// and in all: the oldest goes, and none of a network that machines call from goes for those of others.
func TestGreetingsAreBounded(t *testing.T) {
	g := newGreetings()
	open := func(network string, known bool) *greeting {
		here, there := net.Pipe()
		t.Cleanup(func() { _ = there.Close() })
		return g.enter(here, netip.MustParsePrefix(network), known)
	}
	gone := func(it *greeting) bool {
		select {
		case <-it.gone:
			_, err := it.conn.Write([]byte{1})
			return errors.Is(err, io.ErrClosedPipe)
		default:
			return false
		}
	}
	machine := open("192.0.2.1/32", true)
	var first, last *greeting
	for i := range maxGreetingsOfOne + 1 {
		last = open("198.51.100.1/32", false)
		if i == 0 {
			first = last
		}
	}
	if !gone(first) || gone(last) || g.all[false].Len() != maxGreetingsOfOne {
		t.Errorf("of one network there are %d; the first has gone: %v, the last: %v", g.all[false].Len(), gone(first), gone(last))
	}
	var others []*greeting
	for i := range maxGreetings + maxGreetingsOfOne {
		others = append(others, open(fmt.Sprintf("2001:db8:0:%x::/64", i), false))
	}
	if g.all[false].Len() != maxGreetings || !gone(last) || gone(others[len(others)-1]) {
		t.Errorf("there are %d; the oldest has gone: %v", g.all[false].Len(), gone(last))
	}
	if gone(machine) {
		t.Error("strangers took the place of a machine")
	}
	for _, it := range append(others, machine, first, last) {
		g.leave(it)
	}
	if len(g.one) != 0 || g.all[true].Len() != 0 {
		t.Errorf("left: %d networks, %d of machines", len(g.one), g.all[true].Len())
	}
}

// TestStrangersLeaveMachinesHandshakes holds that handshakes from many networks that do not end leave
// some for the networks that machines call from.
func TestStrangersLeaveMachinesHandshakes(t *testing.T) {
	r := newRig(t)
	l, err := new(net.ListenConfig).Listen(r.ctx(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	from := func(ip string) func(context.Context, string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		return func(ctx context.Context, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", l.Addr().String())
		}
	}
	a := r.join("edge-1")
	renew := func() error {
		_, err := agentv1.NewEnrollmentClient(r.dialBy(a.cert, from("127.1.0.1"))).Renew(r.ctx(), &agentv1.RenewRequest{Csr: request(t, a.key)})
		return err
	}
	s := r.dialBy(a.cert, from("127.1.0.1"))
	if err := agentFollows(r, s); err != nil {
		t.Fatal(err)
	}
	// What a client says first, and no more.
	here, there := net.Pipe()
	go func() {
		_ = tls.Client(here, &tls.Config{ServerName: agentv1.ServerName, MinVersion: tls.VersionTLS13}).Handshake()
	}()
	hello := make([]byte, maxHello)
	n, err := there.Read(hello)
	if err != nil {
		t.Fatal(err)
	}
	_ = there.Close()
	for i := range 2 * maxHandshakes {
		c, err := from(fmt.Sprintf("127.2.0.%d", 1+i%(2*maxHandshakes/maxHandshakesOfOne)))(r.ctx(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(hello[:n]); err != nil {
			t.Fatal(err)
		}
	}
	underWay := func() int {
		s := r.server.admission.shakes
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.strange
	}
	for deadline := time.Now().Add(patience); underWay() < maxStrangeHandshakes; {
		if time.Now().After(deadline) {
			t.Fatalf("%d handshakes are under way", underWay())
		}
		runtime.Gosched()
	}
	for range 3 {
		if err := renew(); err != nil {
			t.Errorf("while strangers' handshakes do not end: %v", err)
		}
	}
}

// TestExpectedMachines holds that who calls from a machine's address does not stand in line with strangers, also
// before it has called.
func TestExpectedMachines(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Expected = func(a netip.Addr) bool { return a == netip.MustParseAddr("192.0.2.7") }
	})
	for address, want := range map[string]bool{"192.0.2.7:1000": true, "[::ffff:192.0.2.7]:1000": true, "192.0.2.8:1000": false, "[2001:db8::1]:1000": false} {
		at := addressOf(t, address)
		if got := r.server.admission.isMachines(at, networkOf(at)); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

// agentFollows opens a stream of a machine, so that the plane knows from where it calls.
func agentFollows(r *rig, conn grpc.ClientConnInterface) error {
	s, err := agentv1.NewObserverClient(conn).Observe(r.ctx())
	if err != nil {
		return err
	}
	if err := s.Send(&agentv1.Report{}); err != nil {
		return err
	}
	r.wait("the report", "edge-1", func(m MachineState) bool { return !m.LastReport.IsZero() })
	return nil
}

// TestNetworksThatMachinesCallFrom holds that each machine has two, and that none has many by moving.
func TestNetworksThatMachinesCallFrom(t *testing.T) {
	now := &clock{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	c := newCallers(2, now.Now)
	net := func(i int) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32) }
	c.note("a", net(1))
	c.first("a", net(9)) // to prove another address
	c.note("b", net(1))
	c.note("c", net(8)) // one too many
	c.note("a", net(2))
	c.note("a", net(3)) // at once
	if got := len(c.networks); got != 2 || !c.has(net(1)) || !c.has(net(2)) {
		t.Fatalf("%v", c.networks)
	}
	now.advance(callerPause)
	c.note("a", net(1)) // still
	c.note("a", net(3))
	if !c.has(net(1)) || c.has(net(2)) || !c.has(net(3)) {
		t.Errorf("%v", c.networks)
	}
	c.forget("a")
	c.forget("b")
	if len(c.networks)+len(c.machines) != 0 {
		t.Errorf("left: %v", c.networks)
	}
}

// TestFirstConnectionsAreKnown holds that a machine is told from strangers by its first connection: it renews its certificate
// by calls alone, before it has a stream.
func TestFirstConnectionsAreKnown(t *testing.T) {
	r := newRig(t)
	knows := func(address string) bool {
		at := addressOf(t, address)
		return r.server.admission.isMachines(at, networkOf(at))
	}
	r.callFrom("192.0.2.7")
	a := r.join("edge-1") // without a certificate
	if knows("192.0.2.7:1000") {
		t.Error("a stranger is taken for a machine")
	}
	if _, err := a.renew(); err != nil {
		t.Fatal(err)
	}
	if !knows("192.0.2.7:1000") || knows("192.0.2.8:1000") {
		t.Errorf("known are %v", r.server.admission.callers.networks)
	}
	// Later ones may be for proving other addresses.
	if _, err := a.proves("192.0.2.8"); status.Code(err) != codes.FailedPrecondition {
		t.Fatal(err)
	}
	if knows("192.0.2.8:1000") {
		t.Error("a machine takes handshakes by every address that it has")
	}
}

// said is a connection with what its client has said.
type said struct {
	net.Conn
	io.Reader
}

func (s said) Read(b []byte) (int, error) { return s.Reader.Read(b) }

// TestGreetingsAreShort holds that a client's first message takes little memory and little time.
func TestGreetingsAreShort(t *testing.T) {
	greeting := func(n int) io.Reader {
		return bytes.NewReader(append([]byte{22, 3, 1, byte(n >> 8), byte(n)}, make([]byte, n)...))
	}
	here, there := net.Pipe()
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	if g, err := greet(said{here, greeting(maxHello)}); err != nil || len(g.record) != 5+maxHello {
		t.Errorf("the longest: %v", err)
	}
	long := greeting(maxHello + 1)
	if _, err := greet(said{here, long}); !errors.Is(err, errNoHello) {
		t.Errorf("a longer one: %v", err)
	}
	if rest, err := io.ReadAll(long); err != nil || len(rest) != maxHello+1 {
		t.Errorf("of which %d bytes were not read: %v", len(rest), err)
	}
	synctest.Test(t, func(t *testing.T) { // time passes where all wait
		here, there := net.Pipe()
		defer there.Close()
		began := time.Now()
		if _, err := greet(here); err == nil {
			t.Error("silence is a greeting")
		}
		// gRPC would close it then.
		if took := time.Since(began); took != helloTime || helloTime > handshakeTime/2 {
			t.Errorf("a silent connection was closed after %s", took)
		}
	})
}

// idle is a connection that is never idle for the server, and on which nobody looks at the key: a call
// without its message.
func (r *rig) idle(cert *tls.Certificate) (grpc.ClientStream, error) {
	return r.dial(cert).NewStream(r.ctx(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, agentv1.Observer_Prove_FullMethodName)
}

// goodKeys are the keys that count, as a plane knows them.
type goodKeys struct{ keys sync.Map }

func (g *goodKeys) known(_ string, key KeyID) bool {
	_, is := g.keys.Load(key)
	return is
}

func (g *goodKeys) set(t *testing.T, keys ...*ecdsa.PrivateKey) {
	t.Helper()
	g.keys.Clear()
	for _, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		g.keys.Store(keyID(der), true)
	}
}

// TestKeyThatCountsNoLonger holds that connections with a key that was taken away take none from its
// machine's successor, and do not last.
func TestKeyThatCountsNoLonger(t *testing.T) {
	var good goodKeys
	r := newRig(t, func(c *Config) { c.Known, c.StrangerTime = good.known, 2*time.Second })
	old := r.impostor("edge-1")
	good.set(t, old.key)
	var before []grpc.ClientStream
	for range maxPerMachine {
		s, err := r.idle(old.cert)
		if err != nil {
			t.Fatal(err)
		}
		before = append(before, s)
	}
	a := r.join("edge-1")
	good.set(t, a.key)
	for range maxPerMachine - 1 {
		if _, err := agentv1.NewEnrollmentClient(r.dial(a.cert)).Renew(r.ctx(), &agentv1.RenewRequest{Csr: request(t, a.key)}); err != nil {
			t.Fatalf("the machine that joined anew is told: %v", err)
		}
	}
	for _, s := range before {
		if err := s.RecvMsg(&agentv1.ProveResponse{}); err == nil || status.Code(err) == codes.DeadlineExceeded {
			t.Error("a connection with a key that counted goes on")
		}
	}
	s, err := r.idle(old.cert)
	if err == nil {
		err = s.RecvMsg(&agentv1.ProveResponse{})
	}
	if err == nil || status.Code(err) == codes.DeadlineExceeded {
		t.Error("a connection with a key that does not count goes on")
	}
}

// TestRenewalsGiveNoConnections holds that a machine has no more connections for having several keys.
func TestRenewalsGiveNoConnections(t *testing.T) {
	var good goodKeys
	r := newRig(t, func(c *Config) { c.Known = good.known })
	first, second := r.impostor("edge-1"), r.impostor("edge-1")
	good.set(t, first.key, second.key) // both count while a machine renews its certificate
	for range maxPerMachine / 2 {
		for _, cert := range []*tls.Certificate{first.cert, second.cert} {
			if _, err := r.idle(cert); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, cert := range []*tls.Certificate{first.cert, second.cert} {
		if _, err := r.idle(cert); status.Code(err) != codes.Unavailable {
			t.Errorf("the connection after %d of one machine: %v", maxPerMachine, err)
		}
	}
	third := r.impostor("edge-1")
	good.set(t, second.key, third.key)
	for range maxPerMachine / 2 {
		if _, err := r.idle(third.cert); err != nil {
			t.Fatalf("in the place of connections whose key counts no longer: %v", err)
		}
	}
	if _, err := r.idle(third.cert); status.Code(err) != codes.Unavailable {
		t.Errorf("the connection after %d of one machine: %v", maxPerMachine, err)
	}
	if _, err := r.idle(r.join("edge-2").cert); err != nil {
		t.Errorf("of another machine: %v", err)
	}
}

package southbound

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"testing"
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
	for range 2 * maxHandshakes {
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
		c := silent[0]
		silent = silent[1:]
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Write(begins); err != nil {
			continue // it is closed already
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%q is answered", begins)
		}
	}
}

// TestOneNetworkHasFewHandshakes holds that the slow handshakes of one network leave room for those of others.
func TestOneNetworkHasFewHandshakes(t *testing.T) {
	q := newQueues()
	from := func(text string) net.Addr {
		a, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	var leave []func()
	for i := range maxHandshakesOfOne {
		l, err := q.enter(from("[2001:db8::" + string('1'+rune(i%9)) + "]:1000"))
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	full := make(chan error)
	go func() {
		_, err := q.enter(from("[2001:db8::ffff]:1000"))
		full <- err
	}()
	for _, other := range []string{"[2001:db8:0:1::1]:1000", "192.0.2.1:1000", "[::ffff:192.0.2.2]:1000"} {
		l, err := q.enter(from(other))
		if err != nil {
			t.Errorf("%s: %v", other, err)
			continue
		}
		l()
	}
	if err := <-full; err == nil {
		t.Error("one network has more than its part")
	}
	for _, l := range leave {
		l()
	}
	if len(q.one) != 0 || len(q.all) != 0 {
		t.Errorf("left: %d networks, %d handshakes", len(q.one), len(q.all))
	}
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
	r := newRig(t, func(c *Config) { c.Known, c.StrangerTime = good.known, 100*time.Millisecond })
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
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(&agentv1.ProveResponse{}); status.Code(err) == codes.DeadlineExceeded || err == nil {
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

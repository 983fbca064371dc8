package southbound

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

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

// TestKeyThatCountsNoLonger holds that connections with a key that was taken away take none from its
// machine's successor, and do not last.
func TestKeyThatCountsNoLonger(t *testing.T) {
	r := newRig(t)
	old := r.impostor("edge-1")
	var ended []grpc.ClientStream
	for range maxPerMachine {
		// A call without its message: the connection is never idle, and nobody looks at the key.
		s, err := r.dial(old.cert).NewStream(context.Background(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, agentv1.Observer_Prove_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		ended = append(ended, s)
	}
	a := r.join("edge-1")
	for range maxPerMachine - 1 {
		if _, err := agentv1.NewEnrollmentClient(r.dial(a.cert)).Renew(r.ctx(), &agentv1.RenewRequest{Csr: request(t, a.key)}); err != nil {
			t.Fatalf("the machine that joined anew is told: %v", err)
		}
	}
	r.server.door.known = func(_ string, key KeyID) bool { return false }
	r.server.door.strangerTime = 100 * time.Millisecond
	s, err := r.dial(old.cert).NewStream(context.Background(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, agentv1.Observer_Prove_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(&agentv1.ProveResponse{}); err == nil {
		t.Error("a connection with a key that does not count goes on")
	}
	_ = ended
}

package agent

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"fairlead.dev/internal/gate/gatetest"
)

// TestEnvoyEndsConnectionsOfAListener has a real Envoy end what it has at a listener: a
// client that goes on asking is told so before its connection is closed, new connections
// are taken all the time, and those are not told.
func TestEnvoyEndsConnectionsOfAListener(t *testing.T) {
	b := newBench(t)
	b.plane(b.cluster("c0", "s"), b.endpoints("s", b.backend("one")), b.listener(""), gatetest.Routes(t, routesName, gatetest.Host{Name: "a", Clusters: []string{"c0"}}))
	b.startEnvoy("--drain-time-s", "3")
	b.applies()
	b.answers("a", "one")
	stop := b.load("a")
	before := b.keep()
	if before.asks() {
		t.Fatal("a connection was closed for no reason")
	}
	b.relay.renew(listenerName, true)
	b.applies()
	eventually(t, "the connection to be told", before.asks)
	var after *kept
	// Envoy has agreed before its threads have the new listener.
	eventually(t, "a connection that is not told", func() bool {
		after = b.keep()
		for range 20 {
			if after.asks() {
				return false
			}
		}
		return true
	})
	b.relay.renew(listenerName, false)
	b.applies()
	eventually(t, "the later connection to be told", after.asks)
	b.unharmed(stop)
}

// kept is a connection to the bench's Envoy.
type kept struct {
	b    *bench
	conn net.Conn
	read *bufio.Reader
}

func (b *bench) keep() *kept {
	b.t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", b.port))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		b.t.Fatal(err)
	}
	return &kept{b, c, bufio.NewReader(c)}
}

// asks sends a request, which must be answered, and says whether that was the last one.
func (k *kept) asks() (last bool) {
	k.b.t.Helper()
	if _, err := fmt.Fprint(k.conn, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"); err != nil {
		k.b.t.Fatal(err)
	}
	resp, err := http.ReadResponse(k.read, nil)
	if err != nil {
		k.b.t.Fatalf("the connection ended without a word: %v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		k.b.t.Fatalf("it answers %s", resp.Status)
	}
	body := make([]byte, 16)
	if n, _ := resp.Body.Read(body); string(body[:n]) != "one" {
		k.b.t.Fatalf("it answers %q", body[:n])
	}
	return resp.Close
}

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// listening is a socket that listens, and how strangers reach it.
type listening struct {
	name string
	dial func(ctx context.Context) (net.Conn, error)
}

// sockets are all that a plane and an edge listen at.
func (s *site) sockets(t *testing.T, edge string) []listening {
	t.Helper()
	over := func(name string, m *lab.Machine, address string) listening {
		return listening{name, func(ctx context.Context) (net.Conn, error) { return m.Dial(ctx, "tcp", address) }}
	}
	run, err := s.Lab.Machine(edge).Dir("run")
	if err != nil {
		t.Fatal(err)
	}
	stranger, e, p := s.Lab.Machine(client.Name), s.Lab.Machine(edge), s.plane.Machine
	return []listening{
		over("API", stranger, net.JoinHostPort(p.Addr6().String(), "6443")),
		over("agents' endpoint", stranger, s.plane.Endpoint()),
		over("plane's console", p, "127.0.0.1:7080"),
		over("agent's console", e, "127.0.0.1:7081"),
		over("Envoy", stranger, net.JoinHostPort(e.Addr4().String(), "80")),
		{"xDS socket", func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(run, "xds.sock"))
		}},
	}
}

// clientHello is how a TLS handshake begins.
func clientHello(t *testing.T) []byte {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		_ = tls.Client(there, &tls.Config{ServerName: "fairlead.test"}).Handshake()
		_ = there.Close()
	}()
	hello := make([]byte, 4096)
	n, err := here.Read(hello)
	if err != nil {
		t.Fatal(err)
	}
	return hello[:n]
}

// How many connections of each kind an attack makes on each socket.
const (
	fuzzed = 60
	slow   = 150
)

// attack sends rubbish to a socket and opens connections that never say anything whole.
// It returns those that it still holds open.
func attack(ctx context.Context, t *testing.T, l listening, random *rand.Rand, hello []byte) []net.Conn {
	rubbish := func() []byte {
		b := make([]byte, 1+random.IntN(8192))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	beginnings := []func() []byte{
		rubbish,
		func() []byte { return append([]byte(preface), rubbish()...) },
		func() []byte { return append([]byte("GET /"), rubbish()...) },
		func() []byte { return append(append([]byte(nil), hello...), rubbish()...) },
		func() []byte {
			bent := append([]byte(nil), hello...)
			for range 1 + random.IntN(8) {
				bent[random.IntN(len(bent))] = byte(random.Uint32())
			}
			return bent
		},
	}
	var held []net.Conn
	for i := range fuzzed {
		c, err := l.dial(ctx)
		if err != nil {
			continue // a server may refuse; that good clients get in is what matters
		}
		_ = c.SetDeadline(time.Now().Add(answerTime))
		_, _ = c.Write(beginnings[i%len(beginnings)]())
		if tcp, ok := c.(*net.TCPConn); ok && i%2 == 0 {
			_ = tcp.SetLinger(0) // ends with a reset
		}
		_ = c.Close()
	}
	halves := [][]byte{
		nil,
		[]byte("GET / HTTP/1.1\r\nHost: slow.example.com\r\nX-Slow: "),
		[]byte("POST / HTTP/1.1\r\nHost: slow.example.com\r\nContent-Length: 1000000\r\n\r\nbeginning"),
		hello[:len(hello)/2],
		hello,
		[]byte(preface[:10]),
		[]byte(preface),
	}
	for i := range slow {
		c, err := l.dial(ctx)
		if err != nil {
			continue
		}
		held = append(held, c)
		_ = c.SetDeadline(time.Now().Add(answerTime))
		_, _ = c.Write(halves[i%len(halves)])
	}
	if len(held) == 0 {
		t.Errorf("%s: not one connection could be made", l.name)
	}
	return held
}

// descriptors counts what a process has open.
func descriptors(pid lab.Pid) (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid.ID))
	return len(entries), err
}

// TestHostileClients attacks every socket at once while good clients go on: requests,
// kubectl, the status, and changes that reach the edges. Nothing ends, nothing is slower
// than people wait, and nothing is kept open afterwards.
func TestHostileClients(t *testing.T) {
	s := shared(t)
	s.namespace(t, "hostile")
	processes := map[string]lab.Pid{
		"plane": s.plane.Process.Pid(), "agent": s.agents[edge1.Name].Process.Pid(), "Envoy": s.envoy(t, edge1.Name).Pid,
	}
	before := map[string]int{}
	for name, pid := range processes {
		n, err := descriptors(pid)
		if err != nil {
			t.Fatal(err)
		}
		before[name] = n
	}
	f := s.startTraffic(t, newsHost)
	hello := clientHello(t)

	var mu sync.Mutex
	var held []net.Conn
	release := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range held {
			_ = c.Close()
		}
		held = nil
	}
	t.Cleanup(release)
	var attacking sync.WaitGroup
	for i, l := range s.sockets(t, edge1.Name) {
		random := rand.New(rand.NewPCG(4711, uint64(i)))
		attacking.Go(func() {
			conns := attack(t.Context(), t, l, random, hello)
			mu.Lock()
			defer mu.Unlock()
			held = append(held, conns...)
			t.Logf("%s: %d slow connections held", l.name, len(conns))
		})
	}
	// Good clients, while it goes on and while the slow ones hang.
	s.reroute(t, "hostile")
	attacking.Wait()
	s.reroute(t, "hostile")
	s.kubectl(t, "get", "httproutes", "-A")
	if status, _, errs := s.run(t, s.plane.Machine, "status"); status != 0 {
		t.Errorf("status ended with %d: %s", status, errs)
	}
	for _, a := range s.agents {
		if err := s.Get(t.Context(), a.Machine, "http://127.0.0.1:7081/readyz"); err != nil {
			t.Error(err)
		}
	}
	f.more(t, 200)

	release()
	for name, pid := range processes {
		if !pid.Alive() {
			t.Errorf("the %s was brought down", name)
			continue
		}
		s.await(t, "the "+name+" to close what strangers opened", func(context.Context) error {
			n, err := descriptors(pid)
			if err == nil && n > before[name]+30 {
				err = fmt.Errorf("it has %d descriptors, before it had %d", n, before[name])
			}
			return err
		})
	}
	s.awaitNoProblem(t)
	f.none(t)
}

// TestSlowClientsAreCutOff holds that the consoles do not wait for ever for a request.
func TestSlowClientsAreCutOff(t *testing.T) {
	s := shared(t)
	for _, l := range s.sockets(t, edge1.Name) {
		if l.name != "plane's console" && l.name != "agent's console" {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			c, err := l.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n"); err != nil {
				t.Fatal(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(rig.Patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is still open")
			}
		})
	}
}

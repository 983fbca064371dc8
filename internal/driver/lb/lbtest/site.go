package lbtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// patience is how long anything may take on a busy machine.
const patience = 60 * time.Second

// The machine under test, in model.Balancing.
const machine = "lb"

// Ports of backends.
const (
	backendPort = 8080
	webPort     = 8081
)

// site is a client, a load balancer and four backends. The client and the load balancer
// are on one segment, the load balancer and the backends on another, which the client has
// an interface in too, for answers that do not pass the load balancer.
type site struct {
	t        *testing.T
	subject  Subject
	client   *space
	lb       *space
	backends []*space
	plane    *plane
	env      map[string]string         // of the data plane's process
	own      map[netip.AddrPort]string // names of backends by address
	counts   *sync.Map                 // datagrams by backend
}

var (
	vips     = []string{"192.0.2.10", "2001:db8:1::10", "192.0.2.11", "2001:db8:1::11"}
	clients4 = netip.MustParsePrefix("10.91.0.0/24")
	clients6 = netip.MustParsePrefix("fd91::/64")
)

const (
	backendsCount = 4
	clientsCount  = 24
)

// clientAddr is the client's address number i.
func clientAddr(is4 bool, i int) netip.Addr {
	if is4 {
		return netip.AddrFrom4([4]byte{10, 91, 0, byte(10 + i)})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd91::%x", 0x10+i))
}

func backendAddr(is4 bool, i int) netip.Addr {
	if is4 {
		return netip.AddrFrom4([4]byte{10, 92, 0, byte(21 + i)})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd92::%x", 0x21+i))
}

func newSite(t *testing.T, s Subject) *site {
	t.Helper()
	x := &site{t: t, subject: s, own: map[netip.AddrPort]string{}, counts: &sync.Map{}}
	x.need()
	x.client, x.lb = newSpace(t, "client"), newSpace(t, "lb")
	x.settle()
	quiet := []string{"net/ipv4/conf/all/rp_filter", "net/ipv4/conf/default/rp_filter", "net/ipv6/conf/all/accept_dad", "net/ipv6/conf/default/accept_dad"}
	for _, m := range []*space{x.client, x.lb} {
		m.sysctl(t, "0", quiet...)
	}
	x.client.sysctl(t, "1024 65000", "net/ipv4/ip_local_port_range")
	wire(t, x.client, "c0", x.lb, "l0")
	x.lb.address(t, "l0", "10.91.0.1/24", "fd91::1/64")
	for i := range clientsCount {
		x.client.address(t, "c0", clientAddr(true, i).String()+"/24", clientAddr(false, i).String()+"/64")
	}
	// The segment of the backends is a bridge at the load balancer's side of the wires.
	segment := newSpace(t, "segment")
	bridge(t, segment, "seg")
	plug(t, segment, "seg", x.lb, "l1")
	x.lb.address(t, "l1", "10.92.0.1/24", "fd92::1/64")
	plug(t, segment, "seg", x.client, "c1")
	x.client.address(t, "c1", "10.92.0.9/24", "fd92::9/64")
	x.client.route(t, "192.0.2.0/24", "10.91.0.1")
	x.client.route(t, "2001:db8:1::/64", "fd91::1")
	for i := range backendsCount {
		b := newSpace(t, fmt.Sprintf("b%d", i+1))
		b.sysctl(t, "0", quiet...)
		plug(t, segment, "seg", b, "e0")
		b.address(t, "e0", backendAddr(true, i).String()+"/24", backendAddr(false, i).String()+"/64")
		via4, via6 := "10.92.0.1", "fd92::1"
		if s.Direct {
			via4, via6 = "10.92.0.9", "fd92::9"
		}
		b.route(t, clients4.String(), via4)
		b.route(t, clients6.String(), via6)
		if s.Direct {
			b.sysctl(t, "1", "net/ipv4/conf/all/arp_ignore")
			b.sysctl(t, "2", "net/ipv4/conf/all/arp_announce")
			for _, v := range vips {
				b.address(t, "lo", host(v))
			}
		}
		if s.Prepare != nil {
			must(t, b.in(s.Prepare))
		}
		x.backends = append(x.backends, b)
		x.serve(b, backendAddr(true, i), backendAddr(false, i))
	}
	for _, v := range vips {
		x.lb.address(t, "lo", host(v))
	}
	x.plane = start(t, s, x.lb, x.env)
	return x
}

// settle makes the load balancer's settings.
func (x *site) settle() {
	x.t.Helper()
	if x.subject.StateDir != "" {
		x.env = map[string]string{x.subject.StateDir: x.t.TempDir()}
	}
	x.lb.sysctl(x.t, "1", "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")
	for name, value := range x.subject.Settings {
		x.lb.sysctl(x.t, value, name)
	}
}

// need skips where there can be no namespaces.
func (x *site) need() {
	x.t.Helper()
	if os.Geteuid() != 0 {
		x.t.Skip("needs root: network namespaces")
	}
}

func host(address string) string {
	if strings.Contains(address, ":") {
		return address + "/128"
	}
	return address + "/32"
}

// backend is backend i of a frontend, ready.
func (x *site) backend(k model.FrontendKey, i int, weight uint32) model.FrontendBackend {
	port := uint16(backendPort)
	if x.subject.Cannot[OtherPort] != "" {
		port = k.Port
	}
	return model.FrontendBackend{Address: netip.AddrPortFrom(backendAddr(k.VIP.Is4(), i), port), Machine: fmt.Sprintf("b%d", i+1), Weight: weight, HopWeight: weight}
}

// frontend has the first n backends with equal weights.
func (x *site) frontend(k model.FrontendKey, n int) *model.Balanced {
	f := &model.Balanced{Frontend: &model.Frontend{
		FrontendKey: k, Owner: model.Object{Kind: "Service", Namespace: "default", Name: "web"},
		Machines: []string{machine}, Mode: x.subject.Mode,
	}}
	for i := range n {
		f.Backends = append(f.Backends, x.backend(k, i, 100))
	}
	if x.subject.Policy != nil {
		x.subject.Policy(f.Frontend)
	}
	return f
}

func key(transport model.Transport, vip string, port uint16) model.FrontendKey {
	return model.FrontendKey{VIP: netip.MustParseAddr(vip), Transport: transport, Port: port}
}

// self is the machine as others reach it.
var self = &model.Node{Name: machine, Tunnel4: netip.MustParseAddr("10.92.0.1"), Tunnel6: netip.MustParseAddr("fd92::1")}

func balancingOf(frontends ...*model.Balanced) model.Balancing {
	b := model.Balancing{Machine: machine, Frontends: map[model.FrontendKey]*model.Balanced{}, Nodes: map[string]*model.Node{machine: self}, Unready: map[model.FrontendKey]bool{}}
	for _, f := range frontends {
		b.Frontends[f.Frontend.FrontendKey] = f
	}
	return b
}

// changed is a copy with other backends.
func changed(f *model.Balanced, change func(backends []model.FrontendBackend) []model.FrontendBackend) *model.Balanced {
	return &model.Balanced{Frontend: f.Frontend, Backends: change(append([]model.FrontendBackend(nil), f.Backends...))}
}

// altered is a copy with another policy.
func altered(f *model.Balanced, change func(*model.Frontend)) *model.Balanced {
	g := *f.Frontend
	change(&g)
	return &model.Balanced{Frontend: &g, Backends: f.Backends}
}

func with(state model.BackendState, i int) func([]model.FrontendBackend) []model.FrontendBackend {
	return func(b []model.FrontendBackend) []model.FrontendBackend {
		b[i].State = state
		if state != model.BackendReady {
			b[i].Weight = 0
		}
		return b
	}
}

// set tells the data plane, and fails if it does not balance all of it.
func (x *site) set(frontends ...*model.Balanced) {
	x.t.Helper()
	x.plane.set(balancingOf(frontends...))
	seen := x.plane.observed()
	for _, f := range frontends {
		if o := seen[f.Frontend.FrontendKey]; o.State != model.FrontendBalanced {
			x.t.Fatalf("%s is %s: %s", f.Frontend.FrontendKey, o.State, o.Message)
		}
	}
}

// serve makes a namespace a backend: at every port it says its name and echoes lines over
// TCP, answers datagrams with its name, and speaks HTTP.
func (x *site) serve(b *space, addresses ...netip.Addr) {
	t := x.t
	var listeners []net.Listener
	var packets []net.PacketConn
	must(t, b.in(func() error {
		for _, port := range []int{backendPort, 80, 81} {
			l, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
			if err != nil {
				return err
			}
			listeners = append(listeners, l)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", webPort))
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
		// Where answers go past the load balancer, they must come from the VIP.
		ports := []string{fmt.Sprintf("[::]:%d", backendPort), "[::]:53"}
		if x.subject.Direct {
			ports = nil
			for _, v := range vips {
				ports = append(ports, net.JoinHostPort(v, "53"))
			}
		}
		for _, at := range ports {
			p, err := net.ListenPacket("udp", at)
			if err != nil {
				return err
			}
			packets = append(packets, p)
		}
		return nil
	}))
	for _, a := range addresses {
		for _, port := range []uint16{backendPort, 80, 81, 53, webPort} {
			x.own[netip.AddrPortFrom(a, port)] = b.name
		}
	}
	for i, l := range listeners {
		t.Cleanup(func() { _ = l.Close() })
		if i == len(listeners)-1 {
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, b.name) })}
			go func() { _ = server.Serve(l) }()
			t.Cleanup(func() { _ = server.Close() })
			continue
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go greet(c, b.name)
			}
		}()
	}
	for _, p := range packets {
		t.Cleanup(func() { _ = p.Close() })
		go func() {
			buffer := make([]byte, 2048)
			for {
				_, from, err := p.ReadFrom(buffer)
				if err != nil {
					return
				}
				n, _ := x.counts.LoadOrStore(b.name, new(counter))
				n.(*counter).add()
				_, _ = p.WriteTo([]byte(b.name), from)
			}
		}()
	}
}

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

// greet says the name, and again for every line that it gets.
func greet(c net.Conn, name string) {
	defer func() { _ = c.Close() }()
	buffer := make([]byte, 256)
	for {
		if _, err := io.WriteString(c, name+"\n"); err != nil {
			return
		}
		if _, err := c.Read(buffer); err != nil {
			return
		}
	}
}

// connect opens a flow and returns it with the backend's name.
func (x *site) connect(from netip.Addr, k model.FrontendKey) (net.Conn, string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	defer cancel()
	c, err := x.client.dial(ctx, from, "tcp", netip.AddrPortFrom(k.VIP, k.Port).String())
	if err != nil {
		x.t.Fatalf("connect to %s: %v", k, err)
	}
	x.t.Cleanup(func() { _ = c.Close() })
	name, err := hear(c)
	if err != nil {
		x.t.Fatalf("hear from %s: %v", k, err)
	}
	return c, name
}

// hear reads a name.
func hear(c net.Conn) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	buffer := make([]byte, 256)
	n, err := c.Read(buffer)
	return strings.TrimSpace(string(buffer[:n])), err
}

// ask sends a line over a flow and returns who answers.
func ask(c net.Conn) (string, error) {
	if _, err := io.WriteString(c, "who\n"); err != nil {
		return "", err
	}
	return hear(c)
}

// spread opens n flows one after the other, ends each, and counts them by backend.
func (x *site) spread(k model.FrontendKey, n int, from func(i int) netip.Addr) map[string]int {
	x.t.Helper()
	got := map[string]int{}
	must(x.t, x.client.in(func() error {
		for i := range n {
			d := net.Dialer{Timeout: patience}
			if from != nil {
				d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from(i), 0))
			}
			c, err := d.Dial("tcp", netip.AddrPortFrom(k.VIP, k.Port).String())
			if err != nil {
				return fmt.Errorf("flow %d: %w", i, err)
			}
			name, err := hear(c)
			// A reset at the end leaves no entry in TIME_WAIT.
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
			if err != nil {
				return fmt.Errorf("flow %d: %w", i, err)
			}
			got[name]++
		}
		return nil
	}))
	return got
}

// eventually polls until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

package southbound

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
)

const (
	// What a connection without a client certificate may send: a Join needs 2 KiB.
	strangerBytes = 256 << 10
	// Connections of one machine; a second appears while the first dies.
	maxPerMachine = 8
	// What a machine may send in a second, and at once, over all of its connections: its largest messages are
	// claims, 3 MiB with 20,000 routes. What is more is read later.
	machineBytes = 8 << 20
	machineBurst = 4 * maxRequestBytes
)

// Reasons to close a connection.
var (
	errManyHandshakes = errors.New("too many handshakes at once")
	errManyStrangers  = errors.New("too many connections without a client certificate")
	errManyOfMachine  = errors.New("too many connections of one machine")
	errStrangerBytes  = errors.New("too much data without a client certificate")
)

// admission is TLS with limits on what gets through: connections without a good certificate of a key that counts
// are few, short and small, and no machine has many.
type admission struct {
	credentials.TransportCredentials
	verifier     verifier
	strangers    *strangers
	strangerTime time.Duration
	greetings    *greetings
	shakes       *shakes
	callers      *callers
	known        func(name string, key KeyID) bool // in memory; nil: all are
	expected     func(netip.Addr) bool             // in memory: a machine has the address; nil: none has

	mu       sync.Mutex
	machines map[string]map[*guardedConn]KeyID // connections by name, with the key of each
	bytes    map[string]*rate.Limiter          // of each, over all of its connections
}

func newAdmission(inner credentials.TransportCredentials, v verifier, maxStrangers, maxMachines int, strangerTime time.Duration) *admission {
	return &admission{
		TransportCredentials: inner, verifier: v, strangers: newStrangers(maxStrangers), strangerTime: strangerTime,
		greetings: newGreetings(), shakes: newShakes(), callers: newCallers(maxMachines, v.now),
		machines: map[string]map[*guardedConn]KeyID{}, bytes: map[string]*rate.Limiter{},
	}
}

// Clone returns the same value: its counts are for the whole process.
func (d *admission) Clone() credentials.TransportCredentials { return d }

// ServerHandshake authenticates a connection and counts it in.
func (d *admission) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	network := networkOf(raw.RemoteAddr())
	hello, leave, err := d.begin(raw, network)
	if err != nil {
		_ = raw.Close()
		return nil, nil, err
	}
	defer leave()
	conn, auth, err := d.TransportCredentials.ServerHandshake(hello)
	if err != nil {
		return nil, nil, err
	}
	g := &guardedConn{Conn: conn, network: network}
	g.open, g.shut = context.WithCancel(context.Background())
	var until time.Time
	if info, ok := auth.(credentials.TLSInfo); ok {
		c, err := d.verifier.verify(info.State.PeerCertificates)
		if err == nil && d.counts(c.Machine, c.key) {
			g.machine, g.key, until = c.Machine, c.key, c.notAfter
		}
	}
	g.leave = sync.OnceFunc(func() { d.exit(g) })
	if err := d.enter(g); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	if g.stranger() {
		g.budget = strangerBytes
		g.expire(d.strangerTime)
	} else {
		g.expire(until.Sub(d.verifier.now())) // no longer than its certificate
		d.callers.first(g.machine, network)
	}
	return g, auth, nil
}

// begin waits for a client's first message and for the turn of its handshake, which leave ends.
func (d *admission) begin(raw net.Conn, network netip.Prefix) (hello *greeted, leave func(), err error) {
	it := d.greetings.enter(raw, network, d.isMachines(raw.RemoteAddr(), network))
	defer d.greetings.leave(it)
	if hello, err = greet(raw); err != nil {
		return nil, nil, err
	}
	leave, err = d.shakes.enter(it)
	return hello, leave, err
}

// isMachines says that a machine calls from there, or is expected to.
func (d *admission) isMachines(from net.Addr, network netip.Prefix) bool {
	if d.callers.has(network) {
		return true
	}
	at, err := netip.ParseAddrPort(from.String())
	return err == nil && d.expected != nil && d.expected(at.Addr().Unmap().WithZone(""))
}

func (d *admission) counts(machine string, key KeyID) bool {
	return d.known == nil || d.known(machine, key)
}

// enter counts a connection in. Those of its machine whose key counts no longer make room: a machine
// that renews its certificate has no more connections for it, and a key that was taken away keeps
// nobody out.
func (d *admission) enter(g *guardedConn) error {
	if g.stranger() {
		return d.strangers.enter(g)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for other, key := range d.machines[g.machine] {
		if key != g.key && !d.counts(g.machine, key) {
			delete(d.machines[g.machine], other)
			go func() { _ = other.Close() }() // which may take as long as its client likes
		}
	}
	if len(d.machines[g.machine]) >= maxPerMachine {
		return errManyOfMachine
	}
	if d.machines[g.machine] == nil {
		d.machines[g.machine] = map[*guardedConn]KeyID{}
	}
	d.machines[g.machine][g] = g.key
	if d.bytes[g.machine] == nil {
		d.bytes[g.machine] = rate.NewLimiter(machineBytes, machineBurst)
	}
	g.bytes = d.bytes[g.machine]
	return nil
}

func (d *admission) exit(g *guardedConn) {
	if g.stranger() {
		d.strangers.leave(g)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if delete(d.machines[g.machine], g); len(d.machines[g.machine]) == 0 {
		delete(d.machines, g.machine)
		// Who comes back at once goes on with what it had left.
		time.AfterFunc(machineBurst/machineBytes*time.Second, func() { d.forget(g.machine) })
	}
}

// forget lets go what is held of a machine that is not there.
func (d *admission) forget(machine string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.machines[machine]) == 0 {
		delete(d.bytes, machine)
	}
}

// guardedConn is a connection that was counted in. Only one goroutine reads it.
type guardedConn struct {
	net.Conn
	leave   func()
	network netip.Prefix
	machine string // empty: a stranger's
	key     KeyID
	budget  int           // bytes that a stranger may send
	bytes   *rate.Limiter // that a machine may send
	open    context.Context
	shut    context.CancelFunc

	mu    sync.Mutex
	timer *time.Timer
}

func (g *guardedConn) stranger() bool { return g.machine == "" }

// expire closes the connection after d.
func (g *guardedConn) expire(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = time.AfterFunc(d, func() { _ = g.Close() })
}

func (g *guardedConn) Read(b []byte) (int, error) {
	if !g.stranger() {
		n, err := g.Conn.Read(b[:min(len(b), machineBurst)])
		if n > 0 && g.bytes.WaitN(g.open, n) != nil {
			return n, net.ErrClosed
		}
		return n, err
	}
	if g.budget <= 0 {
		return 0, errStrangerBytes
	}
	n, err := g.Conn.Read(b[:min(len(b), g.budget)])
	g.budget -= n
	return n, err
}

func (g *guardedConn) Close() error {
	g.mu.Lock()
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Unlock()
	g.shut()
	g.leave()
	return g.Conn.Close()
}

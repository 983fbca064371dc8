package southbound

import (
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

const (
	// What a connection without a client certificate may send: a Join needs 2 KiB.
	strangerBytes = 256 << 10
	// Connections of one machine; a second appears while the first dies.
	maxPerMachine = 8
	// Handshakes at one time; each costs a signature.
	maxHandshakes = 256
)

// Reasons to close a connection.
var (
	errManyHandshakes = errors.New("too many handshakes at once")
	errManyStrangers  = errors.New("too many connections without a client certificate")
	errManyOfMachine  = errors.New("too many connections of one machine")
	errStrangerBytes  = errors.New("too much data without a client certificate")
)

// door is TLS with limits on what gets through: connections without a good certificate
// are few, short and small, and no machine has many.
type door struct {
	credentials.TransportCredentials
	verifier     verifier
	maxStrangers int
	strangerTime time.Duration
	shakes       chan struct{}

	mu        sync.Mutex
	strangers int
	machines  map[string]int
}

func newDoor(inner credentials.TransportCredentials, v verifier, maxStrangers int, strangerTime time.Duration) *door {
	return &door{
		TransportCredentials: inner, verifier: v, maxStrangers: maxStrangers, strangerTime: strangerTime,
		shakes: make(chan struct{}, maxHandshakes), machines: map[string]int{},
	}
}

// Clone gives the door itself: its counts are for the whole process.
func (d *door) Clone() credentials.TransportCredentials { return d }

// ServerHandshake authenticates a connection and counts it in.
func (d *door) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	select {
	case d.shakes <- struct{}{}:
		defer func() { <-d.shakes }()
	default:
		_ = raw.Close()
		return nil, nil, errManyHandshakes
	}
	conn, auth, err := d.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	machine := ""
	if info, ok := auth.(credentials.TLSInfo); ok {
		if c, err := d.verifier.verify(info.State.PeerCertificates); err == nil {
			machine = c.Machine
		}
	}
	if err := d.enter(machine); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	g := &guardedConn{Conn: conn, leave: sync.OnceFunc(func() { d.exit(machine) })}
	if machine == "" {
		g.stranger, g.budget = true, strangerBytes
		g.expire(d.strangerTime)
	}
	return g, auth, nil
}

func (d *door) enter(machine string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if machine == "" {
		if d.strangers >= d.maxStrangers {
			return errManyStrangers
		}
		d.strangers++
		return nil
	}
	if d.machines[machine] >= maxPerMachine {
		return errManyOfMachine
	}
	d.machines[machine]++
	return nil
}

func (d *door) exit(machine string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if machine == "" {
		d.strangers--
		return
	}
	if d.machines[machine]--; d.machines[machine] == 0 {
		delete(d.machines, machine)
	}
}

// guardedConn is a connection that was counted in. Only one goroutine reads it.
type guardedConn struct {
	net.Conn
	leave    func()
	stranger bool
	budget   int

	mu    sync.Mutex
	timer *time.Timer
}

// expire closes the connection after d.
func (g *guardedConn) expire(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = time.AfterFunc(d, func() { _ = g.Close() })
}

func (g *guardedConn) Read(b []byte) (int, error) {
	if !g.stranger {
		return g.Conn.Read(b)
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
	g.leave()
	return g.Conn.Close()
}

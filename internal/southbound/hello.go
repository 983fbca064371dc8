package southbound

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// helloTime is how long a client may take for its first message, for which nobody waits but itself.
	helloTime = 2 * time.Second
	// Handshakes of one address at one time (of one /64 with IPv6): behind a translator there are many machines.
	maxHandshakesOfOne = 32
	// shakeWait is how long a handshake waits for others to end.
	shakeWait = 2 * time.Second
	// maxHello is the largest record of TLS (RFC 8446, 5.1).
	maxHello = 1 << 14
)

var errNoHello = errors.New("no TLS")

// greeted is a connection whose first record was read already.
type greeted struct {
	net.Conn
	record []byte // what of it is left
}

// greet waits for the first record of a client. Who says nothing holds up nobody until then.
func greet(raw net.Conn) (*greeted, error) {
	timer := time.AfterFunc(helloTime, func() { _ = raw.Close() })
	defer timer.Stop()
	record := make([]byte, 5)
	if _, err := io.ReadFull(raw, record); err != nil {
		return nil, err
	}
	const handshake, major = 22, 3
	n := int(record[3])<<8 | int(record[4])
	if record[0] != handshake || record[1] != major || n == 0 || n > maxHello {
		return nil, errNoHello
	}
	record = append(record, make([]byte, n)...)
	if _, err := io.ReadFull(raw, record[5:]); err != nil {
		return nil, err
	}
	return &greeted{raw, record}, nil
}

func (g *greeted) Read(b []byte) (int, error) {
	if len(g.record) == 0 {
		return g.Conn.Read(b)
	}
	n := copy(b, g.record)
	if g.record = g.record[n:]; len(g.record) == 0 {
		g.record = nil
	}
	return n, nil
}

// queues let in a few handshakes of each network of clients, and of all.
type queues struct {
	all chan struct{}

	mu  sync.Mutex
	one map[netip.Prefix]*queue
}

type queue struct {
	slots chan struct{}
	users int
}

func newQueues() *queues {
	return &queues{all: make(chan struct{}, maxHandshakes), one: map[netip.Prefix]*queue{}}
}

// enter waits for a turn; leave ends it.
func (q *queues) enter(from net.Addr) (leave func(), err error) {
	network := networkOf(from)
	q.mu.Lock()
	one := q.one[network]
	if one == nil {
		one = &queue{slots: make(chan struct{}, maxHandshakesOfOne)}
		q.one[network] = one
	}
	one.users++
	q.mu.Unlock()
	forget := func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(q.one, network)
		}
	}
	timer := time.NewTimer(shakeWait)
	defer timer.Stop()
	select {
	case one.slots <- struct{}{}:
	case <-timer.C:
		forget()
		return nil, errManyHandshakes
	}
	select {
	case q.all <- struct{}{}:
	case <-timer.C:
		<-one.slots
		forget()
		return nil, errManyHandshakes
	}
	return func() {
		<-q.all
		<-one.slots
		forget()
	}, nil
}

// networkOf is whose a client's address is: with IPv6 a /64 is one client's.
func networkOf(from net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return netip.Prefix{}
	}
	bits := 32
	a := at.Addr().Unmap().WithZone("")
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

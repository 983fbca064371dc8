package southbound

import (
	"container/list"
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
	// maxHello is twice what a client's first message takes that has a key of a hybrid group (ML-KEM-768).
	maxHello = 4 << 10
	// Connections whose handshake has not begun, of networks that no machine calls from, and as many of
	// others; and of one network. When there are more, the oldest goes: a client's first message comes
	// within a round trip.
	maxGreetings      = 4096
	maxGreetingsOfOne = 512
)

var (
	errNoHello       = errors.New("no TLS")
	errManyGreetings = errors.New("too many connections before their handshake")
)

// greetings are the connections whose handshake has not begun.
type greetings struct {
	mu  sync.Mutex
	all map[bool]*list.List // the oldest first, of networks that machines call from and of others
	one map[netip.Prefix]*list.List
}

// greeting is one of them.
type greeting struct {
	conn    net.Conn
	network netip.Prefix
	known   bool          // a machine calls from there
	gone    chan struct{} // closed when it made room for another

	all, one *list.Element // nil: it is none of them any more
}

func newGreetings() *greetings {
	return &greetings{all: map[bool]*list.List{true: list.New(), false: list.New()}, one: map[netip.Prefix]*list.List{}}
}

// enter counts a connection in; leave ends that.
func (g *greetings) enter(conn net.Conn, network netip.Prefix, known bool) *greeting {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one := g.one[network]; one != nil && one.Len() >= maxGreetingsOfOne {
		g.end(one.Front().Value.(*greeting))
	}
	if g.all[known].Len() >= maxGreetings {
		g.end(g.all[known].Front().Value.(*greeting))
	}
	if g.one[network] == nil {
		g.one[network] = list.New()
	}
	it := &greeting{conn: conn, network: network, known: known, gone: make(chan struct{})}
	it.all, it.one = g.all[known].PushBack(it), g.one[network].PushBack(it)
	return it
}

func (g *greetings) leave(it *greeting) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(it)
}

// end closes the connection, too. The lock is held.
func (g *greetings) end(it *greeting) {
	g.remove(it)
	close(it.gone)
	_ = it.conn.Close()
}

func (g *greetings) remove(it *greeting) {
	if it.all == nil {
		return
	}
	g.all[it.known].Remove(it.all)
	one := g.one[it.network]
	if one.Remove(it.one); one.Len() == 0 {
		delete(g.one, it.network)
	}
	it.all, it.one = nil, nil
}

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

// networkOf is whose a client's address is: with IPv6 a /64 is one client's.
func networkOf(from net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return netip.Prefix{}
	}
	return networkFrom(at.Addr())
}

func networkFrom(a netip.Addr) netip.Prefix {
	bits := 32
	if a = a.Unmap().WithZone(""); a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

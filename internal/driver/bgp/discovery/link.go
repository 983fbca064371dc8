package discovery

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/muffle"
	"fairlead.dev/internal/rtdump"
)

const (
	// look is how often the interface is looked at.
	look = time.Second
	// advertiseEvery is the longest time between two advertisements of ours, and advertiseLeast the shortest (RFC 4861,
	// 6.2.1 and 10).
	advertiseEvery = 10 * time.Second
	advertiseLeast = 3 * time.Second
	// packetPause is after each packet: a flood costs a hundred packets a second, and the kernel drops the rest.
	packetPause = 10 * time.Millisecond
	// fullHopLimit is that of packets that crossed no router.
	fullHopLimit = 255
)

// packet is one of a router's.
type packet struct {
	kind uint8
	from netip.Addr
}

// link is an interface that is watched.
type link struct {
	name    string
	often   *muffle.Log // of what the link can make happen at will
	changed func()
	stop    chan struct{}
	news    chan struct{} // settle was told something else

	mu      sync.Mutex
	session Session
	routers []netip.Addr
	trouble error

	// Only run uses what follows.
	conn       *net.IPConn
	in         chan packet
	over       chan struct{} // closed with conn
	index      int
	mac        net.HardwareAddr
	local      netip.Addr // our address, once it can be used
	recheck    bool       // whether it still is
	table      *table
	advertised time.Time // when we did last
	due        time.Time // when we do next
}

func newLink(name string, log *slog.Logger, changed func()) *link {
	return &link{
		name: name, changed: changed, stop: make(chan struct{}), news: make(chan struct{}, 1),
		often: muffle.New(log.With("interface", name), time.Now), table: newTable(),
	}
}

func (l *link) settle(s Session) {
	s.Router = s.Router.WithZone("")
	l.mu.Lock()
	differs := l.session != s
	l.session = s
	l.mu.Unlock()
	if differs {
		select {
		case l.news <- struct{}{}:
		default:
		}
	}
}

func (l *link) run() {
	defer l.often.Close()
	defer l.close()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		l.step(time.Now())
		select {
		case <-l.stop:
			return
		case <-l.news:
		case <-tick.C:
			l.often.Flush()
		case p := <-l.in:
			l.receive(p)
		}
	}
}

// step looks at the interface and does what is due.
func (l *link) step(now time.Time) {
	trouble := l.open(now)
	if trouble == nil {
		l.mu.Lock()
		session := l.session
		l.mu.Unlock()
		l.table.settle(session)
		if l.table.step(now) {
			l.send("ff02::2", solicitation(l.mac))
		}
		if !now.Before(l.due) {
			l.send("ff02::1", advertisement(l.mac))
			l.advertised = now
			l.due = now.Add(advertiseEvery*3/4 + rand.N(advertiseEvery/4))
			l.recheck = true
		}
	}
	routers := l.table.routers()
	for i, a := range routers {
		routers[i] = a.WithZone(l.name)
	}
	l.mu.Lock()
	same := slices.Equal(l.routers, routers) && (l.trouble == nil) == (trouble == nil) && (trouble == nil || l.trouble.Error() == trouble.Error())
	l.routers, l.trouble = routers, trouble
	l.mu.Unlock()
	if !same {
		l.changed()
	}
}

// open makes the socket fit the interface as it is now, or says why nobody can be heard.
func (l *link) open(now time.Time) error {
	dev, err := netlink.LinkByName(l.name)
	if err != nil {
		l.close()
		l.table = newTable()
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return ErrNoInterface
		}
		return fmt.Errorf("look at the interface: %w", err)
	}
	attrs := dev.Attrs()
	if l.conn != nil && l.index != attrs.Index {
		l.close()
		l.table = newTable() // another interface of that name
	}
	if attrs.RawFlags&unix.IFF_UP == 0 || attrs.RawFlags&unix.IFF_RUNNING == 0 {
		l.close()
		return ErrDown
	}
	l.mac = bytes.Clone(attrs.HardwareAddr)
	if l.conn == nil {
		conn, err := listen(l.name)
		if err != nil {
			return err
		}
		l.conn, l.index, l.local = conn, attrs.Index, netip.Addr{}
		l.in, l.over = make(chan packet), make(chan struct{})
		go read(conn, l.in, l.over)
		l.table.ask()
	}
	if !l.local.IsValid() || l.recheck {
		l.recheck = false
		if l.local = linkLocal(dev); !l.local.IsValid() {
			return ErrNoAddress
		}
		if l.due.IsZero() {
			l.due = now
		}
	}
	return nil
}

func (l *link) close() {
	if l.conn != nil {
		_ = l.conn.Close() // ends the reader
		close(l.over)
	}
	l.conn, l.in, l.over, l.local, l.due = nil, nil, nil, netip.Addr{}, time.Time{}
}

// linkLocal is an address of the interface from which routers hear us; zero if there is none so far.
func linkLocal(dev netlink.Link) netip.Addr {
	list, err := rtdump.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(dev, netlink.FAMILY_V6) })
	if err != nil {
		return netip.Addr{}
	}
	for _, a := range list {
		addr, ok := netip.AddrFromSlice(a.IP)
		if ok && addr.IsLinkLocalUnicast() && a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0 {
			return addr
		}
	}
	return netip.Addr{}
}

// receive takes in what a router, or somebody who looks for one, sent.
func (l *link) receive(p packet) {
	soon := p.kind == typeSolicitation
	if p.kind == typeAdvertisement {
		if p.from == l.local {
			return
		}
		if l.table.hear(p.from, time.Now()) {
			l.often.Info("router "+p.from.String(), "a router was discovered", "address", p.from)
			soon = true
		}
		soon = soon || !l.table.session.Up // it may have forgotten us
	}
	if at := l.advertised.Add(advertiseLeast); soon && !l.due.IsZero() && at.Before(l.due) {
		l.due = at
	}
}

// send sends a message to a group. One that cannot be sent is one that was lost: others follow.
func (l *link) send(group string, message []byte) {
	to := &net.IPAddr{IP: net.ParseIP(group)} // the socket is bound to the interface
	_ = l.conn.SetWriteDeadline(time.Now().Add(look))
	if _, err := l.conn.WriteToIP(message, to); err != nil {
		l.often.Warn("send", "cannot look for routers on the interface; trying again", "error", err)
	}
}

// listen opens a socket for router discovery on one interface.
func listen(name string) (*net.IPConn, error) {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) { err = prepare(int(fd), name) }); e != nil {
			return e
		}
		return err
	}}
	conn, err := c.ListenPacket(context.Background(), "ip6:58", "::")
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("open a socket for router discovery (needs CAP_NET_RAW): %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("open a socket for router discovery: %w", err)
	}
	return conn.(*net.IPConn), nil
}

func prepare(fd int, name string) error {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	var filter unix.ICMPv6Filter // a bit that is set blocks
	for i := range filter.Data {
		filter.Data[i] = 1<<32 - 1
	}
	for _, kind := range []int{typeSolicitation, typeAdvertisement} {
		filter.Data[kind/32] &^= 1 << (kind % 32)
	}
	allRouters := unix.IPv6Mreq{Multiaddr: netip.MustParseAddr("ff02::2").As16(), Interface: uint32(dev.Attrs().Index)}
	return errors.Join(
		os.NewSyscallError("bind to the device", unix.BindToDevice(fd, name)),
		os.NewSyscallError("filter ICMPv6", unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER, &filter)),
		os.NewSyscallError("ask for the hop limit", unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1)),
		os.NewSyscallError("set the hop limit", unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, fullHopLimit)),
		os.NewSyscallError("disable multicast loopback", unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0)),
		os.NewSyscallError("set the interface", unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, dev.Attrs().Index)),
		os.NewSyscallError("join all routers", unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &allRouters)))
}

// read hands on valid messages until the socket is closed.
func read(conn *net.IPConn, in chan<- packet, over <-chan struct{}) {
	b, oob := make([]byte, 2048), make([]byte, 256)
	for {
		n, oobn, flags, from, err := conn.ReadMsgIP(b, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		time.Sleep(packetPause)
		if err != nil || flags&unix.MSG_TRUNC != 0 || hopLimit(oob[:oobn]) != fullHopLimit {
			continue
		}
		kind, err := check(b[:n])
		source, ok := netip.AddrFromSlice(from.IP)
		if err != nil || !ok || kind == typeAdvertisement && !source.IsLinkLocalUnicast() {
			continue
		}
		select {
		case in <- packet{kind: kind, from: source}:
		case <-over:
			return
		}
	}
}

// hopLimit is that with which a packet came, 0 if the kernel did not say.
func hopLimit(oob []byte) int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT && len(m.Data) >= 4 {
			return int(binary.NativeEndian.Uint32(m.Data))
		}
	}
	return 0
}

package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bfd"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/muffle"
)

const (
	bfdPort         = 3784 // RFC 5881
	bfdMultihopPort = 4784 // RFC 5883
	// Source ports (RFC 5881, 4).
	bfdFirstSource = 49152
	bfdSources     = 65536 - bfdFirstSource
	// bfdRetry is the pause after packets could not be received.
	bfdRetry = 100 * time.Millisecond
)

// receivers are the sockets on which BFD packets come in, and whom they are for.
type receivers struct {
	log     *slog.Logger
	memory  *bfdMemory
	mu      sync.Mutex
	all     map[bfdLocation]*receiver
	orphans map[*bfdSession]struct{} // resumed, and of no peer so far
}

// bfdLocation tells sockets apart: VRFs may have the same addresses, and an interface that is made anew has another
// number. Sessions over the one before end one by one.
type bfdLocation struct {
	at    netip.AddrPort
	bound string // as of a bfdKey
	index int
}

type receiver struct {
	conn     *net.UDPConn
	link     string // of our address, if it is link-local: nothing comes in from another one
	multihop bool
	sessions map[netip.Addr]*bfdSession // by the peer's address; guarded by receivers.mu
}

// newReceivers remembers sessions in a file; "" is none.
func newReceivers(file string, log *slog.Logger) *receivers {
	return &receivers{
		log: log, all: map[bfdLocation]*receiver{}, orphans: map[*bfdSession]struct{}{},
		memory: &bfdMemory{path: file, log: log, sessions: map[bfdEnds]bfdRecord{}},
	}
}

func (k bfdKey) port() uint16 {
	if k.multihop {
		return bfdMultihopPort
	}
	return bfdPort
}

func (k bfdKey) location() bfdLocation {
	return bfdLocation{at: netip.AddrPortFrom(k.local, k.port()), bound: k.bound(), index: k.index}
}

// session starts a session, or returns the one that was resumed. One that cannot be started is returned all the same,
// and says so.
func (r *receivers) session(key bfdKey, log *slog.Logger) *bfdSession {
	if b := r.adopt(key); b != nil {
		return b
	}
	b := newBFD(key, r, log)
	if err := r.open(b); err != nil {
		log.Warn("BFD does not watch the peer", "error", err)
		b.openErr = r.advise(key, err)
		close(b.done)
		return b
	}
	go b.run()
	return b
}

func (r *receivers) open(b *bfdSession) (err error) {
	location := b.key.location()
	r.mu.Lock()
	defer r.mu.Unlock()
	in := r.all[location]
	if in != nil && in.sessions[b.key.remote] != nil {
		return fmt.Errorf("another peer with the address %s is watched already", b.key.remote)
	}
	if b.conn, err = bfdSender(b.key, b.port); err != nil {
		return err
	}
	b.port = b.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	if in == nil {
		if in, err = listenBFD(b.key); err != nil {
			_ = b.conn.Close()
			return err
		}
		r.all[location] = in
		go r.receive(in)
	}
	in.sessions[b.key.remote], b.on = b, in
	return nil
}

// advise adds what to do where a socket could not be had.
func (r *receivers) advise(key bfdKey, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.all { // a socket of no device has the address on all of them
		if p.at == key.location().at && (p.bound == "") != (key.bound() == "") {
			return fmt.Errorf("%w; another peer is watched from this address, and one of the two has no VRF: have one of them use another address, or turn BFD off for it", err)
		}
	}
	return fmt.Errorf("%w; stop the program that has the port, or turn BFD off for this peer", err)
}

// forget takes a session out and closes its sockets.
func (r *receivers) forget(b *bfdSession) {
	_ = b.conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(b.on.sessions, b.key.remote)
	if len(b.on.sessions) > 0 {
		return
	}
	_ = b.on.conn.Close()
	delete(r.all, b.key.location())
}

// bfdSender opens the socket from which a session sends: a source port of its own, that given if it is free and not
// 0, and TTL 255.
func bfdSender(key bfdKey, port uint16) (*net.UDPConn, error) {
	d := net.Dialer{Control: control(func(fd int) error {
		if err := bind(fd, key.device); err != nil {
			return err
		}
		level, option := unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
		class := unix.IPV6_TCLASS
		if key.local.Is4() {
			level, option, class = unix.IPPROTO_IP, unix.IP_TTL, unix.IP_TOS
		}
		if err := unix.SetsockoptInt(fd, level, class, internetControl); err != nil {
			return os.NewSyscallError("set the traffic class", err)
		}
		return os.NewSyscallError("set the TTL", unix.SetsockoptInt(fd, level, option, 255))
	})}
	remote, err := numbered(key.remote)
	local, wrong := numbered(key.local)
	if err = errors.Join(err, wrong); err != nil {
		return nil, fmt.Errorf("open a socket to send BFD: %w", err)
	}
	to := netip.AddrPortFrom(remote, key.port())
	for range 16 { // a port may be taken
		if port == 0 {
			port = uint16(bfdFirstSource + rand.IntN(bfdSources))
		}
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, port))
		var conn net.Conn
		if conn, err = d.DialContext(context.Background(), "udp", to.String()); err == nil {
			return conn.(*net.UDPConn), nil
		}
		port = 0
	}
	return nil, fmt.Errorf("open a socket to send BFD: %w", err)
}

func listenBFD(key bfdKey) (*receiver, error) {
	at, err := numbered(key.local)
	if err != nil {
		return nil, fmt.Errorf("receive BFD: %w", err)
	}
	l := net.ListenConfig{Control: control(func(fd int) error {
		if err := bind(fd, key.device); err != nil {
			return err
		}
		if at.Is4() {
			return os.NewSyscallError("ask for the TTL", unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVTTL, 1))
		}
		return os.NewSyscallError("ask for the hop limit", unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1))
	})}
	conn, err := l.ListenPacket(context.Background(), "udp", net.JoinHostPort(at.String(), strconv.Itoa(int(key.port()))))
	if err != nil {
		return nil, fmt.Errorf("receive BFD: %w", err)
	}
	return &receiver{
		conn: conn.(*net.UDPConn), link: key.local.Zone(), multihop: key.multihop, sessions: map[netip.Addr]*bfdSession{},
	}, nil
}

func control(set func(fd int) error) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) { err = set(int(fd)) }); e != nil {
			return e
		}
		return err
	}
}

// receive hands packets to their sessions until the socket is closed.
func (r *receivers) receive(in *receiver) {
	packet, oob := make([]byte, 128), make([]byte, 128)
	often := muffle.New(r.log, time.Now)
	defer often.Close()
	for {
		n, oobn, _, from, err := in.conn.ReadMsgUDPAddrPort(packet, oob)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// A kernel that is short of memory for a moment, say. Nobody opens the socket anew.
			often.Warn("receive", "cannot receive BFD; trying again", "address", in.conn.LocalAddr(), "error", err)
			time.Sleep(bfdRetry)
			continue
		}
		// A packet that crossed a router has a smaller TTL, and none does on a link (RFC 5881, 5).
		if !in.multihop && hopLimit(oob[:oobn]) != 255 {
			continue
		}
		address := from.Addr().Unmap()
		if in.link != "" && address.Zone() != "" { // of a link in a VRF, Linux names the VRF here
			address = address.WithZone(in.link)
		}
		r.mu.Lock()
		b := in.sessions[address]
		r.mu.Unlock()
		if b == nil {
			continue
		}
		h, ok := decodeBFD(packet[:n])
		if !ok {
			continue
		}
		select {
		case b.in <- h:
		default: // it is behind; another packet will come
		}
	}
}

// decodeBFD reads a packet, and says whether a session may take it in (RFC 5880, 6.8.6). We use no authentication.
func decodeBFD(raw []byte) (h bfd.BFDHeader, ok bool) {
	// As with BGP: a peer's bytes must not end the agent.
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	const authenticated, multipoint = 0x04, 0x01
	if len(raw) < 24 || raw[1]&(authenticated|multipoint) != 0 || h.UnmarshalBinary(raw) != nil {
		return h, false
	}
	return h, h.Version == 1 && h.DetectTimeMultiplier != 0 && h.MyDiscriminator != 0
}

// hopLimit is the TTL or hop limit with which a packet came, 0 if the kernel did not say.
func hopLimit(oob []byte) int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		ttl := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL ||
			m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT
		if ttl && len(m.Data) > 0 {
			return int(m.Data[0]) // an int of at most 255
		}
	}
	return 0
}

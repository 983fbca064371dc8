package bgp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
)

const (
	maxPassword = 80 // TCP_MD5SIG_MAXKEYLEN of Linux
	// dialTimeout leaves room for three SYNs: Linux repeats them after 1 and 3 seconds.
	dialTimeout = 5 * time.Second
	// internetControl is the traffic class of routing protocols (CS6, RFC 4594).
	internetControl = 0xc0
)

// dial connects to the peer.
func dial(ctx context.Context, c model.Peer) (*net.TCPConn, error) {
	network := "tcp6"
	if c.Address.Is4() {
		network = "tcp4"
	}
	d := net.Dialer{
		Timeout:   dialTimeout,
		KeepAlive: -1, // BGP has its own
		Control: func(_, _ string, raw syscall.RawConn) error {
			var err error
			if e := raw.Control(func(fd uintptr) { err = prepare(int(fd), c) }); e != nil {
				return e
			}
			return err
		},
	}
	if c.LocalAddress.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.LocalAddress, 0))
	}
	conn, err := d.DialContext(ctx, network, addrPort(c).String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// prepare sets the options of a socket that has to have them before it connects.
func prepare(fd int, c model.Peer) error {
	level, ttlOption, classOption := unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_TCLASS
	if c.Address.Is4() {
		level, ttlOption, classOption = unix.IPPROTO_IP, unix.IP_TTL, unix.IP_TOS
	}
	if ttl := ttlOf(c); ttl != 0 {
		if err := unix.SetsockoptInt(fd, level, ttlOption, ttl); err != nil {
			return os.NewSyscallError("set the TTL", err)
		}
	}
	if err := unix.SetsockoptInt(fd, level, classOption, internetControl); err != nil {
		return os.NewSyscallError("set the traffic class", err)
	}
	if c.Password == "" {
		return nil
	}
	sig := unix.TCPMD5Sig{Keylen: uint16(len(c.Password))}
	copy(sig.Key[:], c.Password)
	if c.Address.Is4() {
		sig.Addr.Family = unix.AF_INET
		a := c.Address.As4()
		copy(sig.Addr.Data[2:], a[:]) // sockaddr_in: port, address
	} else {
		sig.Addr.Family = unix.AF_INET6
		a := c.Address.As16()
		copy(sig.Addr.Data[6:], a[:]) // sockaddr_in6: port, flow label, address
	}
	if err := unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &sig); err != nil {
		return os.NewSyscallError("set the TCP MD5 password", err)
	}
	return nil
}

// ttlOf is the TTL of packets to the peer; 0 is the kernel's default. An external peer is on the link unless the
// configuration says otherwise.
func ttlOf(c model.Peer) int {
	switch {
	case c.TTL > 0:
		return int(c.TTL)
	case c.LocalASN != c.PeerASN:
		return 1
	}
	return 0
}

// multihop reports whether the peer may be more than a link away, which decides how BFD speaks to it.
func multihop(c model.Peer) bool { return c.TTL > 1 || c.LocalASN == c.PeerASN }

// localAddr is an address of this machine.
type localAddr struct {
	addr   netip.Addr // with a zone if it is link-local
	link   string     // name of the interface
	stable bool       // not about to vanish, and not still being checked
}

// machineAddrs lists the addresses of this machine. Loopback addresses are among them.
func machineAddrs() ([]localAddr, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	unstable, err := unstableAddrs()
	if err != nil {
		return nil, err
	}
	var out []localAddr
	for _, l := range links {
		if l.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := l.Addrs()
		if err != nil {
			if errors.Is(err, syscall.ENODEV) {
				continue // it went away meanwhile
			}
			return nil, fmt.Errorf("list addresses of %s: %w", l.Name, err)
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			addr := p.Addr()
			if addr.IsLinkLocalUnicast() && addr.Is6() {
				addr = addr.WithZone(l.Name)
			}
			out = append(out, localAddr{addr: addr, link: l.Name, stable: !unstable[p.Addr()]})
		}
	}
	return out, nil
}

// hasFamily reports whether the machine has an address of the family of a that could reach it.
func hasFamily(a netip.Addr, addrs []localAddr) bool {
	for _, l := range addrs {
		if l.addr.Is4() == a.Is4() && l.addr.IsLoopback() == a.IsLoopback() && (!l.addr.IsLinkLocalUnicast() || a.IsLinkLocalUnicast()) {
			return true
		}
	}
	return false
}

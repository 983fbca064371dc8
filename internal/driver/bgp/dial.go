package bgp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bgp/discovery"
	"fairlead.dev/internal/model"
)

const (
	maxPassword = 80 // TCP_MD5SIG_MAXKEYLEN of Linux
	// dialTimeout leaves room for three SYNs: Linux repeats them after 1 and 3 seconds.
	dialTimeout = 5 * time.Second
	// internetControl is the traffic class of routing protocols (CS6, RFC 4594).
	internetControl = 0xc0
)

// dial connects to the peer from an address; zero leaves the choice to the kernel.
func dial(ctx context.Context, c model.Peer, source netip.Addr) (*net.TCPConn, error) {
	network := "tcp6"
	if c.Address.Is4() {
		network = "tcp4"
	}
	d := net.Dialer{
		Timeout:   dialTimeout,
		KeepAlive: -1, // BGP has its own
		Control: control(func(fd int) error {
			if err := bind(fd, c.Device); err != nil {
				return err
			}
			if err := prepare(fd, c); err != nil || c.Password == "" {
				return err
			}
			return sign(fd, c.Address, string(c.Password))
		}),
	}
	address, err := numbered(c.Address)
	if err == nil {
		source, err = numbered(source)
	}
	if err != nil {
		return nil, err
	}
	if source.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	conn, err := d.DialContext(ctx, network, netip.AddrPortFrom(address, addrPort(c).Port()).String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// numbered gives an address the number of its interface in place of the name. The net package believes for a minute
// that an interface of that name has the number which it had before.
func numbered(a netip.Addr) (netip.Addr, error) {
	if a.Zone() == "" {
		return a, nil
	}
	index, err := linkIndex(a.Zone())
	if n, _ := strconv.ParseUint(a.Zone(), 10, 31); n > 0 && errors.Is(err, discovery.ErrNoInterface) {
		return a, nil // the zone is the number
	}
	if err != nil {
		return a, err
	}
	return a.WithZone(strconv.Itoa(index)), nil
}

// linkIndex is the number of an interface, of which one that is made anew has another. discovery.ErrNoInterface: the
// machine lacks it.
func linkIndex(name string) (int, error) {
	dev, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return 0, discovery.ErrNoInterface
	}
	if err != nil {
		return 0, fmt.Errorf("look at interface %s: %w", name, err)
	}
	return dev.Attrs().Index, nil
}

// prepare sets what packets to and from the peer look like. For a socket that connects it must be set before.
func prepare(fd int, c model.Peer) error {
	level, ttlOption, leastOption, classOption := unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MINHOPCOUNT, unix.IPV6_TCLASS
	if c.Address.Is4() {
		level, ttlOption, leastOption, classOption = unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MINTTL, unix.IP_TOS
	}
	if ttl := ttlOf(c); ttl != 0 {
		if err := unix.SetsockoptInt(fd, level, ttlOption, ttl); err != nil {
			return os.NewSyscallError("set the TTL", err)
		}
	}
	if c.TTLSecurity > 0 {
		if err := unix.SetsockoptInt(fd, level, leastOption, fullTTL+1-int(c.TTLSecurity)); err != nil {
			return os.NewSyscallError("set the least TTL", err)
		}
	}
	return os.NewSyscallError("set the traffic class", unix.SetsockoptInt(fd, level, classOption, internetControl))
}

// bind binds a socket to a device; "" is none.
func bind(fd int, device string) error {
	if device == "" {
		return nil
	}
	return os.NewSyscallError("bind to the device "+device, unix.BindToDevice(fd, device))
}

// sign has segments from and to an address carry signatures (RFC 2385).
func sign(fd int, with netip.Addr, password string) error {
	sig := unix.TCPMD5Sig{Keylen: uint16(len(password))}
	copy(sig.Key[:], password)
	if with.Is4() {
		sig.Addr.Family = unix.AF_INET
		a := with.As4()
		copy(sig.Addr.Data[2:], a[:]) // sockaddr_in: port, address
	} else {
		sig.Addr.Family = unix.AF_INET6
		a := with.As16()
		copy(sig.Addr.Data[6:], a[:]) // sockaddr_in6: port, flow label, address
	}
	return os.NewSyscallError("set the TCP MD5 password", unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &sig))
}

// fullTTL is with what packets leave that must not have crossed a router (RFC 5082).
const fullTTL = 255

// ttlOf is the TTL of packets to the peer; 0 is the kernel's default. An external peer is on the link unless the
// configuration says otherwise.
func ttlOf(c model.Peer) int {
	switch {
	case c.TTLSecurity > 0:
		return fullTTL
	case c.TTL > 0:
		return int(c.TTL)
	case c.LocalASN != c.PeerASN:
		return 1
	}
	return 0
}

// multihop reports whether BFD packets may cross routers: as is said, else whether the peer may be more than a link
// away.
func multihop(c model.Peer) bool {
	if c.BFD != nil && c.BFD.Mode != "" {
		return c.BFD.Mode == model.BFDMultiHop
	}
	return c.TTL > 1 || c.TTLSecurity > 1 || c.LocalASN == c.PeerASN
}

// source is the address from which to connect; zero leaves the choice to the kernel.
func source(c model.Peer, addrs []localAddr, prefixes []Advertisement) (netip.Addr, *failure) {
	if !c.Source.IsValid() || c.Source.IsSingleIP() {
		return c.Source.Addr(), nil
	}
	a := within(c.Source, addrs, prefixes)
	if !a.IsValid() {
		return a, fail(c, model.SessionNoLocalAddress, "this machine has no address in %s, the peer's sourceAddress: add one to an interface, or correct the network", c.Source)
	}
	return a, nil
}

// within returns the machine's lowest address in a network that is no VIP; zero is none.
func within(network netip.Prefix, addrs []localAddr, prefixes []Advertisement) netip.Addr {
	var best netip.Addr
	for _, a := range addrs {
		plain := a.addr.WithZone("")
		if a.stable && network.Contains(plain) && !covered(plain, prefixes) && (!best.IsValid() || a.addr.Less(best)) {
			best = a.addr
		}
	}
	return best
}

// localAddr is an address of this machine.
type localAddr struct {
	addr   netip.Addr // with a zone if it is link-local
	link   string     // name of the interface
	stable bool       // a route may point at it: it is not about to vanish, and not still being checked
}

// localAddrs are the addresses of interfaces that are up. Those of loopback interfaces are among them: sessions may
// run from one. With an error they are those known last, and nothing follows from what they lack.
func (s *Speaker) localAddrs() ([]localAddr, error) {
	list, err := s.own()
	var out []localAddr
	for _, a := range list {
		if !a.Up {
			continue
		}
		addr := a.Addr
		if addr.Is6() && addr.IsLinkLocalUnicast() {
			addr = addr.WithZone(a.Interface)
		}
		out = append(out, localAddr{addr: addr, link: a.Interface, stable: !a.Unstable})
	}
	return out, err
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

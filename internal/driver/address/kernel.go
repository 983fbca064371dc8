package address

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/rtdump"
)

// mark is the metric of our addresses (IFA_RT_PRIORITY, since Linux 4.18): "fl" and
// two bytes that no default has. It means nothing to the kernel here, because a host
// address on loopback has no route of its own for a prefix. IFA_PROTO would say the
// same, but needs Linux 5.18.
const mark uint32 = 0x666c_0a11

// entry is an address of the machine.
type entry struct {
	addr netip.Addr
	link int
	bits int
	mark uint32
}

// loopback returns the index of lo.
func loopback() (int, error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return 0, fmt.Errorf("find lo: %w", err)
	}
	if lo.Attrs().Flags&net.FlagUp == 0 {
		return 0, errors.New("lo is down; bring it up (ip link set lo up)")
	}
	return lo.Attrs().Index, nil
}

// proxyLink returns the index of the device on which kube-proxy in IPVS mode holds addresses, 0
// where there is none. To hold an address there and on lo does no harm, whichever was first and
// whichever goes first.
func proxyLink() int {
	link, err := netlink.LinkByName(rtdump.ProxyInterface)
	if err != nil {
		return 0
	}
	return link.Attrs().Index
}

// list returns all addresses of the machine.
func list() ([]entry, error) {
	messages, err := rtdump.Whole(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
		req.AddData(nl.NewIfAddrmsg(unix.AF_UNSPEC))
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	found := make([]entry, 0, len(messages))
	for _, m := range messages {
		e, err := parse(m)
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		found = append(found, e)
	}
	return found, nil
}

func parse(m []byte) (entry, error) {
	head := nl.DeserializeIfAddrmsg(m)
	attrs, err := nl.ParseRouteAttr(m[head.Len():])
	if err != nil {
		return entry{}, fmt.Errorf("parse address: %w", err)
	}
	e := entry{link: int(head.Index), bits: int(head.Prefixlen)}
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFA_LOCAL: // with a peer, IFA_ADDRESS is the other end
			e.addr, _ = netip.AddrFromSlice(a.Value)
		case unix.IFA_ADDRESS:
			if !e.addr.IsValid() {
				e.addr, _ = netip.AddrFromSlice(a.Value)
			}
		case unix.IFA_RT_PRIORITY:
			if len(a.Value) == 4 {
				e.mark = binary.NativeEndian.Uint32(a.Value)
			}
		}
	}
	return e, nil
}

// request is a message about a on lo.
func request(kind, flags, lo int, a netip.Addr) *nl.NetlinkRequest {
	family := unix.AF_INET
	if a.Is6() {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	head := nl.NewIfAddrmsg(family)
	head.Index = uint32(lo)
	head.Prefixlen = uint8(a.BitLen())
	if a.Is4() {
		head.Scope = unix.RT_SCOPE_HOST // see arp_ignore; nor is it ever chosen as a source
	}
	req.AddData(head)
	req.AddData(nl.NewRtAttr(unix.IFA_LOCAL, a.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, a.AsSlice()))
	return req
}

func add(lo int, a netip.Addr) error {
	req := request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, lo, a)
	req.AddData(nl.NewRtAttr(unix.IFA_RT_PRIORITY, nl.Uint32Attr(mark)))
	req.AddData(nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE)))
	if a.Is6() {
		// Deprecated: it takes connections, and is not chosen as a source (RFC 6724, rule 3).
		life := make([]byte, 0, 16)
		for _, v := range []uint32{0, 1<<32 - 1, 0, 0} { // preferred, valid for ever; two times that it ignores
			life = binary.NativeEndian.AppendUint32(life, v)
		}
		req.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, life))
	}
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func remove(lo int, a netip.Addr) error {
	_, err := request(unix.RTM_DELADDR, 0, lo, a).Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil // somebody was first
	}
	return err
}

// local reports whether the machine takes packets to a already, or broadcasts there.
func local(a netip.Addr) bool {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil {
		return false // no route: certainly not local
	}
	for _, r := range routes {
		switch r.Type {
		case unix.RTN_LOCAL, unix.RTN_BROADCAST, unix.RTN_ANYCAST:
			return true
		}
	}
	return false
}

// ipv6Off returns why the machine cannot hold IPv6 addresses, or nil.
func ipv6Off() error {
	const setting = "/proc/sys/net/ipv6/conf/lo/disable_ipv6"
	v, err := os.ReadFile(setting)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: the kernel runs without IPv6 (module missing, or ipv6.disable=1)", errors.ErrUnsupported)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", setting, err)
	}
	if strings.TrimSpace(string(v)) != "0" {
		return fmt.Errorf("%w: IPv6 is disabled on lo; set net.ipv6.conf.lo.disable_ipv6=0", errors.ErrUnsupported)
	}
	return nil
}

package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// device is an interface that programs can be attached to.
type device struct {
	name  string
	index int
	mtu   int
	kind  string // as netlink says: veth, device and so on
}

// devices returns those with the names, or those that hold one of the addresses, sorted by
// name, and what is wrong with others that were meant.
func devices(names []string, addresses []netip.Addr) ([]device, []error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, []error{fmt.Errorf("list interfaces: %w", err)}
	}
	holds := map[int]bool{}
	if len(names) == 0 {
		list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
		if err != nil {
			return nil, []error{fmt.Errorf("list addresses: %w", err)}
		}
		for _, a := range list {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && slices.Contains(addresses, ip.Unmap()) {
				holds[a.LinkIndex] = true
			}
		}
	}
	var found []device
	var errs []error
	missing := slices.Clone(names)
	for _, l := range links {
		a := l.Attrs()
		missing = slices.DeleteFunc(missing, func(n string) bool { return n == a.Name })
		switch {
		case !holds[a.Index] && !slices.Contains(names, a.Name):
		case a.EncapType != "ether":
			if len(names) > 0 || a.EncapType != "loopback" {
				errs = append(errs, fmt.Errorf("interface %s: %w: it carries no Ethernet frames (%s)", a.Name, errors.ErrUnsupported, a.EncapType))
			}
		default:
			found = append(found, device{name: a.Name, index: a.Index, mtu: a.MTU, kind: l.Type()})
		}
	}
	for _, name := range missing {
		errs = append(errs, fmt.Errorf("interface %s: there is none of that name; --lb-interfaces names it", name))
	}
	slices.SortFunc(found, func(x, y device) int {
		if x.name < y.name {
			return -1
		}
		return 1
	})
	return found, errs
}

// Commands of SIOCETHTOOL (linux/ethtool.h) that the unix package does not define.
const (
	mergeSegments    = 0x2b // ETHTOOL_GGRO
	setMergeSegments = 0x2c // ETHTOOL_SGRO
)

// setGRO sets whether an interface merges segments that arrive, and returns what was set.
func setGRO(name string, on bool) (was bool, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("open a socket to ask about interfaces: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	before, err := ethtool(fd, name, mergeSegments, 0)
	if err != nil {
		return false, fmt.Errorf("ask whether %s merges segments: %w", name, err)
	}
	was = before != 0
	if was == on {
		return was, nil
	}
	var value uint32
	if on {
		value = 1
	}
	if _, err := ethtool(fd, name, setMergeSegments, value); err != nil {
		return was, fmt.Errorf("set whether %s merges segments: %w", name, err)
	}
	return was, nil
}

func ethtool(fd int, name string, command, value uint32) (uint32, error) {
	o := struct{ command, value uint32 }{command, value} // struct ethtool_value
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the rest of struct ifreq
	}{data: unsafe.Pointer(&o)}
	copy(request.name[:len(request.name)-1], name)
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&o)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return 0, errno
	}
	return o.value, nil
}

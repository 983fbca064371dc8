package l2

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/rtdump"
)

// link is an interface as the kernel has it.
type link struct {
	name     string
	index    int
	mac      hardware
	down     error // why it carries nothing
	noIPv6   error // why it has no IPv6
	prefixes []netip.Prefix
}

// survey is what the kernel says about the machine's interfaces.
type survey struct {
	links    []link
	default4 int // index of the interface of the default route; 0: there is none
	default6 int
}

// look asks the kernel.
func look() (survey, error) { return rtdump.Whole(lookOnce) }

func lookOnce() (survey, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return survey{}, fmt.Errorf("list interfaces: %w", err)
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return survey{}, fmt.Errorf("list addresses: %w", err)
	}
	prefixes := map[int][]netip.Prefix{}
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		if bits, _ := a.Mask.Size(); ok {
			prefixes[a.LinkIndex] = append(prefixes[a.LinkIndex], netip.PrefixFrom(ip.Unmap(), bits))
		}
	}
	var s survey
	for _, l := range links {
		at := l.Attrs()
		if len(at.HardwareAddr) != 6 || at.EncapType != "ether" {
			continue // ARP is for Ethernet
		}
		n := link{name: at.Name, index: at.Index, mac: hardware(at.HardwareAddr), prefixes: prefixes[at.Index]}
		switch {
		case at.RawFlags&unix.IFF_UP == 0:
			n.down = fmt.Errorf("interface %s is down", at.Name)
		case at.RawFlags&unix.IFF_RUNNING == 0:
			n.down = fmt.Errorf("interface %s has no carrier", at.Name)
		}
		v, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + at.Name + "/disable_ipv6")
		if err != nil || strings.TrimSpace(string(v)) != "0" {
			n.noIPv6 = fmt.Errorf("IPv6 is disabled on interface %s", at.Name)
		}
		s.links = append(s.links, n)
	}
	for family, index := range map[int]*int{netlink.FAMILY_V4: &s.default4, netlink.FAMILY_V6: &s.default6} {
		routes, err := netlink.RouteList(nil, family)
		if err != nil {
			return survey{}, fmt.Errorf("list routes: %w", err)
		}
		best := -1
		for _, r := range routes {
			if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
				continue
			}
			via := r.LinkIndex
			if len(r.MultiPath) > 0 {
				via = r.MultiPath[0].LinkIndex
			}
			if best < 0 || r.Priority < best {
				best, *index = r.Priority, via
			}
		}
	}
	return s, nil
}

// usableOn returns the interfaces for a candidacy that are usable, and for the others, or
// for want of any, why not.
func (s survey) usableOn(c Candidacy) (usable []link, why []error) {
	var wanted []link
	if len(c.Interfaces) > 0 {
		for _, name := range c.Interfaces {
			found := false
			for _, l := range s.links {
				if l.name == name {
					wanted, found = append(wanted, l), true
				}
			}
			if !found {
				why = append(why, fmt.Errorf("this machine has no Ethernet interface %s", name))
			}
		}
	} else if wanted = s.chosen(c.VIP); len(wanted) == 0 {
		why = append(why, errors.New("no interface has an address in the VIP's network, and there is no default route; name interfaces in the pool"))
	}
	for _, l := range wanted {
		switch {
		case l.down != nil:
			why = append(why, l.down)
		case c.VIP.Is6() && l.noIPv6 != nil:
			why = append(why, l.noIPv6)
		default:
			usable = append(usable, l)
		}
	}
	return usable, why
}

// chosen are the interfaces for a VIP whose candidacy names none.
func (s survey) chosen(vip netip.Addr) []link {
	var near, route []link
	index := s.default4
	if vip.Is6() {
		index = s.default6
	}
	for _, l := range s.links {
		for _, p := range l.prefixes {
			if p.Contains(vip) {
				near = append(near, l)
				break
			}
		}
		if l.index == index {
			route = append(route, l)
		}
	}
	if len(near) > 0 {
		return near
	}
	return route
}

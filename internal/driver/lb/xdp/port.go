package xdp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/rtdump"
)

// port is an interface with what decides whether programs belong to it.
type port struct {
	device
	encap    string // of its frames, "ether"
	loopback bool
	master   int // of which it is a port
	parent   int // on top of which it is; 0 where that is in another namespace
	prefixes []netip.Prefix
	way      bool // the machine's default route leaves by it
}

// ports lists the machine's interfaces, sorted by name.
func ports() ([]port, error) {
	links, err := rtdump.Whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	addresses, err := rtdump.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	held := map[int][]netip.Prefix{}
	for _, a := range addresses {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			bits, _ := a.Mask.Size()
			held[a.LinkIndex] = append(held[a.LinkIndex], netip.PrefixFrom(ip.Unmap(), bits))
		}
	}
	ways := outward()
	list := make([]port, 0, len(links))
	for _, l := range links {
		a := l.Attrs()
		p := port{
			device: device{name: a.Name, index: a.Index, mtu: a.MTU, kind: l.Type(), links: linkAddresses(l, links)}, encap: a.EncapType,
			loopback: a.Flags&net.FlagLoopback != 0, master: a.MasterIndex, prefixes: held[a.Index], way: ways[a.Index],
		}
		if a.NetNsID < 0 {
			p.parent = a.ParentIndex
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(x, y port) int { return strings.Compare(x.name, y.name) })
	return list, nil
}

// outward are the interfaces by which the machine's default routes leave, by index.
func outward() map[int]bool {
	ways := map[int]bool{}
	// Documentation's addresses (RFC 5737, RFC 3849): nobody has a route of its own to them.
	for _, to := range []string{"192.0.2.1", "2001:db8::1"} {
		routes, err := netlink.RouteGet(net.ParseIP(to))
		if err != nil {
			continue // there is none
		}
		for _, r := range routes {
			ways[r.LinkIndex] = true
		}
	}
	return ways
}

// choose picks the interfaces that programs belong to when nobody names them: those that
// hold one of the addresses and lead out of the machine. One that has the default route or
// a tunnel endpoint leads out whatever it is. left are the others that hold an address,
// with the reason.
func choose(all []port, addresses, endpoints []netip.Addr) (found []device, left []model.InterfaceObserved, errs []error) {
	for _, p := range all {
		holds := func(list []netip.Addr) bool {
			return slices.ContainsFunc(p.prefixes, func(x netip.Prefix) bool { return slices.Contains(list, x.Addr()) })
		}
		end := holds(endpoints)
		if p.loopback || !end && !holds(addresses) {
			continue
		}
		why := inward(p, all)
		plain := p.encap == "ether"
		switch {
		case !plain && (end || p.way):
			errs, why = append(errs, noEthernet(p)), ""
		case !plain:
			why = "it carries no Ethernet frames (" + p.encap + ")"
		case end || p.way:
			why = ""
		}
		if why != "" {
			left = append(left, model.InterfaceObserved{Name: p.name, Use: model.InterfaceUnused, Message: why})
		} else if plain {
			found = append(found, p.device)
		}
	}
	return found, left, errs
}

func noEthernet(p port) error {
	return fmt.Errorf("interface %s: %w: it carries no Ethernet frames (%s)", p.name, errors.ErrUnsupported, p.encap)
}

// byName picks the interfaces that somebody named.
func byName(all []port, names []string) (found []device, errs []error) {
	missing := slices.Clone(names)
	for _, p := range all {
		if !slices.Contains(names, p.name) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(n string) bool { return n == p.name })
		if p.encap == "ether" {
			found = append(found, p.device)
		} else {
			errs = append(errs, noEthernet(p))
		}
	}
	for _, name := range missing {
		errs = append(errs, fmt.Errorf("interface %s: there is none of that name; --lb-interfaces names it", name))
	}
	return found, errs
}

// inward says why an interface does not lead out of the machine, "" if it does.
func inward(p port, all []port) string {
	switch p.kind {
	case "device", "bond", "team":
		return ""
	case "vlan", "macvlan", "macvtap", "ipvlan":
		if i := slices.IndexFunc(all, func(x port) bool { return p.parent != 0 && x.index == p.parent }); i >= 0 {
			if why := inward(all[i], all); why != "" {
				return "it is on top of " + all[i].name + ": " + why
			}
		}
		return "" // of one of the machine's around this namespace
	case "bridge":
		for _, x := range all {
			if x.master == p.index && x.kind != "veth" && inward(x, all) == "" {
				return ""
			}
		}
		return "no port of the bridge leads out of the machine"
	case "veth":
		// In a container it is the way out; beside a real interface, and with an address
		// alone in its prefix, the way into one.
		for _, x := range all {
			if x.kind == "device" && !x.loopback && x.encap == "ether" {
				return "it leads into a container"
			}
		}
		if !slices.ContainsFunc(p.prefixes, func(x netip.Prefix) bool { return x.Addr().IsGlobalUnicast() && !x.IsSingleIP() }) {
			return "it leads into a container"
		}
		return ""
	}
	return "a device of kind " + p.kind + " does not lead out of the machine by itself"
}

// Interfaces are those that hold an address of the machine, or that were named, sorted, with
// what the data plane does there.
func (d *DataPlane) Interfaces() []model.InterfaceObserved {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := slices.Clone(d.left)
	for _, v := range d.found {
		o := model.InterfaceObserved{Name: v.name, Use: model.InterfaceUnused, Message: "there is nothing to balance here"}
		if d.attached != nil {
			if d.attached.here[hookIngress][v.index] != nil {
				o.Use, o.Message = model.InterfaceTunnels, ""
			}
			if at := d.attached.here[hookXDP][v.index]; at != nil {
				if o.Use, o.Message = model.InterfaceNative, ""; at.generic {
					o.Use = model.InterfaceGeneric
				}
			}
			if why := d.attached.failed[v.index]; why != nil {
				o.Message = why.Error()
			}
		}
		list = append(list, o)
	}
	slices.SortFunc(list, func(x, y model.InterfaceObserved) int { return strings.Compare(x.Name, y.Name) })
	return list
}

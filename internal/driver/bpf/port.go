package bpf

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

// Port is an interface with the properties that decide whether programs are attached to
// it.
type Port struct {
	Device
	encap    string // of its frames, "ether"
	loopback bool
	master   int // of which it is a port
	parent   int // on top of which it is; 0 where that is in another namespace
	prefixes []netip.Prefix
	uplink   bool // the machine's default route leaves by it
}

// Ports lists the machine's interfaces, sorted by name.
func Ports() ([]Port, error) {
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
	uplinks := outward()
	list := make([]Port, 0, len(links))
	for _, l := range links {
		a := l.Attrs()
		p := Port{
			Device: Device{Name: a.Name, Index: a.Index, MTU: a.MTU, kind: l.Type(), links: linkAddresses(l, links)}, encap: a.EncapType,
			loopback: a.Flags&net.FlagLoopback != 0, master: a.MasterIndex, prefixes: held[a.Index], uplink: uplinks[a.Index],
		}
		if a.NetNsID < 0 {
			p.parent = a.ParentIndex
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(x, y Port) int { return strings.Compare(x.Name, y.Name) })
	return list, nil
}

// outward are the interfaces by which the machine's default routes leave, by index.
func outward() map[int]bool {
	uplinks := map[int]bool{}
	// Documentation's addresses (RFC 5737, RFC 3849): nobody has a route of its own to them.
	for _, to := range []string{"192.0.2.1", "2001:db8::1"} {
		routes, err := netlink.RouteGet(net.ParseIP(to))
		if err != nil {
			continue // there is none
		}
		for _, r := range routes {
			uplinks[r.LinkIndex] = true
		}
	}
	return uplinks
}

// Choose selects the interfaces to attach programs to if no names are configured: those
// that hold one of the addresses and lead out of the machine. An interface with the
// default route or a tunnel endpoint always leads out. left are the other interfaces with
// an address, each with the reason.
func Choose(all []Port, addresses, endpoints []netip.Addr) (found []Device, left []model.InterfaceObserved, errs []error) {
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
		case !plain && (end || p.uplink):
			errs, why = append(errs, noEthernet(p)), ""
		case !plain:
			why = "it carries no Ethernet frames (" + p.encap + ")"
		case end || p.uplink:
			why = ""
		}
		if why != "" {
			left = append(left, model.InterfaceObserved{Name: p.Name, Use: model.InterfaceUnused, Message: why})
		} else if plain {
			found = append(found, p.Device)
		}
	}
	return found, left, errs
}

func noEthernet(p Port) error {
	return fmt.Errorf("interface %s: %w: it carries no Ethernet frames (%s)", p.Name, errors.ErrUnsupported, p.encap)
}

// ByName selects the interfaces with the configured names. missing are names without an
// interface.
func ByName(all []Port, names []string) (found []Device, missing []string, errs []error) {
	missing = slices.Clone(names)
	for _, p := range all {
		if !slices.Contains(names, p.Name) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(n string) bool { return n == p.Name })
		if p.encap == "ether" {
			found = append(found, p.Device)
		} else {
			errs = append(errs, noEthernet(p))
		}
	}
	return found, missing, errs
}

// inward says why an interface does not lead out of the machine, "" if it does.
func inward(p Port, all []Port) string {
	switch p.kind {
	case "device", "bond", "team":
		return ""
	case "vlan", "macvlan", "macvtap", "ipvlan":
		if i := slices.IndexFunc(all, func(x Port) bool { return p.parent != 0 && x.Index == p.parent }); i >= 0 {
			if why := inward(all[i], all); why != "" {
				return "it is on top of " + all[i].Name + ": " + why
			}
		}
		return "" // of one of the machine's around this namespace
	case "bridge":
		for _, x := range all {
			if x.master == p.Index && x.kind != "veth" && inward(x, all) == "" {
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

package bgp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// perMessage bounds the prefixes of one UPDATE so that it stays below 4096 bytes: an IPv6 host route with a path
// identifier takes 21.
const perMessage = 100

// pathID is the identifier of our only path to a prefix, where paths have one (RFC 7911).
const pathID = 1

// route is what a peer is told about a prefix.
type route struct {
	prefix     netip.Prefix
	nextHop    netip.Addr
	attributes []packet.PathAttributeInterface
	key        string // equal for routes that one UPDATE can carry
}

func family(p netip.Prefix) packet.Family {
	if p.Addr().Is4() {
		return packet.RF_IPv4_UC
	}
	return packet.RF_IPv6_UC
}

// trouble is what keeps an established session from being all that is wanted.
type trouble struct {
	reason  model.SessionReason
	message string
}

// routes returns what to tell the peer, by prefix, and the trouble with the rest.
func routes(c model.Peer, a agreed, local netip.Addr, addrs []localAddr, prefixes []Advertisement) (map[netip.Prefix]route, []trouble) {
	out := map[netip.Prefix]route{}
	var troubles []trouble
	var hopless, unreadable []string
	hops := map[bool]netip.Addr{}
	for _, v6 := range []bool{false, true} {
		hops[v6] = nextHop(c, v6, local, addrs, prefixes)
	}
	for _, v := range prefixes {
		if !a.families[family(v.Prefix)] {
			continue
		}
		hop := hops[v.Prefix.Addr().Is6()]
		if v.Prefix.Addr().Is4() && a.ipv4OverIPv6 && (!hop.IsValid() || c.Interface != "" && !c.NextHop4.IsValid()) {
			hop = hops[true] // RFC 8950
		}
		if !hop.IsValid() {
			hopless = append(hopless, v.Prefix.String())
			continue
		}
		options := join(c.Path, v.Path)
		list, err := attributes(c, options, a.fourOctets)
		if err != nil {
			unreadable = append(unreadable, fmt.Sprintf("%s: %s", v.Prefix, err))
		}
		r := route{prefix: v.Prefix, nextHop: hop, attributes: list}
		r.key = routeKey(r)
		out[v.Prefix] = r
	}
	if len(hopless) > 0 {
		family, field := "IPv4", "nextHopIPv4"
		if strings.Contains(hopless[0], ":") {
			family, field = "IPv6", "nextHopIPv6"
		}
		troubles = append(troubles, trouble{model.SessionNoLocalAddress, where(c) + fmt.Sprintf(
			"%s is not advertised to it: the interface of the session (%s) has no %s address to be the next hop; add one, or set the peer's %s",
			few(hopless), local, family, field)})
	}
	if len(unreadable) > 0 {
		troubles = append(troubles, trouble{model.SessionOK, where(c) + "advertised without settings that cannot be read: " + few(unreadable)})
	}
	return out, troubles
}

// few lists a few and counts the rest.
func few(list []string) string {
	const most = 3
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

func routeKey(r route) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%t %s ", r.prefix.Addr().Is4(), r.nextHop)
	for _, a := range r.attributes {
		raw, err := a.Serialize()
		if err != nil {
			raw = []byte(err.Error())
		}
		b.Write(raw)
	}
	return b.String()
}

// reach is an UPDATE that advertises routes of one key.
func reach(group []route) (*packet.BGPMessage, error) {
	first := group[0]
	list := make([]netip.Prefix, len(group))
	for i, r := range group {
		list[i] = r.prefix
	}
	nlri, err := nlri(list)
	if err != nil {
		return nil, err
	}
	if f := family(first.prefix); f != packet.RF_IPv4_UC || first.nextHop.Is6() {
		hop := first.nextHop
		mp, err := packet.NewPathAttributeMpReachNLRI(f, nlri, hop)
		if err != nil {
			return nil, fmt.Errorf("advertise %s: %w", first.prefix, err)
		}
		// In front: RFC 7606, 5.1.
		return packet.NewBGPUpdateMessage(nil, slices.Concat([]packet.PathAttributeInterface{mp}, first.attributes), nil), nil
	}
	hop, err := packet.NewPathAttributeNextHop(first.nextHop)
	if err != nil {
		return nil, fmt.Errorf("advertise %s: %w", first.prefix, err)
	}
	all := append(slices.Clone(first.attributes), hop)
	slices.SortFunc(all, func(a, b packet.PathAttributeInterface) int { return cmp.Compare(a.GetType(), b.GetType()) })
	return packet.NewBGPUpdateMessage(nil, all, nlri), nil
}

// unreach is an UPDATE that takes prefixes of one family back.
func unreach(f packet.Family, list []netip.Prefix) (*packet.BGPMessage, error) {
	nlri, err := nlri(list)
	if err != nil {
		return nil, err
	}
	if f == packet.RF_IPv4_UC {
		return packet.NewBGPUpdateMessage(nlri, nil, nil), nil
	}
	mp, err := packet.NewPathAttributeMpUnreachNLRI(f, nlri)
	if err != nil {
		return nil, fmt.Errorf("withdraw %s: %w", list[0], err)
	}
	return packet.NewBGPUpdateMessage(nil, []packet.PathAttributeInterface{mp}, nil), nil
}

func nlri(list []netip.Prefix) ([]packet.PathNLRI, error) {
	out := make([]packet.PathNLRI, len(list))
	for i, p := range list {
		n, err := packet.NewIPAddrPrefix(p)
		if err != nil {
			return nil, fmt.Errorf("prefix %s: %w", p, err)
		}
		out[i] = packet.PathNLRI{NLRI: n, ID: pathID}
	}
	return out, nil
}

// encode writes a message as a session wants it.
func encode(m *packet.BGPMessage, a agreed) ([]byte, error) {
	return m.Serialize(&packet.MarshallingOption{AddPath: a.addPath, Use2ByteAS: !a.fourOctets, ExtendedMessage: a.longMessages})
}

// harmless reports whether a malformed UPDATE can be passed over: nothing of it would be used (RFC 7606).
func harmless(err error) bool {
	var malformed *packet.MessageError
	return errors.As(err, &malformed) && malformed.TypeCode == packet.BGP_ERROR_UPDATE_MESSAGE_ERROR &&
		malformed.ErrorHandling != packet.ERROR_HANDLING_SESSION_RESET
}

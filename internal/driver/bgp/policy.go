package bgp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// defaultLocalPreference is what internal peers are told if nobody said anything: the attribute is mandatory there.
const defaultLocalPreference = 100

// join returns what an advertisement carries to a peer. The peer's options go first: its communities stand before the
// pool's, and where only one value can be, it is the peer's.
func join(peer, pool model.PathOptions) model.PathOptions {
	out := peer
	out.Communities = nil
	for _, c := range slices.Concat(peer.Communities, pool.Communities) {
		if !slices.Contains(out.Communities, c) {
			out.Communities = append(out.Communities, c)
		}
	}
	if out.LocalPreference == nil {
		out.LocalPreference = pool.LocalPreference
	}
	if out.MED == nil {
		out.MED = pool.MED
	}
	if out.Prepend == 0 {
		out.Prepend = pool.Prepend
	}
	return out
}

// communities reads communities of the model's notation; those that it cannot read are returned as unreadable.
func communities(list []string) (plain []uint32, large []*packet.LargeCommunity, unreadable []string) {
	for _, text := range list {
		switch text {
		case "no-export":
			plain = append(plain, uint32(packet.COMMUNITY_NO_EXPORT))
			continue
		case "no-advertise":
			plain = append(plain, uint32(packet.COMMUNITY_NO_ADVERTISE))
			continue
		case "graceful-shutdown": // RFC 8326
			plain = append(plain, uint32(packet.COMMUNITY_PLANNED_SHUT))
			continue
		case "blackhole": // RFC 7999
			plain = append(plain, uint32(packet.COMMUNITY_BLACKHOLE))
			continue
		}
		parts := strings.Split(text, ":")
		bits := 16
		if len(parts) == 3 {
			bits = 32
		}
		numbers := make([]uint32, 0, 3)
		for _, p := range parts {
			n, err := strconv.ParseUint(p, 10, bits)
			if err != nil {
				break
			}
			numbers = append(numbers, uint32(n))
		}
		switch {
		case len(parts) == 2 && len(numbers) == 2:
			plain = append(plain, numbers[0]<<16|numbers[1])
		case len(parts) == 3 && len(numbers) == 3:
			large = append(large, packet.NewLargeCommunity(numbers[0], numbers[1], numbers[2]))
		default:
			unreadable = append(unreadable, text)
		}
	}
	return plain, large, unreadable
}

// attributes returns the path attributes of an advertisement, without its next hop, sorted by type.
func attributes(c model.Peer, o model.PathOptions, fourOctets bool) ([]packet.PathAttributeInterface, error) {
	internal := c.LocalASN == c.PeerASN
	out := []packet.PathAttributeInterface{packet.NewPathAttributeOrigin(packet.BGP_ORIGIN_ATTR_TYPE_IGP)}
	var path []uint32
	if !internal {
		path = slices.Repeat([]uint32{c.LocalASN}, 1+int(o.Prepend))
	}
	out = append(out, asPath(path, fourOctets))
	if o.MED != nil {
		out = append(out, packet.NewPathAttributeMultiExitDisc(*o.MED))
	}
	if internal {
		preference := uint32(defaultLocalPreference)
		if o.LocalPreference != nil {
			preference = *o.LocalPreference
		}
		out = append(out, packet.NewPathAttributeLocalPref(preference))
	}
	plain, large, unreadable := communities(o.Communities)
	if len(plain) > 0 {
		out = append(out, packet.NewPathAttributeCommunities(plain))
	}
	if !fourOctets && c.LocalASN > 0xffff && !internal {
		out = append(out, packet.NewPathAttributeAs4Path([]*packet.As4PathParam{packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, path)}))
	}
	if len(large) > 0 {
		out = append(out, packet.NewPathAttributeLargeCommunities(large))
	}
	out = marked(c, out)
	if len(unreadable) > 0 {
		return out, fmt.Errorf("no such community: %s", strings.Join(unreadable, ", "))
	}
	return out, nil
}

// asPath is the AS_PATH in the form that the peer reads (RFC 6793). A segment holds at most 255 AS numbers.
func asPath(path []uint32, fourOctets bool) packet.PathAttributeInterface {
	var segments []packet.AsPathParamInterface
	for part := range slices.Chunk(path, 255) {
		if fourOctets {
			segments = append(segments, packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, part))
			continue
		}
		short := make([]uint16, len(part))
		for i, as := range part {
			short[i] = shortASN(as)
		}
		segments = append(segments, packet.NewAsPathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, short))
	}
	return packet.NewPathAttributeAsPath(segments)
}

func shortASN(as uint32) uint16 {
	if as > 0xffff {
		return packet.AS_TRANS
	}
	return uint16(as)
}

package bgp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Codes that the packet library does not name.
const (
	capabilityRole = packet.BGPCapabilityCode(9) // RFC 9234
	// extendedParameters as the length of the optional parameters, and as the type of the first one, says that lengths
	// have two bytes (RFC 9072).
	extendedParameters = 255
)

// theirOpen is what a peer's OPEN says, as far as we use it. A router may offer whatever it can: a capability that we
// do not use is passed over, however its value looks.
type theirOpen struct {
	version uint8
	as      uint32
	hold    uint16 // seconds
	id      netip.Addr

	fourOctets      bool
	families        map[packet.Family]bool
	receivesMany    map[packet.Family]bool // several paths of a prefix (RFC 7911)
	longMessages    bool                   // RFC 8654
	enhancedRefresh bool                   // RFC 7313
	ipv4OverIPv6    bool                   // IPv4 prefixes with IPv6 next hops (RFC 8950)
	restarts        bool                   // keeps our routes while we restart (RFC 4724)
	roles           []uint8                // distinct (RFC 9234)
}

// errShort is of lengths that do not fit into one another.
var errShort = errors.New("a length is beyond the end")

// DecodeFromBytes reads the body of an OPEN.
func (o *theirOpen) DecodeFromBytes(b []byte, _ ...*packet.MarshallingOption) error {
	*o = theirOpen{families: map[packet.Family]bool{}, receivesMany: map[packet.Family]bool{}}
	malformed := func(what string) error {
		return packet.NewMessageError(packet.BGP_ERROR_OPEN_MESSAGE_ERROR, 0, nil, "an OPEN in which "+what)
	}
	if len(b) < 10 {
		return packet.NewMessageError(packet.BGP_ERROR_MESSAGE_HEADER_ERROR, packet.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, nil, fmt.Sprintf("an OPEN of %d bytes", len(b)))
	}
	o.version, o.as, o.hold = b[0], uint32(binary.BigEndian.Uint16(b[1:])), binary.BigEndian.Uint16(b[3:])
	o.id = netip.AddrFrom4([4]byte(b[5:9]))
	if o.version != 4 {
		return nil // it may look otherwise from here on
	}
	length, rest, wide := int(b[9]), b[10:], false
	if length > 0 && len(rest) > 0 && rest[0] == extendedParameters { // RFC 9072, 2: the length before it means nothing
		if len(rest) < 3 {
			return malformed(errShort.Error())
		}
		length, rest, wide = int(binary.BigEndian.Uint16(rest[1:])), rest[3:], true
	}
	if length != len(rest) {
		return malformed(fmt.Sprintf("the optional parameters have %d bytes and say %d", len(rest), length))
	}
	for len(rest) > 0 {
		kind, value, left, err := field(rest, wide)
		if err != nil {
			return malformed(err.Error())
		}
		rest = left
		if kind != packet.BGP_OPT_CAPABILITY {
			return packet.NewMessageError(packet.BGP_ERROR_OPEN_MESSAGE_ERROR, packet.BGP_ERROR_SUB_UNSUPPORTED_OPTIONAL_PARAMETER, nil,
				fmt.Sprintf("an OPEN with the optional parameter %d", kind))
		}
		for len(value) > 0 {
			code, v, left, err := field(value, false)
			if err != nil {
				return malformed(err.Error())
			}
			value = left
			o.capability(packet.BGPCapabilityCode(code), v)
		}
	}
	if len(o.families) == 0 {
		o.families[packet.RF_IPv4_UC] = true // an OPEN without the capability means IPv4 (RFC 4760)
	}
	return nil
}

// field takes one type, length and value off the front. A wide length has two bytes.
func field(b []byte, wide bool) (kind uint8, value, rest []byte, err error) {
	head := 2
	if wide {
		head = 3
	}
	if len(b) < head {
		return 0, nil, nil, errShort
	}
	length := int(b[1])
	if wide {
		length = int(binary.BigEndian.Uint16(b[1:]))
	}
	if len(b) < head+length {
		return 0, nil, nil, errShort
	}
	return b[0], b[head : head+length], b[head+length:], nil
}

// capability notes a capability that we use. One whose value is none is taken as not offered (RFC 5492, 3).
func (o *theirOpen) capability(code packet.BGPCapabilityCode, v []byte) {
	family := func(v []byte, safi uint8) packet.Family { return packet.NewFamily(binary.BigEndian.Uint16(v), safi) }
	switch code {
	case packet.BGP_CAP_MULTIPROTOCOL:
		if len(v) == 4 {
			o.families[family(v, v[3])] = true
		}
	case packet.BGP_CAP_FOUR_OCTET_AS_NUMBER:
		if len(v) == 4 {
			o.as, o.fourOctets = binary.BigEndian.Uint32(v), true
		}
	case packet.BGP_CAP_ADD_PATH:
		for ; len(v) >= 4; v = v[4:] {
			o.receivesMany[family(v, v[2])] = packet.BGPAddPathMode(v[3])&packet.BGP_ADD_PATH_RECEIVE != 0
		}
	case packet.BGP_CAP_ENHANCED_ROUTE_REFRESH:
		o.enhancedRefresh = true
	case packet.BGP_CAP_EXTENDED_MESSAGE:
		o.longMessages = true
	case packet.BGP_CAP_EXTENDED_NEXTHOP:
		for ; len(v) >= 6; v = v[6:] {
			if family(v, v[3]) == packet.RF_IPv4_UC && v[2] == 0 && binary.BigEndian.Uint16(v[4:]) == packet.AFI_IP6 {
				o.ipv4OverIPv6 = true
			}
		}
	case packet.BGP_CAP_GRACEFUL_RESTART:
		o.restarts = len(v) >= 2
	case capabilityRole:
		if len(v) == 1 && !slices.Contains(o.roles, v[0]) {
			o.roles = append(o.roles, v[0])
		}
	}
}

// Serialize is not used: a peer's OPEN is never sent on.
func (o *theirOpen) Serialize(...*packet.MarshallingOption) ([]byte, error) {
	return nil, errors.New("a peer's OPEN is not sent on")
}

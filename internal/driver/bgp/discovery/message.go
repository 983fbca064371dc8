package discovery

import (
	"errors"
	"net"
)

// Types of ICMPv6 messages (RFC 4861, 4.1 and 4.2).
const (
	typeSolicitation  = 133
	typeAdvertisement = 134
)

// sourceLinkLayer is the option with the sender's hardware address (RFC 4861, 4.6.1).
const sourceLinkLayer = 1

const (
	solicitationHeader  = 8
	advertisementHeader = 16
	optionUnit          = 8 // of an option's length
)

// check returns the type of a message, or why RFC 4861, 6.1, has it passed over. The kernel has checked its checksum.
func check(b []byte) (kind uint8, err error) {
	if len(b) < 2 {
		return 0, errors.New("it is cut off")
	}
	head := 0
	switch kind = b[0]; kind {
	case typeSolicitation:
		head = solicitationHeader
	case typeAdvertisement:
		head = advertisementHeader
	default:
		return 0, errors.New("it is of another type")
	}
	switch {
	case b[1] != 0:
		return 0, errors.New("its code is not 0")
	case len(b) < head:
		return 0, errors.New("it is cut off")
	}
	for rest := b[head:]; len(rest) > 0; {
		if len(rest) < 2 || rest[1] == 0 || len(rest) < int(rest[1])*optionUnit {
			return 0, errors.New("an option has an impossible length")
		}
		rest = rest[int(rest[1])*optionUnit:]
	}
	return kind, nil
}

// solicitation asks routers to advertise themselves. The kernel fills the checksum in.
func solicitation(mac net.HardwareAddr) []byte {
	b := make([]byte, solicitationHeader)
	b[0] = typeSolicitation
	return append(b, ourHardware(mac)...)
}

// advertisement says that this machine is there. Its router lifetime and all that hosts could learn from it are 0:
// unspecified.
func advertisement(mac net.HardwareAddr) []byte {
	b := make([]byte, advertisementHeader)
	b[0] = typeAdvertisement
	return append(b, ourHardware(mac)...)
}

// ourHardware is the option with our hardware address; nil for a link without one of six bytes.
func ourHardware(mac net.HardwareAddr) []byte {
	if len(mac) != 6 {
		return nil
	}
	return append([]byte{sourceLinkLayer, 1}, mac...)
}

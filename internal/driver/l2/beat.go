package l2

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// A heartbeat is one or more frames, each of which stands for itself:
//
//	"FL" | version 1 | length of the machine's name | name | number of entries (2)
//	per entry: role | 4 or 6 | term (4) | address (4 or 16)
const (
	beatMagic   = "FL"
	beatVersion = 1
	// beatSize is the room for entries in a frame that any Ethernet carries. (1,000 VIPs
	// are 7 frames a round for IPv4 and 15 for IPv6.)
	beatSize = 1500
	maxName  = 255
)

// marshalBeat returns the frames of a heartbeat: at least one, also without entries, so
// that others know of the station.
func marshalBeat(self station, entries []entry) [][]byte {
	var frames [][]byte
	name := self.machine[:min(len(self.machine), maxName)]
	for first := true; first || len(entries) > 0; first = false {
		b := header(beatGroup(), self.mac, typeBeat)
		b = append(b, beatMagic...)
		b = append(b, beatVersion, byte(len(name)))
		b = append(b, name...)
		at := len(b)
		b = append(b, 0, 0)
		n := 0
		for ; n < len(entries) && len(b)+22 <= headerSize+beatSize; n++ {
			w := entries[n]
			family := byte(6)
			if w.vip.Is4() {
				family = 4
			}
			b = append(b, byte(w.role), family)
			b = binary.BigEndian.AppendUint32(b, w.term)
			b = append(b, w.vip.AsSlice()...)
		}
		binary.BigEndian.PutUint16(b[at:], uint16(n))
		entries = entries[n:]
		frames = append(frames, b)
	}
	return frames
}

// parseBeat is the inverse of marshalBeat for one frame. Bytes after the last entry
// are padding.
func parseBeat(b []byte) (station, []entry, error) {
	if len(b) < headerSize+4 || binary.BigEndian.Uint16(b[12:]) != typeBeat || string(b[14:16]) != beatMagic {
		return station{}, nil, errFrame
	}
	from := station{mac: hardware(b[6:12])}
	if b[16] != beatVersion {
		return station{}, nil, fmt.Errorf("heartbeat of version %d from %s: this agent knows version %d", b[16], from.mac, beatVersion)
	}
	length := int(b[17])
	b = b[18:]
	if length == 0 || len(b) < length+2 {
		return station{}, nil, errFrame
	}
	from.machine = string(b[:length])
	count := int(binary.BigEndian.Uint16(b[length:]))
	b = b[length+2:]
	entries := make([]entry, 0, min(count, beatSize))
	for range count {
		if len(b) < 10 || b[0] > byte(paused) {
			return station{}, nil, errFrame
		}
		w := entry{role: role(b[0]), term: binary.BigEndian.Uint32(b[2:])}
		switch size := len(b) - 6; {
		case b[1] == 4:
			w.vip = netip.AddrFrom4([4]byte(b[6:10]))
			b = b[10:]
		case b[1] == 6 && size >= 16:
			w.vip = netip.AddrFrom16([16]byte(b[6:22]))
			b = b[22:]
		default:
			return station{}, nil, errFrame
		}
		entries = append(entries, w)
	}
	return from, entries, nil
}

package bgp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// communicated is the data of a NOTIFICATION with a shutdown communication.
func communicated(text string) []byte { return append([]byte{byte(len(text))}, text...) }

func notice(code, subcode uint8, data []byte) *failure {
	conf := model.Peer{Name: "a", Address: netip.MustParseAddr("192.0.2.1"), LocalASN: ourASN, PeerASN: theirASN, IPv4: true}
	return notified(conf, netip.MustParseAddr("192.0.2.99"), model.SessionEstablished, &packet.BGPNotification{ErrorCode: code, ErrorSubcode: subcode, Data: data})
}

// A shutdown communication has up to 255 bytes (RFC 9003, 2); 128 was the limit before (RFC 8203).
func TestShutdownCommunication(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 127, 128, 129, 254, 255} {
		text := strings.Repeat("x", n)
		for _, subcode := range []uint8{2, 4} {
			if f := notice(6, subcode, communicated(text)); !strings.Contains(f.message, fmt.Sprintf("%q", text)) {
				t.Errorf("6/%d with %d bytes: %s", subcode, n, f.message)
			}
			// Bytes after the communication are no part of it; one that is longer than the message is none.
			if f := notice(6, subcode, append(communicated(text), 'y')); !strings.Contains(f.message, fmt.Sprintf("%q", text)) {
				t.Errorf("6/%d with %d bytes and one more: %s", subcode, n, f.message)
			}
			if f := notice(6, subcode, communicated(text)[:n]); strings.Contains(f.message, "says") {
				t.Errorf("6/%d with %d bytes of which the last is missing: %s", subcode, n, f.message)
			}
		}
	}
}

// Every NOTIFICATION has a message for people, whatever its code, subcode and data.
func TestEveryNotification(t *testing.T) {
	t.Parallel()
	long := make([]byte, 4096)
	for i := range long {
		long[i] = 0xff
	}
	for code := range 256 {
		for subcode := range 256 {
			for _, data := range [][]byte{nil, {0}, {0xff}, communicated("maintenance"), long[:256], long, {6, 9, 6, 9, 6}, {6, 2, 2, '\n', 'b'}} {
				f := notice(uint8(code), uint8(subcode), data)
				if f == nil || f.message == "" || f.reason == model.SessionOK {
					t.Fatalf("%d/%d with %x: %+v", code, subcode, data, f)
				}
				if strings.ContainsFunc(f.message, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Fatalf("%d/%d with %x: not printable: %q", code, subcode, data, f.message)
				}
				if !strings.Contains(f.message, fmt.Sprintf("%d/%d", code, subcode)) {
					t.Fatalf("%d/%d with %x: the message lacks the code: %s", code, subcode, data, f.message)
				}
			}
		}
	}
}

func TestNotificationNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, subcode uint8
		data          []byte
		want          string
	}{
		{1, 2, nil, "Message Header Error: Bad Message Length"},
		{2, 11, nil, "role"},
		{3, 1, nil, "UPDATE Message Error: Malformed Attribute List"},
		{3, 200, nil, "UPDATE Message Error: subcode 200, which is not registered"},
		{4, 0, nil, "hold time"},
		{5, 2, nil, "Finite State Machine Error: Receive Unexpected Message in OpenConfirm State"},
		{6, 8, nil, "Cease: Out of Resources"},
		{6, 9, nil, "Hard Reset"},
		{6, 9, append([]byte{6, 2}, communicated("maintenance")...), `"maintenance"`},
		{6, 9, []byte{6, 1}, "fewer prefixes than we send (NOTIFICATION 6/9, Hard Reset, for 6/1)"},
		{7, 1, nil, "ROUTE-REFRESH Message Error: Invalid Message Length"},
		{8, 0, nil, "send hold time"},
		{9, 0, nil, "Loss of LSDB Synchronization"},
		{77, 3, nil, "code 77, which is not registered"},
	} {
		if f := notice(c.code, c.subcode, c.data); !strings.Contains(f.message, c.want) {
			t.Errorf("%d/%d: the message lacks %q: %s", c.code, c.subcode, c.want, f.message)
		}
	}
}

// FuzzNotification holds whatever a peer may say before it goes, from its bytes to the words for people.
func FuzzNotification(f *testing.F) {
	f.Add(uint8(6), uint8(2), communicated(strings.Repeat("x", 255)))
	f.Add(uint8(6), uint8(2), []byte{0xff})
	f.Add(uint8(6), uint8(4), []byte{})
	f.Add(uint8(6), uint8(9), append([]byte{6, 2}, communicated(strings.Repeat("\xff", 255))...))
	f.Add(uint8(2), uint8(1), []byte{0, 4})
	f.Add(uint8(8), uint8(0), []byte(nil))
	for code := range uint8(12) {
		for subcode := range uint8(14) {
			f.Add(code, subcode, []byte{0xff, 0xff, 0xff})
		}
	}
	f.Fuzz(func(t *testing.T, code, subcode uint8, data []byte) {
		raw := append([]byte(strings.Repeat("\xff", 16)), 0, 0, packet.BGP_MSG_NOTIFICATION, code, subcode)
		raw = append(raw, data[:min(len(data), 4096-len(raw))]...)
		binary.BigEndian.PutUint16(raw[16:], uint16(len(raw)))
		kind, length, err := header(raw[:packet.BGP_HEADER_LENGTH])
		if err != nil || length != len(raw) {
			t.Fatalf("header: %v, %d bytes of %d", err, length, len(raw))
		}
		m, err := decode(kind, raw[packet.BGP_HEADER_LENGTH:], true)
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		n := m.Body.(*packet.BGPNotification)
		if got := notice(n.ErrorCode, n.ErrorSubcode, n.Data); got.message == "" {
			t.Error("no message")
		}
	})
}

package l2

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestHeartbeatsSurviveTheWire(t *testing.T) {
	self := station{"edge-1", hardware{2, 0, 0, 0, 0, 1}}
	for _, count := range []int{0, 1, 1000} {
		var want []entry
		for i := range count {
			w := entry{netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", i/256, i%256)), role(i % 4), uint32(i)}
			if i%2 == 1 {
				w.vip = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i))
			}
			want = append(want, w)
		}
		var got []entry
		for _, f := range marshalBeat(self, want) {
			if len(f) > headerSize+beatSize {
				t.Errorf("frame of %d bytes", len(f))
			}
			from, entries, err := parseBeat(append(f, make([]byte, 20)...)) // drivers pad
			if err != nil || from != self {
				t.Fatalf("from %v: %v", from, err)
			}
			got = append(got, entries...)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%d words became %d: %v", count, len(got), got)
		}
	}
	f := marshalBeat(self, nil)[0]
	f[16] = 9
	if _, _, err := parseBeat(f); err == nil || !strings.Contains(err.Error(), "version 9") {
		t.Errorf("another version: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	self := station{"a", hardware{2}}
	f.Add(marshalBeat(self, []entry{{netip.MustParseAddr("10.0.0.1"), owner, 7}, {netip.MustParseAddr("fd00::1"), paused, 8}})[0])
	f.Add(arp{op: 1, sender: netip.MustParseAddr("10.0.0.1"), target: netip.MustParseAddr("10.0.0.2")}.marshal())
	// Every run of the tests has each length, and the edges of each byte, of which some are lengths.
	q := neighbour{kind: advertisement, from: netip.MustParseAddr("2001:db8::1"), to: allNodes(), target: netip.MustParseAddr("2001:db8::1"), hasMAC: true}
	for _, whole := range [][]byte{
		marshalBeat(self, []entry{{netip.MustParseAddr("10.0.0.1"), owner, 7}, {netip.MustParseAddr("fd00::1"), paused, 8}})[0],
		arp{op: 1, sender: netip.MustParseAddr("10.0.0.1"), target: netip.MustParseAddr("10.0.0.2")}.marshal(),
		q.marshal(hardware{1}, hardware{2})[headerSize+ipv6Size:],
	} {
		for i := range whole {
			f.Add(whole[:i])
			for _, v := range []byte{0, 1, 0x7f, 0x80, 0xff} {
				other := slices.Clone(whole)
				other[i] = v
				f.Add(other)
			}
		}
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _, _ = parseBeat(b)
		_, _ = parseARP(b)
		_, _ = parseNeighbour(b, netip.IPv6Unspecified(), netip.IPv6Unspecified())
	})
}

func TestFrames(t *testing.T) {
	mac := hardware{2, 0, 0, 0, 0, 1}
	q := arp{
		op: arpRequest, senderMAC: mac, sender: netip.MustParseAddr("192.0.2.1"), target: netip.MustParseAddr("192.0.2.2"),
		frameTo: broadcast(), frameFrom: mac,
	}
	const want = "ffffffffffff0200000000010806" + "0001080006040001" + "020000000001c0000201" + "000000000000c0000202"
	if got := hex.EncodeToString(q.marshal()); got != want {
		t.Errorf("arp is %s, want %s", got, want)
	}
	if got, err := parseARP(q.marshal()); err != nil || got != q {
		t.Errorf("arp became %v, %v", got, err)
	}

	n := neighbour{
		kind: advertisement, flags: flagOverride, from: netip.MustParseAddr("2001:db8::1"), to: allNodes(),
		target: netip.MustParseAddr("2001:db8::1"), mac: mac, hasMAC: true,
	}
	b := n.marshal(group(allNodes()), mac)
	if got := hex.EncodeToString(b[:20]); got != "333300000001"+"02000000000186dd"+"600000000020" {
		t.Errorf("advertisement begins with %s", got)
	}
	message := b[headerSize+ipv6Size:]
	if sum := checksum(n.from, n.to, message); sum != 0 {
		t.Errorf("a message with its checksum sums up to %#x", sum)
	}
	if got, err := parseNeighbour(message, n.from, n.to); err != nil || got != n {
		t.Errorf("advertisement became %v, %v", got, err)
	}
	if got := solicited(netip.MustParseAddr("2001:db8::12:3456")); got != netip.MustParseAddr("ff02::1:ff12:3456") {
		t.Errorf("solicited-node address is %s", got)
	}
}

// ipv6Size is the size of an IPv6 header without extensions, bytes.
const ipv6Size = 40

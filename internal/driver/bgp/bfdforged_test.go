package bgp

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bfd"

	"fairlead.dev/internal/model"
)

// A packet that names no session ends none over several hops: anybody can send it with the peer's address. Over one
// hop it comes from the link, and says that the peer has restarted.
func TestForgedBFDPacket(t *testing.T) {
	for multihop, want := range map[bool]bfd.StateType{true: bfd.StateUp, false: bfd.StateDown} {
		log := slog.New(slog.DiscardHandler)
		b := newBFD(bfdKey{multihop: multihop, conf: model.BFD{Interval: 300 * time.Millisecond, Multiplier: 3}}, newReceivers("", log), log)
		out, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		b.conn = out
		b.transmit, b.detect = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
		b.mine, b.yours, b.state = 77, 88, bfd.StateUp
		b.receive(bfd.BFDHeader{Version: 1, State: bfd.StateDown, DetectTimeMultiplier: 3, MyDiscriminator: 1})
		if got := b.current(); got != want || multihop && b.yours != 88 {
			t.Errorf("multihop %t: state %s, theirs %d; want %s", multihop, got, b.yours, want)
		}
	}
}

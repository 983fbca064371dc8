package bgp

import (
	"testing"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// A router that asks for every family that there could be, and reads nothing, takes no more memory than one that asks for
// those that were agreed on.
func TestRefreshesOfFamiliesNotAgreedOn(t *testing.T) {
	b, a := newInbox(), agreed{families: map[packet.Family]bool{packet.RF_IPv4_UC: true}}
	for afi := range uint16(100) {
		for safi := range uint8(100) {
			if taken, err := b.take(packet.NewBGPRouteRefreshMessage(afi, 0, safi), theirs(), a); !taken || err != nil {
				t.Fatalf("AFI %d, SAFI %d: taken %t, %v", afi, safi, taken, err)
			}
		}
	}
	if got := b.refreshes(); len(got) != 1 || got[0] != packet.RF_IPv4_UC {
		t.Errorf("it notes %d families: %v", len(got), got)
	}
}

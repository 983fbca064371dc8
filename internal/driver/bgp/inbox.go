package bgp

import (
	"maps"
	"slices"
	"sync"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// inbox is what came from the peer within the session, and that it came. It does not grow with the number of messages,
// so that reading never waits for writing: two speakers of which each waits for the other to read would wait until one
// of them gives up, and a peer that asks for everything again and again has one answer to all of it.
type inbox struct {
	news chan struct{} // has a token when something came

	mu       sync.Mutex
	received received
	asked    map[packet.Family]bool
}

func newInbox() *inbox {
	return &inbox{news: make(chan struct{}, 1), received: newReceived(), asked: map[packet.Family]bool{}}
}

// take reports whether it took in a message; others are the session's own affair.
// Families that were not agreed on are passed over (RFC 2918, 4), so nobody fills the inbox with all that there could be.
func (b *inbox) take(m *packet.BGPMessage, conf model.Peer, a agreed) (taken bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch body := m.Body.(type) {
	case *packet.BGPKeepAlive:
		return true, nil
	case *packet.BGPUpdate:
		err = b.received.read(body, conf.MaxPrefixes)
	case *packet.BGPRouteRefresh:
		// The byte means something only where both speak RFC 7313; we ask for nothing, so nobody marks an answer for us.
		if a.enhancedRefresh && body.Demarcation != 0 {
			return true, nil
		}
		f := packet.NewFamily(body.AFI, body.SAFI)
		if !a.families[f] {
			return true, nil
		}
		b.asked[f] = true
	default:
		return false, nil
	}
	select {
	case b.news <- struct{}{}:
	default:
	}
	return true, err
}

// refreshes returns the families that the peer asked for since the last call.
func (b *inbox) refreshes() []packet.Family {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := slices.Collect(maps.Keys(b.asked))
	clear(b.asked)
	return asked
}

// count is how many prefixes the peer sends; exact says that none was left out.
func (b *inbox) count() (n uint32, exact bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.received.count()
}

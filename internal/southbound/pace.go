package southbound

import (
	"context"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/time/rate"

	"fairlead.dev/internal/delta"
)

// How many reports a machine may send: an agent sends one in 20 ms at most, and in the
// long run one in a few seconds. More is taken in later, and what the machine says is older then.
const (
	reportRate  = 50
	reportBurst = 200
)

// How many streams a machine may open: an agent waits after each that ends.
const (
	streamRate  = 10
	streamBurst = 100
)

// How many names of resources a machine may subscribe to or claim to hold: each costs the lock of all
// machines a microsecond or two. All that it may have come at once, when it connects; the lock is let go
// after claimsAtOnce of them. An agent follows everything, and names nothing.
const (
	nameRate     = 20_000
	nameBurst    = delta.DefaultMaxNames
	claimsAtOnce = 1 << 15
	maxNamed     = 1024 // subscribed to or unsubscribed from by name, on a stream

	// requestCost is what a request costs beside its names: an answer that says nothing takes the lock, too.
	requestCost = 10

	wildcard = "*"
)

// How many addresses a machine may prove: it has a few.
const (
	proofRate  = 5
	proofBurst = 2 * maxAddresses
)

// pace holds up a machine that asks for too much, on whichever of its streams.
type pace struct{ reports, streams, names, proofs *rate.Limiter }

func newPace() pace {
	return pace{
		rate.NewLimiter(reportRate, reportBurst), rate.NewLimiter(streamRate, streamBurst), rate.NewLimiter(nameRate, nameBurst), rate.NewLimiter(proofRate, proofBurst),
	}
}

// waitNames holds up a request by the names in it, and by those that a wildcard in it stands for. One
// with more than there may be is refused later.
func (p pace) waitNames(ctx context.Context, req *discoveryv3.DeltaDiscoveryRequest, wild func() int) error {
	n := len(req.GetResourceNamesSubscribe()) + len(req.GetResourceNamesUnsubscribe()) + len(req.GetInitialResourceVersions())
	if n == 0 && req.GetResponseNonce() == "" || slices.Contains(req.GetResourceNamesSubscribe(), wildcard) {
		n += wild()
	}
	return p.names.WaitN(ctx, min(n+requestCost, nameBurst))
}

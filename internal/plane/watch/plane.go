package watch

import (
	"context"
	"errors"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
)

// errNotServing says that a plane has no machines to look at.
var errNotServing = errors.New("the plane does not serve machines yet")

// Plane is what viewers are told of the plane.
type Plane interface {
	// Serving is the epoch in which it serves machines; 0: it serves none.
	Serving() uint64
	// Published is the revision of its last publication.
	Published() delta.Revision
	// Ended says that its loop has ended.
	Ended() bool
}

// Loop has what the plane's loop knows, which has a bounded share of its time for that.
type Loop interface {
	// Frontends are those that are wanted of all that load balancers are sent. Nobody may change them, and wanted is asked in the loop.
	Frontends(ctx context.Context, wanted func(*model.Frontend) bool) ([]*model.Frontend, error)
	// TapNote says why a tap may show nothing; empty: nothing is against it. A resource that does not exist is an error.
	TapNote(ctx context.Context, f model.TapFilter) (string, error)
}

// Machines are asked while somebody looks, and only while the plane serves them.
type Machines interface {
	// Figures are those of the machines that answer in time. Nobody may change them.
	Figures(context.Context) map[string]southbound.Figures
	// Tap has them show requests, and FlowTap flows.
	Tap(f model.TapFilter, enough uint32) *southbound.Tap
	FlowTap() *southbound.FlowTap
}

// Lists are what can only be made as a whole. Nobody may change them.
type Lists interface {
	Upstreams(context.Context) ([]model.UpstreamStatus, error)
	// Backends are those of frontends, without figures.
	Backends(context.Context) ([]model.BackendStatus, error)
	Status(context.Context) model.Status
}

// served is why there are no machines to look at; nil: there are.
func served(p Plane) error {
	if p.Serving() == 0 {
		return errNotServing
	}
	return nil
}

package watch

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

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
	// Frontends are those that are wanted of all that load balancers are sent. Nobody may change them, and wanted is asked in the
	// plane's loop.
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

// Config is what viewers are answered from. All of it is required.
type Config struct {
	Plane    Plane
	Machines Machines
	Lists    Lists
	Now      func() time.Time
	Log      *slog.Logger
}

// Viewers answers all who look at one plane.
type Viewers struct {
	config    Config
	top       top
	tapped    atomic.Int32 // taps that are open
	upstreams *polled[model.UpstreamStatus]
	backends  *polled[model.BackendStatus]
	status    *polled[any]
}

// New prepares answers. Nothing is asked before somebody looks.
func New(c Config) *Viewers {
	v := &Viewers{config: c, top: top{now: c.Now, sample: c.Machines.Figures}}
	v.upstreams, v.backends, v.status = newLists(c)
	return v
}

// served is why there are no machines to look at; nil: there are.
func (v *Viewers) served() error {
	if v.config.Plane.Serving() == 0 {
		return errNotServing
	}
	return nil
}

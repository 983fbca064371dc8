package plane

import (
	"context"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/watch"
	"fairlead.dev/internal/southbound"
)

// viewed is a plane as those who look at it are told of it.
type viewed struct{ plane *Plane }

var (
	_ watch.Plane    = viewed{}
	_ watch.Loop     = viewed{}
	_ watch.Machines = viewed{}
	_ watch.Lists    = viewed{}
)

// Serving is the epoch in which agents are served.
func (v viewed) Serving() uint64 { return v.plane.serving.Load() }

// Published is the revision of the last publication.
func (v viewed) Published() delta.Revision { return v.plane.views.Revision() }

// Ended says that the loop has ended.
func (v viewed) Ended() bool { return v.plane.ended.Load() }

// Frontends are those that are wanted of the published ones.
func (v viewed) Frontends(ctx context.Context, wanted func(*model.Frontend) bool) ([]*model.Frontend, error) {
	return question(ctx, v.plane, func(l *loop) (list []*model.Frontend) {
		for _, e := range l.frontends.all() {
			if wanted(e.frontend) {
				list = append(list, e.frontend)
			}
		}
		return list
	})
}

// TapNote says why a tap may show nothing.
func (v viewed) TapNote(ctx context.Context, f model.TapFilter) (string, error) {
	return v.plane.tapNote(ctx, f)
}

// Figures asks the machines, once for all who ask meanwhile.
func (v viewed) Figures(ctx context.Context) map[string]southbound.Figures {
	return v.plane.figures(ctx)
}

// Tap has machines show requests. The server is there once the plane serves.
func (v viewed) Tap(f model.TapFilter, enough uint32) *southbound.Tap {
	return v.plane.server.Tap(f, enough)
}

// FlowTap has machines show flows.
func (v viewed) FlowTap() *southbound.FlowTap { return v.plane.server.FlowTap() }

// Upstreams are all upstreams.
func (v viewed) Upstreams(ctx context.Context) ([]model.UpstreamStatus, error) {
	return v.plane.Upstreams(ctx, "")
}

// Backends are those of all frontends.
func (v viewed) Backends(ctx context.Context) ([]model.BackendStatus, error) {
	return question(ctx, v.plane, func(l *loop) []model.BackendStatus {
		rows, _ := l.backendStatuses("", nil)
		return rows
	})
}

// Status is the plane's.
func (v viewed) Status(ctx context.Context) model.Status { return v.plane.Status(ctx) }

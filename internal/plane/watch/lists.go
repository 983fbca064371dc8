package watch

import (
	"context"
	"fmt"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/model"
)

// WatchUpstreams waits for changes of upstreams after a position.
func (v *Viewers) WatchUpstreams(ctx context.Context, after *console.Position, namespace string) (console.Update, error) {
	return v.upstreams.watchList(ctx, after, namespace)
}

// WatchBackends waits for changes of the backends of frontends, without figures, after a position.
func (v *Viewers) WatchBackends(ctx context.Context, after *console.Position, namespace string) (console.Update, error) {
	return v.backends.watchList(ctx, after, namespace)
}

// WatchStatus waits for changes of the status, but for its routes, after a position. Each block has one row.
func (v *Viewers) WatchStatus(ctx context.Context, after *console.Position, namespace string) (console.Update, error) {
	return v.status.watchList(ctx, after, namespace)
}

func newLists(c Config) (upstreams *polled[model.UpstreamStatus], backends *polled[model.BackendStatus], status *polled[any]) {
	upstreams = newPolled(c.Plane, func(model.UpstreamStatus) string { return "" }, func(ctx context.Context) (map[string][]model.UpstreamStatus, error) {
		rows, err := c.Lists.Upstreams(ctx)
		return grouped(rows, func(u model.UpstreamStatus) string { return u.Name }), err
	})
	backends = newPolled(c.Plane, func(b model.BackendStatus) string { return b.Owner.Namespace }, func(ctx context.Context) (map[string][]model.BackendStatus, error) {
		rows, err := c.Lists.Backends(ctx)
		return grouped(rows, func(b model.BackendStatus) string { return b.Frontend.String() }), err
	})
	status = newPolled(c.Plane, func(any) string { return "" }, func(ctx context.Context) (map[string][]any, error) {
		return partsOf(c.Lists.Status(ctx)), nil
	})
	return upstreams, backends, status
}

func grouped[R any](rows []R, key func(R) string) map[string][]R {
	blocks := map[string][]R{}
	for _, r := range rows {
		blocks[key(r)] = append(blocks[key(r)], r)
	}
	return blocks
}

// partsOf are the parts of a status, by their kind and name.
func partsOf(s model.Status) map[string][]any {
	parts := map[string][]any{"plane": {s.Plane}, "upstreams": {s.Upstreams}}
	put := func(kind string, name, part any) {
		key := fmt.Sprint(kind, " ", name)
		parts[key] = append(parts[key], part)
	}
	for _, m := range s.Machines {
		put("machine", m.Name, m)
	}
	for _, l := range s.Listeners {
		put("listener", l.ID, l)
	}
	for _, v := range s.VIPs {
		put("vip", v.Address, v)
	}
	for _, f := range s.Frontends {
		put("frontend", f.FrontendKey, f)
	}
	for _, b := range s.Sessions {
		put("session", b.Machine, b)
	}
	for _, c := range s.Certificates {
		put("certificate", c.ID, c)
	}
	for _, x := range s.Problems {
		put("problem", x.Subject, x)
	}
	return parts
}

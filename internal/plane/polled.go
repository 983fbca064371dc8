package plane

import (
	"context"
	"fmt"
	"time"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/listing"
	"fairlead.dev/internal/model"
)

const (
	// pollGap is the least time between two looks at a list that is watched, and pollShare bounds what they take of the time: one
	// part in so many.
	pollGap   = time.Second
	pollShare = 50
)

// polled is a list that is made as a whole, again and again while somebody watches it.
type polled[R any] struct {
	feed[R]
	plane *Plane
	ask   func(context.Context) (map[string][]R, error)

	// Guarded by mu of the feed.
	polling bool
	ready   chan struct{} // closed once the list is of these looks
	failed  error         // of the last look
}

func newPolled[R any](p *Plane, namespace func(R) string, ask func(context.Context) (map[string][]R, error)) *polled[R] {
	return &polled[R]{feed: feed[R]{list: listing.New(namespace)}, plane: p, ask: ask}
}

// watchList waits for changes after a position.
func (f *polled[R]) watchList(ctx context.Context, after *console.Position, namespace string) (console.Update, error) {
	defer f.watch()()
	f.mu.Lock()
	if !f.polling {
		f.polling, f.ready = true, make(chan struct{})
		go f.poll()
	}
	ready := f.ready
	f.mu.Unlock()
	select {
	case <-ready:
	case <-ctx.Done():
		return console.Update{}, ctx.Err()
	}
	f.mu.Lock()
	err := f.failed
	f.mu.Unlock()
	if err != nil {
		return console.Update{}, err
	}
	return f.follow(ctx, f.plane.serving.Load(), after, namespace)
}

// poll looks at the list until nobody watches it.
func (f *polled[R]) poll() {
	ctx := context.Background()
	for first := true; ; first = false {
		began := time.Now()
		blocks, err := f.ask(ctx)
		if err == nil {
			f.change(f.plane.views.Revision(), func(list *listing.List[R]) {
				for _, key := range list.Keys() {
					if _, stays := blocks[key]; !stays {
						list.Put(key, nil)
					}
				}
				for key, rows := range blocks {
					list.Put(key, rows)
				}
			})
		}
		f.mu.Lock()
		f.failed = err
		if first {
			close(f.ready)
		}
		f.mu.Unlock()
		time.Sleep(max(pollGap, pollShare*time.Since(began)))
		f.mu.Lock()
		ends := f.watchers.Load() == 0 || f.plane.ended.Load()
		f.polling = !ends
		f.mu.Unlock()
		if ends {
			return
		}
	}
}

// WatchUpstreams waits for changes of upstreams after a position.
func (p *Plane) WatchUpstreams(ctx context.Context, after *console.Position, namespace string) (console.Update, error) {
	return p.watched.upstreams.watchList(ctx, after, namespace)
}

// WatchBackends waits for changes of the backends of frontends, without figures, after a position.
func (p *Plane) WatchBackends(ctx context.Context, after *console.Position, namespace string) (console.Update, error) {
	return p.watched.backends.watchList(ctx, after, namespace)
}

// WatchStatus waits for changes of the status, but for its routes, after a position. Each block has one row.
func (p *Plane) WatchStatus(ctx context.Context, after *console.Position, namespace string) (console.Update, error) {
	return p.watched.status.watchList(ctx, after, namespace)
}

// watched are the lists that are polled while somebody watches.
type watched struct {
	upstreams *polled[model.UpstreamStatus]
	backends  *polled[model.BackendStatus]
	status    *polled[any]
}

func newWatched(p *Plane) watched {
	return watched{
		upstreams: newPolled(p, func(model.UpstreamStatus) string { return "" }, func(ctx context.Context) (map[string][]model.UpstreamStatus, error) {
			rows, err := p.Upstreams(ctx, "")
			return grouped(rows, func(u model.UpstreamStatus) string { return u.Name }), err
		}),
		backends: newPolled(p, func(b model.BackendStatus) string { return b.Owner.Namespace }, func(ctx context.Context) (map[string][]model.BackendStatus, error) {
			rows, err := question(ctx, p, func(l *loop) []model.BackendStatus { rows, _ := l.backendStatuses("", nil); return rows })
			return grouped(rows, func(b model.BackendStatus) string { return b.Frontend.String() }), err
		}),
		status: newPolled(p, func(any) string { return "" }, func(ctx context.Context) (map[string][]any, error) {
			return partsOf(p.Status(ctx)), nil
		}),
	}
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

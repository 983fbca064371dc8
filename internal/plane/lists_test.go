package plane

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/watch"
)

// watcher follows a list as a reader of its stream does.
type watcher struct {
	mu    sync.Mutex
	known map[string]string // rows by block, as JSON
	resets,
	updates int
}

func newWatcher(t *testing.T, follow console.Watch, namespace string) *watcher {
	t.Helper()
	w := &watcher{known: map[string]string{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		var after *console.Position
		for ctx.Err() == nil {
			u, err := follow(ctx, after, namespace)
			if err != nil {
				continue
			}
			after = &u.At
			w.take(u)
		}
	}()
	return w
}

func (w *watcher) take(u console.Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.updates++
	if u.Reset {
		w.resets++
		clear(w.known)
	}
	for _, b := range u.Blocks {
		text, err := json.Marshal(b.Rows)
		switch {
		case err != nil:
			w.known[b.Key] = err.Error()
		case string(text) == "[]":
			delete(w.known, b.Key)
		default:
			w.known[b.Key] = string(text)
		}
	}
}

// knows checks that the watcher knows what a list has.
func (w *watcher) knows(rows []model.RouteRow) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	want := map[string]string{}
	blocks := map[string][]model.RouteRow{}
	for _, r := range rows {
		key := string(r.Listener) + " " + r.Host
		blocks[key] = append(blocks[key], r)
	}
	for key, rows := range blocks {
		text, err := json.Marshal(rows)
		if err != nil {
			return err
		}
		want[key] = string(text)
	}
	if !reflect.DeepEqual(w.known, want) {
		return fmt.Errorf("the watcher knows %v, and the list has %v", w.known, want)
	}
	return nil
}

// TestRoutesAreWatched: the rows of routes follow changes host by host, and are those that are made as a whole; watchers know them.
func TestRoutesAreWatched(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	all, none := newWatcher(t, p.WatchRoutes, ""), newWatcher(t, p.WatchRoutes, "elsewhere")
	settled := func(what string, check func([]model.RouteRow) error) {
		t.Helper()
		eventually(t, what, func() error {
			rows, err := p.Routes(t.Context(), RouteFilter{})
			if err != nil {
				return err
			}
			whole, err := question(t.Context(), p.Plane, func(l *loop) []model.RouteRow {
				f := watch.NewList(func(model.RouteRow) string { return "" })
				for rows := newRouteRows(f); !rows.bring(l); {
				}
				return f.Rows()
			})
			if err == nil && !reflect.DeepEqual(rows, whole) {
				err = fmt.Errorf("the rows are %+v, and %+v if they are made as a whole", rows, whole)
			}
			if err != nil {
				return err
			}
			if err := check(rows); err != nil {
				return err
			}
			return all.knows(rows)
		})
	}
	one := func(check func(model.RouteRow) bool) func([]model.RouteRow) error {
		return func(rows []model.RouteRow) error {
			if !slices.ContainsFunc(rows, check) {
				return fmt.Errorf("the rows are %+v", rows)
			}
			return nil
		}
	}
	settled("the route is programmed", one(func(r model.RouteRow) bool { return r.State == "programmed" && r.Backends[0].Ready == 2 }))
	edit(r, slice("app"), func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[:1] })
	settled("a backend is gone", one(func(r model.RouteRow) bool { return r.Backends[0].Ready == 1 }))
	r.create(httpRoute("other", "other.example", "missing"))
	settled("a route without a Service comes", one(func(r model.RouteRow) bool { return r.Host == "other.example" }))
	r.create(service("missing"), slice("missing", "10.1.0.9"))
	settled("its Service comes", one(func(r model.RouteRow) bool {
		return r.Host == "other.example" && len(r.Backends) == 1 && r.Backends[0].Ready == 1 && r.State == "programmed"
	}))
	edit(r, httpRoute("other", "", ""), func(o *gatewayv1.HTTPRoute) { o.Spec.Hostnames = []gatewayv1.Hostname{"moved.example"} })
	settled("the route moves", one(func(r model.RouteRow) bool { return r.Host == "moved.example" && r.State == "programmed" }))
	if err := r.client.Delete(t.Context(), httpRoute("app", "", "")); err != nil {
		t.Fatal(err)
	}
	settled("the route is gone", func(rows []model.RouteRow) error {
		if len(rows) != 1 {
			return fmt.Errorf("the rows are %+v", rows)
		}
		return nil
	})
	if all.resets != 1 {
		t.Errorf("the watcher began anew %d times", all.resets)
	}
	none.mu.Lock()
	defer none.mu.Unlock()
	if none.updates > 1 || len(none.known) > 0 {
		t.Errorf("who watches another namespace was told %d times: %v", none.updates, none.known)
	}
	if got := (RouteFilter{Namespace: "elsewhere"}).of(p.routes.Rows()); len(got) != 0 {
		t.Errorf("another namespace has %+v", got)
	}
}

// TestPolledListsAreWatched: what is made as a whole is made again only while somebody watches, and told as changes.
func TestPolledListsAreWatched(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	w := newWatcher(t, p.WatchStatus, "")
	knows := func(key string, want bool) {
		t.Helper()
		eventually(t, "the watcher knows of "+key, func() error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if _, known := w.known[key]; known != want {
				return fmt.Errorf("known: %v, of %v", known, w.known)
			}
			return nil
		})
	}
	knows("plane", true)
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	knows("machine edge-1", true)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resets != 1 {
		t.Errorf("the watcher began anew %d times", w.resets)
	}
}

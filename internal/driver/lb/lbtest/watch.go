package lbtest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.dev/internal/model"
)

// flowWatcher is a data plane that tells of flows as they begin, move and end.
type flowWatcher interface {
	WatchFlows(ctx context.Context, frontends []model.FrontendKey, tell func(model.FlowEvent), lost func(model.FrontendKey, uint64)) error
}

// told is what a data plane tells.
type told struct {
	mu     sync.Mutex
	events []model.FlowEvent
	err    error
}

// watch has a data plane tell of frontends.
func (t *told) watch(ctx context.Context, p DataPlane, keys []model.FrontendKey) error {
	w, is := p.(flowWatcher)
	if !is {
		return fmt.Errorf("%T does not tell of flows", p)
	}
	go func() {
		err := w.WatchFlows(ctx, keys, func(e model.FlowEvent) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.events = append(t.events, e)
		}, func(model.FrontendKey, uint64) {})
		t.mu.Lock()
		defer t.mu.Unlock()
		t.err = err
	}()
	return nil
}

// take is what was told so far.
func (t *told) take() ([]model.FlowEvent, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.events), t.err
}

// watched: who watches is told of a flow's begin, of its move, and of its end, and why.
func watched(x *site) {
	set := x.tcp(3)
	_, err := x.plane.call(request{Op: "watch", Keys: []model.FrontendKey{set[0].Frontend.FrontendKey, set[1].Frontend.FrontendKey}})
	must(x.t, err)
	for _, f := range set {
		k := f.Frontend.FrontendKey
		x.set(f)
		// It takes a moment until something is told.
		x.until(k, "a begin", func(e model.FlowEvent) bool { return e.Kind == model.FlowBegin }, func() {
			c, _ := x.connect(netip.Addr{}, k)
			_ = c.Close()
		})
		c, _ := x.connect(netip.Addr{}, k)
		client := netip.MustParseAddrPort(c.LocalAddr().String())
		begin := x.until(k, "the begin", func(e model.FlowEvent) bool { return e.Kind == model.FlowBegin && e.Client == client }, nil)
		if begin.Reason != "" || begin.DataPlane != x.subject.Kind || begin.Frontend != k || time.Since(begin.At).Abs() > time.Minute {
			x.t.Errorf("%s: the begin is %+v", k, begin)
		}
		at := slices.IndexFunc(f.Backends, func(b model.FrontendBackend) bool { return b.Address == begin.Backend })
		if at < 0 {
			x.t.Fatalf("%s: a flow to no backend: %+v", k, begin)
		}
		_ = c.Close()
		end := x.until(k, "the end", func(e model.FlowEvent) bool { return e.Kind == model.FlowEnd && e.Client == client }, nil)
		if end.Backend != begin.Backend || !slices.Contains([]model.FlowCause{model.FlowFIN, model.FlowBackendFIN}, end.Reason) {
			x.t.Errorf("%s: the end is %+v", k, end)
		}
		c, _ = x.connect(netip.Addr{}, k)
		client = netip.MustParseAddrPort(c.LocalAddr().String())
		begin = x.until(k, "another begin", func(e model.FlowEvent) bool { return e.Kind == model.FlowBegin && e.Client == client }, nil)
		x.set(changed(f, func(b []model.FrontendBackend) []model.FrontendBackend {
			return slices.DeleteFunc(b, func(b model.FrontendBackend) bool { return b.Address == begin.Backend })
		}))
		move := x.until(k, "the move", func(e model.FlowEvent) bool { return e.Client == client && e.Kind != model.FlowBegin }, func() { _, _ = c.Write([]byte("who\n")) })
		if move.Kind == model.FlowMove && (move.From != begin.Backend || move.Backend == begin.Backend) ||
			!slices.Contains([]model.FlowCause{model.FlowGone, model.FlowUnready}, move.Reason) {
			x.t.Errorf("%s: after %+v the move is %+v", k, begin, move)
		}
	}
}

// until returns the first event that is wanted, and meanwhile does something again and again.
func (x *site) until(k model.FrontendKey, what string, wanted func(model.FlowEvent) bool, again func()) model.FlowEvent {
	x.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		r, err := x.plane.call(request{Op: "told"})
		must(x.t, err)
		if i := slices.IndexFunc(r.Told, func(e model.FlowEvent) bool { return e.Frontend == k && wanted(e) }); i >= 0 {
			return r.Told[i]
		}
		if time.Now().After(deadline) {
			x.t.Fatalf("%s: %s is not told, only %+v", k, what, r.Told)
		}
		if again != nil {
			again()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

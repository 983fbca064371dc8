package agent

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/tap"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// flowTapRate is how many events of a tap the machine sends a second, and flowTapsRate how many of all taps.
	flowTapRate, flowTapsRate = 200, 1000
	// maxFlowTaps is how many taps of flows a machine serves, and maxFlowTapFrontends of how many frontends.
	maxFlowTaps, maxFlowTapFrontends = 32, 256
	// flowWatchAgain is how long a data plane that cannot tell of flows is left alone.
	flowWatchAgain = 5 * time.Second
	// flowWatchEnds is how long it is waited for one to end.
	flowWatchEnds = 2 * time.Second
)

// flowTapper shows flows to a plane while somebody looks.
type flowTapper struct {
	planes func() []BalancingPlane
	why    func(model.FrontendKey, *model.FlowEvent) model.FlowCause // of a backend that takes no packets
	log    *slog.Logger
	now    func() time.Time

	mu       sync.Mutex
	taps     map[uint64]*flowTapped
	all      *tap.Bound
	events   []*agentv1.FlowEvent
	troubles map[model.DataPlaneKind]string

	notesAt time.Time // of noted, of the goroutine that reports
	noted   map[model.FrontendKey]string

	watched []model.FrontendKey // by the watchers that run
	stop    func()              // ends them, and waits a little
}

type flowTapped struct {
	want      model.FlowTap
	frontends map[model.FrontendKey]bool
	bound     *tap.Bound
	dropped   uint64
}

func newFlowTapper(b *balancer, now func() time.Time, log *slog.Logger) *flowTapper {
	return &flowTapper{
		planes: func() []BalancingPlane { return b.drivers.Planes }, why: b.unreadyBecause, now: now, log: log,
		taps: map[uint64]*flowTapped{}, troubles: map[model.DataPlaneKind]string{}, stop: func() {},
	}
}

// set replaces the taps, and says whether there are any. Nothing watches while there are none.
func (t *flowTapper) set(list []*agentv1.FlowTap) bool {
	now := t.now()
	taps, union := map[uint64]*flowTapped{}, map[model.FrontendKey]bool{}
	t.mu.Lock()
	for _, m := range list[:min(len(list), maxFlowTaps)] {
		want, err := wire.FlowTapOf(m)
		if err != nil {
			t.log.Warn("the plane asks for flows in words that this version does not know", "error", err)
			continue
		}
		one := t.taps[m.GetId()]
		if one == nil {
			one = &flowTapped{bound: tap.NewBound(flowTapRate, now)}
		}
		one.want, one.frontends = want, map[model.FrontendKey]bool{}
		for _, key := range want.Frontends {
			if union[key] || len(union) < maxFlowTapFrontends {
				one.frontends[key], union[key] = true, true
			}
		}
		taps[m.GetId()] = one
	}
	if len(t.taps) == 0 {
		t.all = tap.NewBound(flowTapsRate, now)
	}
	t.taps = taps
	if len(taps) == 0 {
		t.events = nil
	}
	t.mu.Unlock()
	watched := slices.SortedFunc(maps.Keys(union), model.FrontendKey.Compare)
	if !slices.Equal(watched, t.watched) {
		t.stop()
		t.watched, t.stop = watched, t.watch(watched)
	}
	return len(taps) > 0
}

// watch has every data plane tell of frontends. What it returns ends that.
func (t *flowTapper) watch(frontends []model.FrontendKey) (stop func()) {
	if len(frontends) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watchers sync.WaitGroup
	for _, p := range t.planes() {
		w := watcherOf(p)
		if w == nil {
			continue
		}
		watchers.Go(func() {
			for ctx.Err() == nil {
				err := w.WatchFlows(ctx, frontends, t.tell, t.lost)
				t.mu.Lock()
				t.troubles[p.Kind] = ""
				if err != nil {
					t.troubles[p.Kind] = err.Error()
				}
				t.mu.Unlock()
				if err == nil {
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(flowWatchAgain):
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		watchers.Wait()
		close(ended)
	}()
	return func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(flowWatchEnds): // a kernel that does not answer holds up nothing else
		}
	}
}

// tell takes an event of a data plane.
func (t *flowTapper) tell(e model.FlowEvent) {
	now := t.now()
	if e.Reason == model.FlowUnready {
		e.Reason = t.why(e.Frontend, &e)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var takers []uint64
	for id, one := range t.taps {
		if !one.frontends[e.Frontend] || !one.want.Matches(&e) {
			continue
		}
		if !one.bound.Allow(now) || !t.all.Allow(now) || len(t.events) >= model.MaxTapRecords {
			one.dropped++
			continue
		}
		one.bound.Take()
		takers = append(takers, id)
	}
	if len(takers) == 0 {
		return
	}
	t.all.Take()
	slices.Sort(takers)
	t.events = append(t.events, wire.FlowEvent(e, takers))
}

// lost counts events that a data plane did not tell.
func (t *flowTapper) lost(key model.FrontendKey, n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.taps {
		if one.frontends[key] {
			one.dropped += n
		}
	}
}

// report adds what has come since the last one, and says whether that is anything.
func (t *flowTapper) report(to *agentv1.TapReport) bool {
	t.mu.Lock()
	looked := len(t.taps) > 0
	t.mu.Unlock()
	if now := t.now(); looked && now.Sub(t.notesAt) >= time.Second {
		t.notesAt, t.noted = now, t.notes()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	to.Flows, t.events = t.events, nil
	news := len(to.GetFlows()) > 0
	for _, id := range slices.Sorted(maps.Keys(t.taps)) {
		one := t.taps[id]
		state, said := &agentv1.FlowTapState{Id: id, Dropped: one.dropped}, map[string]bool{}
		news, one.dropped = news || one.dropped > 0, 0
		for key := range one.frontends {
			if note, has := t.noted[key]; has {
				said[note] = true
			}
		}
		if len(said) == 0 {
			said["it balances none of these frontends"] = true
		}
		state.Notes = slices.Sorted(maps.Keys(said))
		to.FlowTaps = append(to.FlowTaps, state)
	}
	return news
}

// notes are what data planes do not tell of the frontends that they have.
func (t *flowTapper) notes() map[model.FrontendKey]string {
	notes := map[model.FrontendKey]string{}
	t.mu.Lock()
	troubles := maps.Clone(t.troubles)
	t.mu.Unlock()
	for _, p := range t.planes() {
		note := string(p.Kind) + ": "
		switch w := watcherOf(p); {
		case w == nil:
			note += "it tells nothing of flows"
		case troubles[p.Kind] != "":
			note += troubles[p.Kind]
		default:
			note += w.FlowLimits()
		}
		for _, o := range p.Observed() {
			if o.State == model.FrontendBalanced {
				notes[o.FrontendKey] = note
			}
		}
	}
	return notes
}

// unreadyBecause is why a backend that a flow left takes no packets.
func (b *balancer) unreadyBecause(key model.FrontendKey, e *model.FlowEvent) model.FlowCause {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.backends[key] {
		if one.Address != e.From {
			continue
		}
		switch {
		case one.Health == model.Unhealthy:
			return model.FlowUnhealthy
		case one.State == model.BackendDraining:
			return model.FlowDrained
		}
		return model.FlowUnready
	}
	return model.FlowGone
}

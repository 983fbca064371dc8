package agent

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"fairlead.dev/internal/model"
)

// FlowWatcher is a data plane that tells of flows as they begin, move and end.
type FlowWatcher interface {
	// WatchFlows tells of flows of some frontends until ctx is done, and counts those events of a frontend for which there
	// was no room. Neither blocks. It watches those of the frontends that the data plane has, also when they come later.
	WatchFlows(ctx context.Context, frontends []model.FrontendKey, tell func(model.FlowEvent), lost func(model.FrontendKey, uint64)) error
	// FlowLimits is what it does not tell, for people.
	FlowLimits() string
}

const (
	// flowDiffEvery is how far two looks at a flow table are from each other.
	flowDiffEvery = time.Second
	// flowDiffMost is how many flows are compared.
	flowDiffMost = 10_000
)

// watcherOf is what tells of the flows of a data plane: itself, or the differences of its flow table; nil if it has none.
func watcherOf(p BalancingPlane) FlowWatcher {
	if w, is := p.DataPlane.(FlowWatcher); is {
		return w
	}
	if i, is := p.DataPlane.(Inspector); is {
		return flowDiff{i, p.Kind}
	}
	return nil
}

// flowDiff tells of flows by what changes in a flow table.
type flowDiff struct {
	Inspector
	kind model.DataPlaneKind
}

// FlowLimits implements FlowWatcher.
func (flowDiff) FlowLimits() string {
	return "the flow table is looked at once a second: flows that are shorter are not shown, nor which side ended a flow; 10,000 flows are compared"
}

// WatchFlows implements FlowWatcher.
func (d flowDiff) WatchFlows(ctx context.Context, frontends []model.FrontendKey, tell func(model.FlowEvent), lost func(model.FrontendKey, uint64)) error {
	ticker := time.NewTicker(flowDiffEvery)
	defer ticker.Stop()
	q := model.FlowQuery{Limit: flowDiffMost} // one look at the table for all frontends
	if len(frontends) == 1 {
		q.Frontend = frontends[0]
	}
	var before map[model.FrontendKey]flowTable
	for {
		list, more, err := d.Flows(q)
		if err != nil {
			return fmt.Errorf("compare flow tables: %w", err)
		}
		now := map[model.FrontendKey]flowTable{}
		for _, key := range frontends {
			now[key] = flowTable{}
		}
		for _, f := range list {
			if t, watched := now[f.Frontend]; watched {
				t[f.Client] = f
			}
		}
		for _, key := range frontends {
			if more {
				lost(key, 1) // at least
			}
			if before == nil {
				continue
			}
			for _, e := range before[key].until(now[key], more) {
				e.At, e.Frontend, e.DataPlane = time.Now(), key, d.kind
				tell(e)
			}
		}
		before = now
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// flowTable are flows by their clients.
type flowTable map[netip.AddrPort]model.Flow

// closingState is the state of a flow that one side has ended.
const closingState = "closing"

// until are the events between two looks at a table. If the later look is not whole, what it lacks has not ended.
func (t flowTable) until(now flowTable, cut bool) (events []model.FlowEvent) {
	for client, f := range now {
		was, had := t[client]
		e := model.FlowEvent{Client: client, Backend: f.Backend, BackendMachine: f.Machine}
		switch {
		case f.State == closingState:
			if had && was.State == closingState {
				continue
			}
			if !had {
				e.Kind = model.FlowBegin
				events = append(events, e)
			}
			e.Kind, e.Reason = model.FlowEnd, model.FlowClosed
		case !had, was.State == closingState:
			e.Kind = model.FlowBegin
			if had {
				e.Reason = model.FlowAgain
			}
		case was.Backend != f.Backend:
			e.Kind, e.From = model.FlowMove, was.Backend
			e.Reason = model.FlowUnready
		default:
			continue
		}
		events = append(events, e)
	}
	if cut {
		return events
	}
	for client, f := range t {
		if _, has := now[client]; !has && f.State != closingState {
			events = append(events, model.FlowEvent{Kind: model.FlowEnd, Reason: model.FlowForgotten, Client: client, Backend: f.Backend, BackendMachine: f.Machine})
		}
	}
	return events
}

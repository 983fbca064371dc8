package plane

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/provenance"
)

// ExplainFlow says what becomes of a flow with what is published now, and asks the
// machines whether their flow tables have it.
func (p *Plane) ExplainFlow(ctx context.Context, r explain.FlowRequest) (explain.FlowExplanation, error) {
	w, err := question(ctx, p, func(l *loop) *explain.FlowWorld {
		if !l.synced {
			return nil
		}
		w := l.flowWorld(r)
		return &w
	})
	switch {
	case err != nil:
		return explain.FlowExplanation{}, err
	case w == nil:
		return explain.FlowExplanation{}, errNotSynced
	}
	if w.Balanced != nil {
		answers, silent, err := p.flows(ctx, r.Machine, model.FlowQuery{
			Frontend: r.Frontend, Client: netip.PrefixFrom(r.Client.Addr(), r.Client.Addr().BitLen()),
		})
		if err != nil {
			return explain.FlowExplanation{}, err
		}
		w.Silent = silent
		for _, machine := range slices.Sorted(maps.Keys(answers)) {
			for _, f := range answers[machine].Flows {
				if f.Client == r.Client {
					w.Flows = append(w.Flows, explain.FlowAt{At: machine, Flow: f})
				}
			}
		}
	}
	p.dateDiscovered(ctx, w.Groups)
	return explain.Flow(r, *w), nil
}

// flowWorld is what the loop knows of a flow's frontend.
func (l *loop) flowWorld(r explain.FlowRequest) explain.FlowWorld {
	k, w := r.Frontend, explain.FlowWorld{}
	for _, v := range l.vipStatuses() {
		if v.Address == k.VIP {
			w.VIP = &v
		}
	}
	for other := range l.frontends.all() {
		w.FromVIP = w.FromVIP || other.VIP == r.Client.Addr()
		if other.VIP == k.VIP && other != k {
			w.Others = append(w.Others, other)
		}
	}
	e := l.frontends.find(k)
	if e == nil {
		return w
	}
	w.Balanced = &model.Balanced{Frontend: e.frontend, Backends: e.backends}
	discovered := provenance.Resources{Snapshot: l.snapshot, Statuses: l.statuses, Translator: l.translator}.World().DiscoveredOf
	for _, t := range e.frontend.Targets {
		if d := discovered(t.Set); d != nil {
			w.Groups = append(w.Groups, explain.Group{Group: model.GroupID(t.Set), Upstream: d})
		}
	}
	for _, name := range e.at {
		state, known := l.plane.server.Machine(name)
		if !seen(state, known) {
			continue
		}
		for _, o := range state.Frontends {
			if o.FrontendKey == k {
				w.At = append(w.At, explain.FrontendAt{Machine: name, FrontendObserved: o})
			}
		}
	}
	return w
}

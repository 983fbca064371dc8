package wire

import (
	"strings"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// GroupFigures words what a machine's proxy has counted of groups.
func GroupFigures(groups []model.GroupTraffic) []*agentv1.GroupFigures {
	var out []*agentv1.GroupFigures
	for i := range groups {
		g := &groups[i].GroupFigures
		out = append(out, &agentv1.GroupFigures{
			Name: string(g.Group), Requests: g.Requests, Errors: g.Errors, Backends: g.Backends, Healthy: g.Healthy,
		})
	}
	return out
}

// RequestFigures words what a machine's proxy has counted of requests.
func RequestFigures(requests []model.RequestFigures) []*agentv1.RequestFigures {
	var out []*agentv1.RequestFigures
	for i := range requests {
		r := &requests[i]
		out = append(out, &agentv1.RequestFigures{Listener: string(r.Listener), Host: r.Host, Route: r.Route, Classes: r.Classes[:]})
	}
	return out
}

// RequestFiguresOf reads what RequestFigures wrote. Classes that this version does not know are left out.
func RequestFiguresOf(requests []*agentv1.RequestFigures) []model.RequestFigures {
	out := make([]model.RequestFigures, 0, len(requests))
	for _, r := range requests {
		m := model.RequestFigures{Listener: model.ListenerID(r.GetListener()), Host: r.GetHost(), Route: r.GetRoute()}
		copy(m.Classes[:], r.GetClasses())
		out = append(out, m)
	}
	return out
}

// FiguresOf reads what GroupFigures wrote.
func FiguresOf(f *agentv1.Figures) []model.GroupFigures {
	groups := make([]model.GroupFigures, 0, len(f.GetGroups()))
	for _, g := range f.GetGroups() {
		name, _, _ := strings.Cut(g.GetName(), "@") // an older agent has the Upstream in it, as Envoy's statistics have
		groups = append(groups, model.GroupFigures{
			Group: model.GroupID(name), Requests: g.GetRequests(), Errors: g.GetErrors(), Backends: g.GetBackends(), Healthy: g.GetHealthy(),
		})
	}
	return groups
}

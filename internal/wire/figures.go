package wire

import (
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// Figures answers the plane's question of a number.
func Figures(asked uint64, groups []model.GroupFigures) *agentv1.Figures {
	f := &agentv1.Figures{Asked: asked}
	for _, g := range groups {
		f.Groups = append(f.Groups, &agentv1.GroupFigures{
			Name: string(g.Group), Requests: g.Requests, Errors: g.Errors, Backends: g.Backends, Healthy: g.Healthy,
		})
	}
	return f
}

// FiguresOf reads what Figures wrote.
func FiguresOf(f *agentv1.Figures) []model.GroupFigures {
	groups := make([]model.GroupFigures, 0, len(f.GetGroups()))
	for _, g := range f.GetGroups() {
		groups = append(groups, model.GroupFigures{
			Group: model.GroupID(g.GetName()), Requests: g.GetRequests(), Errors: g.GetErrors(), Backends: g.GetBackends(), Healthy: g.GetHealthy(),
		})
	}
	return groups
}

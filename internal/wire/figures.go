package wire

import (
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// RequestFigures words what a machine's proxy has counted of requests.
func RequestFigures(requests []model.RequestFigures) []*agentv1.RequestFigures {
	var out []*agentv1.RequestFigures
	for i := range requests {
		r := &requests[i]
		out = append(out, &agentv1.RequestFigures{Listener: string(r.Listener), Host: r.Host, Route: r.Route, Group: string(r.Group), Classes: r.Classes[:]})
	}
	return out
}

// RequestFiguresOf reads what RequestFigures wrote. Classes that this version does not know are left out.
func RequestFiguresOf(requests []*agentv1.RequestFigures) []model.RequestFigures {
	out := make([]model.RequestFigures, 0, len(requests))
	for _, r := range requests {
		m := model.RequestFigures{Listener: model.ListenerID(r.GetListener()), Host: r.GetHost(), Route: r.GetRoute(), Group: model.GroupID(r.GetGroup())}
		copy(m.Classes[:], r.GetClasses())
		out = append(out, m)
	}
	return out
}

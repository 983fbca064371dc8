package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// GroupLoads word what a machine's proxies have counted of backends.
func GroupLoads(loads []model.GroupLoad) []*agentv1.GroupLoad {
	var out []*agentv1.GroupLoad
	for _, g := range loads {
		m := &agentv1.GroupLoad{Group: string(g.Group), Age: durationpb.New(g.Age)}
		for _, b := range g.Backends {
			m.Backends = append(m.Backends, &agentv1.BackendLoad{
				Address: b.Address.Addr().AsSlice(), Port: uint32(b.Address.Port()), Requests: b.Requests, Succeeded: b.Succeeded, Failed: b.Failed,
				InFlight: b.InFlight, Timed: b.Timed, Micros: b.Micros, Named: b.Named,
			})
		}
		out = append(out, m)
	}
	return out
}

// GroupLoadsOf reads what GroupLoads wrote. A backend without an address is left out.
func GroupLoadsOf(loads []*agentv1.GroupLoad) []model.GroupLoad {
	var out []model.GroupLoad
	for _, m := range loads {
		g := model.GroupLoad{Group: model.GroupID(m.GetGroup()), Age: max(m.GetAge().AsDuration(), 0)}
		for _, b := range m.GetBackends() {
			if at, ok := addrPort(b.GetAddress(), b.GetPort()); ok {
				g.Backends = append(g.Backends, model.BackendLoad{
					Address: at, Requests: b.GetRequests(), Succeeded: b.GetSucceeded(), Failed: b.GetFailed(), InFlight: b.GetInFlight(),
					Timed: b.GetTimed(), Micros: b.GetMicros(), Named: b.GetNamed(),
				})
			}
		}
		out = append(out, g)
	}
	return out
}

package wire

import (
	"net/netip"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// FrontendStates words what a machine does about frontends.
func FrontendStates(frontends []model.FrontendObserved) []*agentv1.FrontendState {
	var out []*agentv1.FrontendState
	for _, f := range frontends {
		out = append(out, &agentv1.FrontendState{
			Name: f.String(), State: string(f.State), Mode: string(f.Mode), DataPlane: string(f.DataPlane),
			Message: text(f.Message), Available: f.Available, Parting: f.Parting,
		})
	}
	return out
}

// FrontendStatesOf is what a report says of frontends, sorted. Names that are none are
// left out.
func FrontendStatesOf(frontends []*agentv1.FrontendState) []model.FrontendObserved {
	var out []model.FrontendObserved
	for _, f := range frontends {
		if key, err := model.ParseFrontend(f.GetName()); err == nil {
			out = append(out, model.FrontendObserved{
				FrontendKey: key, State: model.FrontendState(f.GetState()), Mode: model.ForwardMode(f.GetMode()),
				DataPlane: model.DataPlaneKind(f.GetDataPlane()), Message: f.GetMessage(), Available: f.GetAvailable(), Parting: f.GetParting(),
			})
		}
	}
	slices.SortStableFunc(out, func(a, b model.FrontendObserved) int { return a.Compare(b.FrontendKey) })
	return out
}

// CheckResults words what a machine's checks found.
func CheckResults(results []model.CheckResult) []*agentv1.CheckResult {
	var out []*agentv1.CheckResult
	for _, r := range results {
		out = append(out, &agentv1.CheckResult{Name: r.ID, Health: string(r.Health), Since: timestamp(r.Since), Message: text(r.Message), First: r.First})
	}
	return out
}

// CheckResultsOf is what a report says of checks, in its order. Health that is not known
// is no verdict yet.
func CheckResultsOf(results []*agentv1.CheckResult) []model.CheckResult {
	var out []model.CheckResult
	for _, r := range results {
		m := model.CheckResult{ID: r.GetName(), Health: model.Health(r.GetHealth()), Since: timeOf(r.GetSince()), Message: r.GetMessage(), First: r.GetFirst()}
		if m.Health != model.Healthy && m.Health != model.Unhealthy {
			m.Health = model.HealthUnknown
		}
		out = append(out, m)
	}
	return out
}

// Ejected words what a machine's proxy holds for failed, sorted.
func Ejected(ejections []model.Ejection) []*agentv1.Ejected {
	var out []*agentv1.Ejected
	for _, e := range ejections {
		if len(out) == 0 || out[len(out)-1].GetGroup() != string(e.Group) {
			out = append(out, &agentv1.Ejected{Group: string(e.Group)})
		}
		of := out[len(out)-1]
		of.Backends = append(of.Backends, e.Backend.String())
	}
	return out
}

// EjectedOf is what a report says of them, sorted. What is no address is left out.
func EjectedOf(ejected []*agentv1.Ejected) []model.Ejection {
	var out []model.Ejection
	for _, of := range ejected {
		for _, text := range of.GetBackends() {
			if b, err := netip.ParseAddrPort(text); err == nil {
				out = append(out, model.Ejection{Group: model.GroupID(of.GetGroup()), Backend: netip.AddrPortFrom(b.Addr().Unmap(), b.Port())})
			}
		}
	}
	slices.SortFunc(out, model.Ejection.Compare)
	return slices.Compact(out)
}

// FrontendFigures words what a machine has counted of frontends.
func FrontendFigures(frontends []model.FrontendFigures) []*agentv1.FrontendFigures {
	var out []*agentv1.FrontendFigures
	for _, f := range frontends {
		w := &agentv1.FrontendFigures{Name: f.String(), Packets: f.Packets, Bytes: f.Bytes, NewFlows: f.NewFlows}
		for _, b := range f.Backends {
			of := &agentv1.BackendFigures{
				Address: b.Address.Addr().AsSlice(), Port: uint32(b.Address.Port()), Machine: b.Machine,
				Packets: b.Packets, Bytes: b.Bytes, NewFlows: b.NewFlows, Flows: b.Flows, Rows: b.Rows, Tunnelled: b.Tunnelled,
			}
			if b.Owns {
				of.Owned = &b.Owned
			}
			w.Backends = append(w.Backends, of)
		}
		out = append(out, w)
	}
	return out
}

// FrontendFiguresOf reads what FrontendFigures wrote. What has no name or address is left
// out.
func FrontendFiguresOf(frontends []*agentv1.FrontendFigures) []model.FrontendFigures {
	var out []model.FrontendFigures
	for _, f := range frontends {
		key, err := model.ParseFrontend(f.GetName())
		if err != nil {
			continue
		}
		m := model.FrontendFigures{FrontendKey: key, Packets: f.GetPackets(), Bytes: f.GetBytes(), NewFlows: f.GetNewFlows()}
		for _, b := range f.GetBackends() {
			if at, ok := addrPort(b.GetAddress(), b.GetPort()); ok {
				m.Backends = append(m.Backends, model.BackendFigures{
					Address: at, Machine: b.GetMachine(),
					Packets: b.GetPackets(), Bytes: b.GetBytes(), NewFlows: b.GetNewFlows(), Flows: b.GetFlows(), Rows: b.GetRows(), Tunnelled: b.GetTunnelled(),
					Owns: b.Owned != nil, Owned: b.GetOwned(),
				})
			}
		}
		out = append(out, m)
	}
	return out
}

// FlowQuery words the plane's question of a number.
func FlowQuery(asked uint64, q model.FlowQuery) *agentv1.FlowQuery {
	out := &agentv1.FlowQuery{Asked: asked, Backend: q.Backend.AsSlice(), Limit: uint32(max(q.Limit, 0))}
	if q.Frontend.VIP.IsValid() {
		out.Frontend = q.Frontend.String()
	}
	if q.Client.IsValid() {
		out.Client = q.Client.String()
	}
	return out
}

// FlowQueryOf reads what FlowQuery wrote. What cannot be read is an error: it would
// select everything.
func FlowQueryOf(q *agentv1.FlowQuery) (model.FlowQuery, error) {
	out := model.FlowQuery{Backend: addr(q.GetBackend()), Limit: int(q.GetLimit())}
	var err error
	if text := q.GetFrontend(); text != "" {
		if out.Frontend, err = model.ParseFrontend(text); err != nil {
			return model.FlowQuery{}, err
		}
	}
	if text := q.GetClient(); text != "" {
		if out.Client, err = netip.ParsePrefix(text); err != nil {
			return model.FlowQuery{}, err
		}
	}
	return out, nil
}

// Flows answers the plane's question of a number.
func Flows(asked uint64, flows []model.Flow, truncated bool) *agentv1.Flows {
	out := &agentv1.Flows{Asked: asked, Truncated: truncated}
	for _, f := range flows {
		out.Flows = append(out.Flows, &agentv1.Flow{
			Frontend: f.Frontend.String(),
			Client:   f.Client.Addr().AsSlice(), ClientPort: uint32(f.Client.Port()),
			Backend: f.Backend.Addr().AsSlice(), BackendPort: uint32(f.Backend.Port()),
			Machine: f.Machine, State: f.State, Idle: durationpb.New(f.Idle),
		})
	}
	return out
}

// FlowsOf reads what Flows wrote. Flows without a frontend or a client are left out.
func FlowsOf(f *agentv1.Flows) (flows []model.Flow, truncated bool) {
	for _, w := range f.GetFlows() {
		key, err := model.ParseFrontend(w.GetFrontend())
		client, ok := addrPort(w.GetClient(), w.GetClientPort())
		if err != nil || !ok {
			continue
		}
		m := model.Flow{Frontend: key, Client: client, Machine: w.GetMachine(), State: w.GetState(), Idle: w.GetIdle().AsDuration()}
		m.Backend, _ = addrPort(w.GetBackend(), w.GetBackendPort())
		flows = append(flows, m)
	}
	return flows, f.GetTruncated()
}

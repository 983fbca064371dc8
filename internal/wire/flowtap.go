package wire

import (
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/types/known/timestamppb"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// FlowTap encodes what a machine is asked to show of flows.
func FlowTap(id uint64, t model.FlowTap) *agentv1.FlowTap {
	m := &agentv1.FlowTap{Id: id}
	for _, k := range t.Frontends {
		m.Frontends = append(m.Frontends, k.String())
	}
	if t.Client.IsValid() {
		m.Client = t.Client.String()
	}
	if t.Backend.IsValid() {
		m.Backend = t.Backend.String()
	}
	return m
}

// FlowTapOf decodes what a machine is asked to show of flows.
func FlowTapOf(m *agentv1.FlowTap) (t model.FlowTap, err error) {
	for _, name := range m.GetFrontends() {
		k, err := model.ParseFrontend(name)
		if err != nil {
			return t, fmt.Errorf("tap of flows: %w", err)
		}
		t.Frontends = append(t.Frontends, k)
	}
	if m.GetClient() != "" {
		if t.Client, err = netip.ParsePrefix(m.GetClient()); err != nil {
			return t, fmt.Errorf("tap of flows: %w", err)
		}
	}
	if m.GetBackend() != "" {
		if t.Backend, err = netip.ParseAddr(m.GetBackend()); err != nil {
			return t, fmt.Errorf("tap of flows: %w", err)
		}
	}
	return t, nil
}

// FlowEvent encodes an event.
func FlowEvent(e model.FlowEvent, taps []uint64) *agentv1.FlowEvent {
	m := &agentv1.FlowEvent{
		Taps: taps, At: timestamppb.New(e.At), Frontend: e.Frontend.String(), Client: e.Client.String(), Machine: e.BackendMachine,
		Kind: e.Kind, Reason: string(e.Reason), DataPlane: string(e.DataPlane),
	}
	if e.Backend.IsValid() {
		m.Backend = e.Backend.String()
	}
	if e.From.IsValid() {
		m.From = e.From.String()
	}
	return m
}

// FlowEventOf decodes an event. Owner and Machine stay empty. A reason of a later version is none.
func FlowEventOf(m *agentv1.FlowEvent) (e model.FlowEvent, err error) {
	e = model.FlowEvent{At: timeOf(m.GetAt()), BackendMachine: m.GetMachine(), Kind: m.GetKind(), Reason: model.FlowCause(m.GetReason())}
	switch e.Kind {
	case model.FlowBegin, model.FlowMove, model.FlowEnd:
	default:
		return e, fmt.Errorf("event of a flow: kind %q", e.Kind)
	}
	if !e.Reason.Known() {
		e.Reason = ""
	}
	switch kind := model.DataPlaneKind(m.GetDataPlane()); kind {
	case model.DataPlaneXDP, model.DataPlaneNFTables, model.DataPlaneIPVS:
		e.DataPlane = kind
	default:
	}
	if e.Frontend, err = model.ParseFrontend(m.GetFrontend()); err != nil {
		return e, fmt.Errorf("event of a flow: %w", err)
	}
	if e.Client, err = netip.ParseAddrPort(m.GetClient()); err != nil {
		return e, fmt.Errorf("event of a flow: %w", err)
	}
	for _, a := range []struct {
		text string
		to   *netip.AddrPort
	}{{m.GetBackend(), &e.Backend}, {m.GetFrom(), &e.From}} {
		if a.text == "" {
			continue
		}
		if *a.to, err = netip.ParseAddrPort(a.text); err != nil {
			return e, fmt.Errorf("event of a flow: %w", err)
		}
	}
	return e, nil
}

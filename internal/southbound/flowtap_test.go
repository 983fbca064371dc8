package southbound

import (
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// A viewer that does not read holds nobody up: what it misses is counted. What a machine sends is bounded and checked.
func TestFlowsOfViewersThatDoNotRead(t *testing.T) {
	s := &Server{taps: taps{flows: map[uint64]*FlowTap{}}}
	tap := s.FlowTap()
	key := model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.TCP, Port: 443}
	if order := s.taps.order(); len(order.GetFlows()) != 0 {
		t.Errorf("machines are asked for nothing: %v", order)
	}
	tap.Want(model.FlowTap{Frontends: []model.FrontendKey{key}})
	if order := s.taps.order(); len(order.GetFlows()) != 1 || order.GetFlows()[0].GetFrontends()[0] != key.String() {
		t.Errorf("machines are asked for %v", order)
	}
	event := func() *agentv1.FlowEvent {
		return wire.FlowEvent(model.FlowEvent{At: time.Unix(1, 0), Kind: model.FlowBegin, Frontend: key, Client: netip.MustParseAddrPort("198.51.100.7:1")}, []uint64{tap.id, 99})
	}
	report := &agentv1.TapReport{FlowTaps: []*agentv1.FlowTapState{{Id: tap.id, Dropped: 7, Notes: make([]string, 100)}, {Id: 99}}}
	for range model.MaxTapRecords + 500 {
		report.Flows = append(report.Flows, event())
	}
	bad := event()
	bad.Kind = "\x1b[2J"
	report.Flows[0] = bad
	for range 3 {
		s.takenFlows("edge-1", report)
	}
	if n := len(tap.Events); n != tapQueue {
		t.Errorf("%d events wait", n)
	}
	if n := tap.Dropped(); n != 3*(7+model.MaxTapRecords-1)-tapQueue {
		t.Errorf("%d were dropped", n)
	}
	if e := <-tap.Events; e.Machine != "edge-1" || e.Kind != model.FlowBegin {
		t.Errorf("%+v", e)
	}
	if n := len(tap.state["edge-1"].Notes); n != maxFlowNotes {
		t.Errorf("%d notes", n)
	}
	tap.Close()
	if order := s.taps.order(); len(order.GetFlows()) != 0 {
		t.Errorf("machines are asked on: %v", order)
	}
}

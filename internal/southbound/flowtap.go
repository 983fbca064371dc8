package southbound

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// maxFlowNotes is how many notes a machine may make about a tap.
const maxFlowNotes = 8

// FlowTap is what machines show of flows to one viewer.
type FlowTap struct {
	// Events come in no order, and without an owner. What a machine sends is not trusted to match.
	Events  chan model.FlowEvent
	dropped atomic.Uint64

	id     uint64
	server *Server

	mu    sync.Mutex
	wants model.FlowTap
	state map[string]FlowTapState
}

// FlowTapState is how a machine is with a tap of flows.
type FlowTapState struct {
	// Able says that its agent can show flows, and Answered that it has said how it is with this tap.
	Able, Answered bool
	// Notes are what its data planes do not tell.
	Notes []string
}

// FlowTap has every machine show flows, until it is closed. It asks for none before Want.
func (s *Server) FlowTap() *FlowTap {
	s.taps.mu.Lock()
	defer s.taps.mu.Unlock()
	s.taps.last++
	t := &FlowTap{Events: make(chan model.FlowEvent, tapQueue), id: s.taps.last, server: s, state: map[string]FlowTapState{}}
	s.taps.flows[t.id] = t
	return t
}

// Want sets what is to be shown.
func (t *FlowTap) Want(w model.FlowTap) {
	t.mu.Lock()
	t.wants = w
	t.mu.Unlock()
	t.server.orderTaps()
}

// Close ends the tap.
func (t *FlowTap) Close() {
	t.server.taps.mu.Lock()
	delete(t.server.taps.flows, t.id)
	t.server.taps.mu.Unlock()
	t.server.orderTaps()
}

// Dropped is how many events were beyond a bound, at machines or because the viewer does not read, since the last call.
func (t *FlowTap) Dropped() uint64 { return t.dropped.Swap(0) }

// Machines are those that are connected, with how they are.
func (t *FlowTap) Machines() map[string]FlowTapState {
	able := map[string]bool{}
	t.server.mu.Lock()
	for name, m := range t.server.machines {
		if m.sessions[discovery] != nil {
			able[name] = m.sessions[tapping] != nil
		}
	}
	t.server.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	states := map[string]FlowTapState{}
	for name, is := range able {
		s := t.state[name]
		s.Able = is
		states[name] = s
	}
	return states
}

// orderFlows are the taps of flows that machines are told of. t.mu is held.
func (t *taps) orderFlows() (list []*agentv1.FlowTap) {
	for _, id := range slices.Sorted(maps.Keys(t.flows)) {
		one := t.flows[id]
		one.mu.Lock()
		if len(one.wants.Frontends) > 0 {
			list = append(list, wire.FlowTap(id, one.wants))
		}
		one.mu.Unlock()
	}
	return list
}

func (t *taps) findFlow(id uint64) *FlowTap {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.flows[id]
}

// takenFlows hands what a machine says of flows to those who look.
func (s *Server) takenFlows(machine string, report *agentv1.TapReport) {
	for _, m := range first(report.GetFlowTaps(), maxFlowNotes*64) {
		t := s.taps.findFlow(m.GetId())
		if t == nil {
			continue
		}
		t.dropped.Add(min(m.GetDropped(), 1<<32))
		state := FlowTapState{Answered: true}
		for _, note := range first(m.GetNotes(), maxFlowNotes) {
			state.Notes = append(state.Notes, cut(note, maxMessage))
		}
		t.mu.Lock()
		t.state[machine] = state
		t.mu.Unlock()
	}
	for _, m := range first(report.GetFlows(), model.MaxTapRecords) {
		m.Machine = cut(m.GetMachine(), maxMessage)
		e, err := wire.FlowEventOf(m)
		if err != nil {
			continue // of a later version, or of a machine that is not what it was
		}
		e.Machine = machine
		for _, id := range first(m.GetTaps(), 64) {
			t := s.taps.findFlow(id)
			if t == nil {
				continue
			}
			select {
			case t.Events <- e:
			default:
				t.dropped.Add(1)
			}
		}
	}
}

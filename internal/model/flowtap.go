package model

import (
	"net/netip"
	"time"
)

// What FlowEvents are about.
const (
	FlowBegin = "begin"
	FlowMove  = "move" // to another backend
	FlowEnd   = "end"
)

// FlowCause is why a flow began, moved or ended as it did; empty: nothing is to be said, or nothing is known.
type FlowCause string

// The causes, by what they are said of.
const (
	// Of begins.
	FlowMidway FlowCause = "midway" // its first packets came to another machine, or its entry was lost
	FlowAgain  FlowCause = "again"  // the client uses the port of an earlier flow
	FlowSilent FlowCause = "silent" // the flow before was silent for too long, and is over
	// Of moves.
	FlowGone      FlowCause = "backend-gone"
	FlowUnready   FlowCause = "backend-unready" // for another reason than those below
	FlowUnhealthy FlowCause = "backend-unhealthy"
	FlowDrained   FlowCause = "backend-drained"
	// Of ends.
	FlowFIN        FlowCause = "client-fin"
	FlowRST        FlowCause = "client-rst"
	FlowBackendFIN FlowCause = "backend-fin"
	FlowBackendRST FlowCause = "backend-rst"
	FlowIdle       FlowCause = "idle"     // silent for too long
	FlowUnopened   FlowCause = "unopened" // nothing came after the first packet
	FlowForgotten  FlowCause = "forgotten"
	FlowClosed     FlowCause = "closed" // by either side
)

// flowCauses are how people are told of reasons.
var flowCauses = map[FlowCause]string{
	FlowMidway: "its first packets came to another machine, or its entry was lost", FlowAgain: "the client uses the port again", FlowSilent: "the one before was silent for too long",
	FlowGone: "the backend is gone", FlowUnready: "the backend takes no packets", FlowUnhealthy: "the backend is unhealthy", FlowDrained: "the backend is drained",
	FlowFIN: "FIN of the client", FlowRST: "RST of the client", FlowBackendFIN: "FIN of the backend", FlowBackendRST: "RST of the backend",
	FlowIdle: "idle timeout", FlowUnopened: "nothing came after the first packet", FlowForgotten: "the flow table has it no more", FlowClosed: "closed",
}

// Known says whether it is one of the reasons, or none.
func (r FlowCause) Known() bool { return r == "" || flowCauses[r] != "" }

// Text is the reason for people.
func (r FlowCause) Text() string { return flowCauses[r] }

// FlowEvent is the begin, the move or the end of a flow, as the data plane of a machine tells it.
type FlowEvent struct {
	At       time.Time      `json:"at"`
	Machine  string         `json:"machine"`
	Frontend FrontendKey    `json:"frontend"`
	Owner    string         `json:"owner"` // of the frontend
	Kind     string         `json:"kind"`
	Reason   FlowCause      `json:"reason"`
	Client   netip.AddrPort `json:"client"` // port 0: of all flows of the address
	Backend  netip.AddrPort `json:"backend"`
	// BackendMachine is the machine of the backend, if it is one of ours.
	BackendMachine string         `json:"backendMachine"`
	From           netip.AddrPort `json:"from"` // before a move; not valid: not known
	DataPlane      DataPlaneKind  `json:"dataPlane"`
}

// FlowTapQuery selects flows that are shown live.
type FlowTapQuery struct {
	// Of is a frontend, a VIP, or the owner of frontends ("NAMESPACE/NAME" or "KIND NAMESPACE/NAME"); empty: all of the namespace.
	Of string
	// Namespace of the owner; empty: any.
	Namespace string
	Client    netip.Prefix
	Backend   netip.Addr
}

// FlowTap is what a machine is asked to show.
type FlowTap struct {
	Frontends []FrontendKey
	Client    netip.Prefix
	Backend   netip.Addr
}

// Matches says whether an event is one of those that are selected, but for the frontend.
func (f FlowTap) Matches(e *FlowEvent) bool {
	return (!f.Client.IsValid() || f.Client.Contains(e.Client.Addr())) && (!f.Backend.IsValid() || f.Backend == e.Backend.Addr() || f.Backend == e.From.Addr())
}

// FlowTapEvent is an event of a flow, or how the machines are with a tap.
type FlowTapEvent struct {
	Event *FlowEvent `json:"event,omitempty"`
	// Dropped is how many events were beyond a bound since the last one, at least.
	Dropped uint64 `json:"dropped,omitempty"`
	// Frontends that are watched, where that is new.
	Frontends []FrontendKey `json:"frontends,omitempty"`
	// Machines that have one of the frontends, sorted, where something of them is new.
	Machines []FlowTapMachine `json:"machines,omitempty"`
}

// FlowTapMachine is how a machine is with a tap of flows.
type FlowTapMachine struct {
	Machine string `json:"machine"`
	// Notes are what its data planes do not tell.
	Notes []string `json:"notes,omitempty"`
	// Unable is why it shows nothing; empty: it does.
	Unable string `json:"unable,omitempty"`
}

package v1

import (
	"net/netip"
	"time"
)

// FlowTapPath is where a plane shows flows as they begin, move and end, as server-sent events, each a FlowTapEvent. Its
// parameters may be left out: of (a frontend, a VIP, or the owner as "NAMESPACE/NAME"), namespace (of the owner), client (an
// address or a CIDR), backend (an address), and limit (events, then it ends).
const FlowTapPath = "/v1/tap/flows"

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

// FlowEvent is the begin, the move (to another backend) or the end of a flow.
type FlowEvent struct {
	At       time.Time   `json:"at"`
	Machine  string      `json:"machine"`
	Frontend FrontendKey `json:"frontend"`
	// Owner of the frontend, as "KIND NAMESPACE/NAME".
	Owner string `json:"owner"`
	// Kind is begin, move or end.
	Kind string `json:"kind"`
	// Reason of a begin is midway, again or silent; of a move backend-gone, backend-unready, backend-unhealthy or
	// backend-drained; of an end client-fin, client-rst, backend-fin, backend-rst, idle, unopened, forgotten or closed. It is
	// empty where there is nothing to say, or nothing known.
	Reason string `json:"reason"`
	// Client has port 0 where one event stands for all flows of the address.
	Client         netip.AddrPort `json:"client"`
	Backend        netip.AddrPort `json:"backend"`
	BackendMachine string         `json:"backendMachine"`
	// From is the backend before a move; not valid where it is not known.
	From      netip.AddrPort `json:"from"`
	DataPlane DataPlaneKind  `json:"dataPlane"`
}

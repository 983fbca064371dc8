package v1

import (
	"net/netip"
	"time"
)

// FlowList are flows of several machines.
type FlowList struct {
	Flows []FlowAt `json:"flows"`
	// Answered are the machines that have told, sorted; Silent those that were asked and did
	// not; Truncated those that have more.
	Answered  []string `json:"answered"`
	Silent    []string `json:"silent,omitempty"`
	Truncated []string `json:"truncated,omitempty"`
}

// FlowAt is a flow in the flow table of a machine.
type FlowAt struct {
	At string `json:"at"`
	Flow
}

// Flow is an entry of a flow table.
type Flow struct {
	Frontend FrontendKey    `json:"frontend"`
	Client   netip.AddrPort `json:"client"`
	Backend  netip.AddrPort `json:"backend"`
	Machine  string         `json:"machine,omitempty"` // of the backend
	// State is new, established, closing or owned (at the backend's machine).
	State string        `json:"state"`
	Idle  time.Duration `json:"idleNanoseconds"`
}

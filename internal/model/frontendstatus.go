package model

import "time"

// FrontendStatus is a frontend over all machines that have its VIP.
type FrontendStatus struct {
	FrontendKey
	Owner    Object     `json:"owner"`
	Listener ListenerID `json:"listener,omitempty"` // of proxies, which are its backends
	Machines []string   `json:"machines"`
	// State is balanced, pending, refused or idle (no backend accepts new flows).
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
	// Backends that there are, and those of them that accept new flows.
	Backends  int `json:"backends"`
	Available int `json:"available"`
	// At says what each connected machine of its VIP does about it, sorted by machine.
	At []FrontendAt `json:"at"`
}

// FrontendAt is a frontend at one machine.
type FrontendAt struct {
	Machine   string        `json:"machine"`
	State     FrontendState `json:"state"`
	Mode      ForwardMode   `json:"mode,omitempty"`
	DataPlane DataPlaneKind `json:"dataPlane,omitempty"`
	Message   string        `json:"message,omitempty"`
	Available uint32        `json:"available"`
}

// BackendStatus is one backend of a frontend over all machines.
type BackendStatus struct {
	Frontend FrontendKey `json:"frontend"`
	Owner    Object      `json:"owner"`
	FrontendBackend
	// Percent of the new flows that it gets.
	Percent float64 `json:"percent"`
	// Says is who says what of its health; empty when nobody checks it.
	Says []HealthSaid `json:"says,omitempty"`
	// Uncounted are machines that have the frontend and report, but have not told how many flows
	// they have; sorted.
	Uncounted []string `json:"uncounted,omitempty"`
	// Known is set when a machine that balances the frontend has told its figures, which
	// are summed up over those machines.
	Known    bool   `json:"known"`
	Flows    uint64 `json:"flows"` // that go on now, each once
	NewFlows uint64 `json:"newFlows"`
	Packets  uint64 `json:"packets"`
	Bytes    uint64 `json:"bytes"`
	// RowsPercent is its part of the machines' lookup tables.
	RowsPercent float64 `json:"rowsPercent"`
	// Drain is how long it keeps its flows once it accepts no new one.
	Drain time.Duration `json:"drainNanoseconds"`
}

// HealthSaid is what one machine says of a backend.
type HealthSaid struct {
	Machine string `json:"machine"` // empty: the plane, of why nobody checks it
	Health  Health `json:"health"`
	// Passive: its proxy saw requests fail; nobody asked the backend.
	Passive bool   `json:"passive,omitempty"`
	Message string `json:"message,omitempty"`
}

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

package v1

import (
	"net/netip"
	"time"
)

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
	// Drain is how long it keeps its flows once it takes no new one.
	Drain time.Duration `json:"drainNanoseconds"`
}

// FrontendBackend is a backend of one frontend as every load balancer is told, the same
// to all.
type FrontendBackend struct {
	// Address where it answers. Of a proxy it is the VIP.
	Address netip.AddrPort `json:"address"`
	// Machine of ours that it is on; empty when it is on none.
	Machine string `json:"machine,omitempty"`
	// Weight is its share of new flows, relative to the others'; 0 takes none.
	Weight uint32 `json:"weight"`
	// HopWeight is the largest weight within the last drain time, at least Weight. It says
	// for which rows the backend may own flows.
	HopWeight uint32 `json:"hopWeight"`
	// State is draining while it only finishes what it has, and unready when nothing may be
	// sent to it.
	State  BackendState `json:"state"`
	Health Health       `json:"health,omitempty"`
	// Backup says that it is to have flows only while no other backend of its set is able to.
	Backup bool `json:"backup,omitempty"`
	// Standby is the weight that a backup without flows has as soon as it is needed; 0 of all
	// other backends. Weight is 0 until then.
	Standby uint32 `json:"standby,omitempty"`
}

// BackendState says whether a backend takes new work.
type BackendState string

// The states of a backend.
const (
	// BackendReady takes new requests.
	BackendReady BackendState = "ready"
	// BackendDraining finishes what it has (EndpointSlice: serving and terminating).
	BackendDraining BackendState = "draining"
	// BackendUnready takes nothing.
	BackendUnready BackendState = "unready"
)

// Health is what the checkers of a backend say.
type Health string

// The states of health. The zero value: nobody checks.
const (
	HealthUnchecked Health = ""
	HealthUnknown   Health = "unknown" // checked, no verdict yet
	Healthy         Health = "healthy"
	Unhealthy       Health = "unhealthy"
)

// HealthSaid is what one machine says of a backend.
type HealthSaid struct {
	Machine string `json:"machine"` // empty: the plane, of why nobody checks it
	Health  Health `json:"health"`
	// Passive: its proxy saw requests fail; nobody asked the backend.
	Passive bool   `json:"passive,omitempty"`
	Message string `json:"message,omitempty"`
}

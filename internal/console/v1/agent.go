package v1

import (
	"time"
)

// AgentStatus is an agent for people and the console.
type AgentStatus struct {
	Machine string `json:"machine"`
	Version string `json:"version"`
	Plane   string `json:"plane,omitempty"` // connected to; empty when to none
	Trouble string `json:"trouble,omitempty"`
	// Forgetting says why the state is not remembered; empty while it is.
	Forgetting string `json:"forgetting,omitempty"`
	// Withheld says why the proxy waits for a state; empty while it does not, or while there is none.
	Withheld string        `json:"withheld,omitempty"`
	Expires  time.Time     `json:"certificateExpires,omitzero"`
	Cordoned bool          `json:"cordoned"`
	Accepted string        `json:"accepted"` // revision that a plane has sent
	Applied  string        `json:"applied"`  // revision that the proxy runs
	Problems []RefusedItem `json:"problems"`
	Proxy    ProxyStatus   `json:"proxy"`
	// Sessions with BGP peers and VIPs, as the machine sees them.
	Sessions []Session     `json:"sessions"`
	VIPs     []VIPObserved `json:"vips"`
	// Unhealthy are the checks of this machine that fail; the plane counts those of others too.
	Unhealthy []CheckResult `json:"unhealthy"`
	// Frontends that the machine balances or has backends of.
	Frontends []FrontendObserved `json:"frontends"`
	// Interfaces at which data planes have programs, or could have.
	Interfaces []InterfaceObserved `json:"interfaces"`
}

// CheckResult is what a machine found.
type CheckResult struct {
	ID      string    `json:"id"`
	Health  Health    `json:"health"`
	Since   time.Time `json:"since,omitzero"`
	Message string    `json:"message,omitempty"` // the last failure
	// First says that the first answer was a bad one, and that there were not yet as many bad ones in
	// a row as take a backend out that works: where others know better, it decides nothing.
	First bool `json:"first,omitempty"`
}

// FrontendObserved is what a machine does about a frontend.
type FrontendObserved struct {
	FrontendKey
	// State is balanced, decap (the machine only has backends of it), pending (the data plane
	// has not taken it yet) or refused.
	State     FrontendState `json:"state"`
	Mode      ForwardMode   `json:"mode,omitempty"`
	DataPlane DataPlaneKind `json:"dataPlane,omitempty"`
	// Message says why it is pending or refused, or why mode and data plane are not as asked.
	Message string `json:"message,omitempty"`
	// Available backends: those that new flows may go to.
	Available uint32 `json:"available"`
	// Parting are connections that the machine's proxy still has though the machine has the
	// VIP no longer.
	Parting uint32 `json:"parting,omitempty"`
}

// InterfaceObserved is an interface of a machine that holds an address, as its data plane
// sees it.
type InterfaceObserved struct {
	Name string       `json:"name"`
	Use  InterfaceUse `json:"use"`
	// Message says why it is not used.
	Message string `json:"message,omitempty"`
}

// InterfaceUse is what the data plane does at an interface.
type InterfaceUse string

// The uses. Native and generic are the ways in which XDP runs: in the driver, or after the
// kernel has made its own form of each packet.
const (
	InterfaceNative  InterfaceUse = "native"
	InterfaceGeneric InterfaceUse = "generic"
	// InterfaceTunnels takes packets out of tunnels only: nothing is balanced here.
	InterfaceTunnels InterfaceUse = "tunnels"
	InterfaceUnused  InterfaceUse = "unused"
)

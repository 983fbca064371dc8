package model

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

// InterfaceObserved is an interface of a machine that holds an address, as its data plane
// sees it.
type InterfaceObserved struct {
	Name string       `json:"name"`
	Use  InterfaceUse `json:"use"`
	// Message says why it is not used.
	Message string `json:"message,omitempty"`
}

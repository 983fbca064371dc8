package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Machine is one host that runs a Fairlead agent. It comes into being when the
// agent joins with its token; an operator labels it, cordons it, or deletes it to
// make the plane forget it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=fm,categories=fairlead
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Cordoned",type=boolean,JSONPath=`.spec.cordoned`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.status.addresses`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.agentVersion`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec MachineSpec `json:"spec,omitempty"`
	// +optional
	Status MachineStatus `json:"status,omitempty"`
}

// MachineSpec is what an operator says of a machine.
type MachineSpec struct {
	// Cordoned machines announce no VIP, once another machine does where one is to; their
	// proxies' connections end, and they do not count towards Programmed.
	// +optional
	Cordoned bool `json:"cordoned,omitempty"`

	// Role of the machine. Edge machines take in what clients send. Backend machines only
	// host backends: they have no VIP and no proxy, and their agent takes packets out of
	// tunnels and checks health.
	// +optional
	// +kubebuilder:default=Edge
	Role MachineRole `json:"role,omitempty"`

	// TunnelAddresses are where other machines send tunnelled packets, at most one of each
	// family; the first reported address of a family when left out.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="must be an address"
	TunnelAddresses []string `json:"tunnelAddresses,omitempty"`

	// Addresses that are this machine's whatever its agent can prove: behind a translation of
	// addresses, say. No other machine can have them unless its spec says the same. Those of
	// tunnelAddresses are meant, too.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="must be an address"
	Addresses []string `json:"addresses,omitempty"`

	// DrainTime is how long connections may finish when a listener, a route's
	// cluster or the proxy itself goes away.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="must be between 0s and 1h"
	DrainTime *metav1.Duration `json:"drainTime,omitempty"`

	// RouterID of the machine's BGP speaker, an IPv4 address that no other speaker of the
	// network has; an address of the machine when left out.
	// +optional
	// +kubebuilder:validation:Format=ipv4
	RouterID string `json:"routerID,omitempty"`
}

// MachineRole is what a machine is for.
//
// +kubebuilder:validation:Enum=Edge;Backend
type MachineRole string

// The roles. The zero value is Edge.
const (
	RoleEdge    MachineRole = "Edge"
	RoleBackend MachineRole = "Backend"
)

// MachineStatus is what the plane last wrote of a machine. It is written on
// transitions only; `fairlead status` shows what is true now.
type MachineStatus struct {
	// Addresses that the agent last reported and that are this machine's, as its spec says, the
	// plane's --machine-addresses, or a connection that came from there, in the order of the
	// report. One that another machine has, too, is nobody's: AddressesHeld says so.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Addresses []string `json:"addresses,omitempty"`

	// AgentVersion is the version of the agent that last reported.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`

	// Decaps says that the agent that last reported takes packets out of tunnels.
	// +optional
	Decaps bool `json:"decaps,omitempty"`

	// Conditions of the machine: Ready is true while the agent reports and its
	// proxy runs, AddressesHeld while the machine has addresses and no other claims them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MachineList is a list of machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Machine `json:"items"`
}

func init() { register(&Machine{}, &MachineList{}) }

// MachineReady is the condition type of a machine that reports and serves.
const MachineReady = "Ready"

// Reasons of MachineReady.
const (
	// MachineReasonReady says that the agent reports and its proxy is ready.
	MachineReasonReady = "Ready"
	// MachineReasonLost says that no report came within the time-to-live.
	MachineReasonLost = "Lost"
	// MachineReasonProxyNotReady says that the agent reports a proxy that does not serve.
	MachineReasonProxyNotReady = "ProxyNotReady"
	// MachineReasonNeverSeen says that the machine has not reported since it joined.
	MachineReasonNeverSeen = "NeverSeen"
)

// MachineAddressesHeld is the condition type of a machine's addresses: what backends are found
// by, and where tunnels end.
const MachineAddressesHeld = "AddressesHeld"

// Reasons of MachineAddressesHeld.
const (
	// MachineReasonHeld says that the machine has addresses that no other claims.
	MachineReasonHeld = "Held"
	// MachineReasonUnproven says that none of the addresses which the agent reports is known
	// to be the machine's.
	MachineReasonUnproven = "Unproven"
	// MachineReasonContested says that another machine claims an address, too.
	MachineReasonContested = "Contested"
)

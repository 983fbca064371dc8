package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Machine is a host that runs a Fairlead agent. It is created when the agent joins with its
// token. An operator can label it, cordon it, and delete it to remove the machine from the
// plane.
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

// MachineSpec configures a machine.
type MachineSpec struct {
	// Cordoned takes the machine out of the traffic. The machine withdraws its VIPs; if another
	// machine should announce a VIP, the withdrawal follows that announcement. Its proxy ends
	// its connections, and the machine does not count for the condition Programmed.
	// +optional
	Cordoned bool `json:"cordoned,omitempty"`

	// Role of the machine. An Edge machine receives the traffic of clients. A Backend machine
	// only hosts backends: it has no VIP and no proxy, and its agent decapsulates packets and
	// checks health.
	// +optional
	// +kubebuilder:default=Edge
	Role MachineRole `json:"role,omitempty"`

	// TunnelAddresses are the machine's tunnel endpoints, at most one of each family. Default:
	// the first reported address of each family.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="must be an address"
	TunnelAddresses []string `json:"tunnelAddresses,omitempty"`

	// Addresses that belong to this machine even if its agent cannot prove them, for example
	// behind NAT. No other machine can have them unless its spec lists them, too.
	// tunnelAddresses count too.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="must be an address"
	Addresses []string `json:"addresses,omitempty"`

	// DrainTime is how long connections may finish after the removal of a listener or of a
	// route's cluster, and after the stop of the proxy.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="must be between 0s and 1h"
	DrainTime *metav1.Duration `json:"drainTime,omitempty"`

	// RouterID of the machine's BGP speaker: an IPv4 address that no other speaker in the
	// network has. Default: an address of the machine.
	// +optional
	// +kubebuilder:validation:Format=ipv4
	RouterID string `json:"routerID,omitempty"`
}

// MachineRole is the role of a machine.
//
// +kubebuilder:validation:Enum=Edge;Backend
type MachineRole string

// The roles. The zero value is Edge.
const (
	RoleEdge    MachineRole = "Edge"
	RoleBackend MachineRole = "Backend"
)

// MachineStatus is the state of a machine that the plane last wrote. The plane writes it on
// transitions only; `fairlead status` shows the current state.
type MachineStatus struct {
	// Addresses that the agent last reported and that are known to belong to this machine, in
	// the order of the report. An address is known from the machine's spec, from the plane's
	// --machine-addresses, or from a connection with that source address. An address that two
	// machines claim belongs to neither; the condition AddressesHeld reports it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Addresses []string `json:"addresses,omitempty"`

	// AgentVersion is the version of the agent that last reported.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`

	// Decaps is true if the agent that last reported decapsulates packets.
	// +optional
	Decaps bool `json:"decaps,omitempty"`

	// Conditions of the machine: Ready and AddressesHeld. Ready is true while the agent
	// reports and its proxy runs. AddressesHeld is true while the machine has addresses and no
	// other machine claims them.
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
	// MachineReasonLost says that no report arrived within the plane's --machine-ttl.
	MachineReasonLost = "Lost"
	// MachineReasonProxyNotReady says that the agent reports a proxy that does not serve.
	MachineReasonProxyNotReady = "ProxyNotReady"
	// MachineReasonNeverSeen says that the machine has not reported since it joined.
	MachineReasonNeverSeen = "NeverSeen"
)

// MachineAddressesHeld is the condition type of a machine's addresses. These addresses
// identify the machine of a backend and are the ends of tunnels.
const MachineAddressesHeld = "AddressesHeld"

// Reasons of MachineAddressesHeld.
const (
	// MachineReasonHeld says that the machine has addresses and that no other machine claims
	// them.
	MachineReasonHeld = "Held"
	// MachineReasonUnproven says that no address that the agent reports is known to belong to
	// the machine.
	MachineReasonUnproven = "Unproven"
	// MachineReasonContested says that another machine claims one of the addresses, too.
	MachineReasonContested = "Contested"
)

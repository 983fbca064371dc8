package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddressPool is a set of addresses out of which Gateways, root IngressRoutes and
// Services get their VIPs, with the machines that announce them and the namespaces
// that may use them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=pool,categories=fairlead
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name="Announce",type=string,JSONPath=`.spec.announce`
// +kubebuilder:printcolumn:name="Assigned",type=integer,JSONPath=`.status.assigned`
// +kubebuilder:printcolumn:name="Free",type=string,JSONPath=`.status.free`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AddressPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AddressPoolSpec `json:"spec"`
	// +optional
	Status AddressPoolStatus `json:"status,omitempty"`
}

// AddressPoolSpec is what an operator says of a pool.
type AddressPoolSpec struct {
	// Addresses of the pool: CIDRs ("192.0.2.0/28", "2001:db8::/120"), ranges
	// ("192.0.2.16-192.0.2.19") and single addresses ("192.0.2.30"), IPv4 and IPv6 mixed.
	// Pools must not overlap with each other, nor hold an address of a machine.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=96
	// +kubebuilder:validation:items:Pattern=`^[0-9A-Fa-f.:]+(/[0-9]{1,3}| *- *[0-9A-Fa-f.:]+)?$`
	// +kubebuilder:validation:items:XValidation:rule="!self.contains('/') || isCIDR(self)",message="must be a network like 192.0.2.0/28 or 2001:db8::/120"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="has bits set behind the prefix length: write the first address of the network"
	// +kubebuilder:validation:items:XValidation:rule="self.contains('/') || self.split('-', 2).all(a, isIP(a.trim()))",message="must be a network like 192.0.2.0/28, a range like 192.0.2.16-192.0.2.19, or an address like 192.0.2.30"
	// +kubebuilder:validation:items:XValidation:rule="!self.contains('-') || self.split('-', 2).all(a, a.contains(':')) || self.split('-', 2).all(a, !a.contains(':'))",message="must be a range of addresses of one family"
	// +kubebuilder:validation:items:XValidation:rule="!self.contains('-') || self.contains(':') || !self.split('-', 2).all(a, isIP(a.trim())) || self.split('-', 2).map(a, a.trim().split('.', 4).map(n, int(n))).map(n, ((n[0] * 256 + n[1]) * 256 + n[2]) * 256 + n[3]).isSorted()",message="must be a range with its first address first"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/3', '::/127', 'fe80::/10', 'ff00::/8'].all(n, !cidr(n).containsIP(cidr(self).ip()) && !cidr(self).containsCIDR(n))",message="has addresses at which no client reaches a machine (RFC 6890)"
	// +kubebuilder:validation:items:XValidation:rule="self.contains('/') || !self.split('-', 2).all(a, isIP(a.trim())) || self.split('-', 2).all(a, ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/3', '::/127', 'fe80::/10', 'ff00::/8'].all(n, !cidr(n).containsIP(a.trim())))",message="has addresses at which no client reaches a machine (RFC 6890)"
	Addresses []string `json:"addresses"`

	// AvoidBuggy leaves out IPv4 addresses that end in .0 and .255, which some old
	// equipment takes for broadcasts.
	// +optional
	AvoidBuggy bool `json:"avoidBuggy,omitempty"`

	// Assign says who gets an address: Automatic gives one to whoever needs one,
	// OnRequest only to those that name the pool or an address of it.
	// +optional
	// +kubebuilder:default=Automatic
	Assign AssignPolicy `json:"assign,omitempty"`

	// Namespaces that may use the pool, by their labels; all when left out.
	// +optional
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`

	// Sharing lets Services of several namespaces share a VIP of the pool over their ports.
	// Left out, only those of one namespace can.
	// +optional
	Sharing *PoolSharing `json:"sharing,omitempty"`

	// Machines that announce the pool's addresses, by their labels; all when left out.
	// +optional
	Machines *metav1.LabelSelector `json:"machines,omitempty"`

	// MaxMachines is how many of those machines announce the pool's addresses; all when
	// left out. Cordoned ones do not count. Which ones follows from their names: one more
	// or one less moves no other.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxMachines *int32 `json:"maxMachines,omitempty"`

	// Announce says how the network learns where the addresses are: BGP has all
	// machines advertise each address to their peers, and the router spreads flows over
	// them; L2 has one machine at a time answer ARP and neighbour discovery.
	// +optional
	// +kubebuilder:default=BGP
	Announce AnnounceMode `json:"announce,omitempty"`

	// BGP holds what is added to advertisements of the pool's addresses.
	// +optional
	BGP PathAttributes `json:"bgp,omitempty,omitzero"`

	// Interfaces on which an owner answers (L2); those in the address's network, or else
	// that of the default route, when left out.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Interfaces []string `json:"interfaces,omitempty"`
}

// PoolSharing says who may share the VIPs of a pool.
type PoolSharing struct {
	// Namespaces whose Services may share VIPs with each other, by their labels; {} is all.
	// The namespace that has the VIP must be among them, and the one that takes part.
	Namespaces metav1.LabelSelector `json:"namespaces"`
}

// AssignPolicy says who gets an address of a pool.
//
// +kubebuilder:validation:Enum=Automatic;OnRequest
type AssignPolicy string

// The assign policies.
const (
	AssignAutomatic AssignPolicy = "Automatic"
	AssignOnRequest AssignPolicy = "OnRequest"
)

// AnnounceMode says how the network learns where an address is.
//
// +kubebuilder:validation:Enum=BGP;L2
type AnnounceMode string

// The ways to announce.
const (
	AnnounceBGP AnnounceMode = "BGP"
	AnnounceL2  AnnounceMode = "L2"
)

// PathAttributes are added to an advertisement. What is left out stays as the
// protocol has it.
type PathAttributes struct {
	// Communities: "65000:100" (RFC 1997), "65000:1:2" (large, RFC 8092), or one of
	// no-export, no-advertise, graceful-shutdown, blackhole.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=40
	// +kubebuilder:validation:items:Pattern=`^([0-9]{1,5}:[0-9]{1,5}|[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10}|no-export|no-advertise|graceful-shutdown|blackhole)$`
	// +kubebuilder:validation:items:XValidation:rule="size(self.split(':')) != 2 || self.split(':').all(n, int(n) <= 65535)",message="must have numbers up to 65535, or three numbers"
	// +kubebuilder:validation:items:XValidation:rule="size(self.split(':')) != 3 || self.split(':').all(n, int(n) <= 4294967295)",message="must have numbers up to 4294967295"
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('(^|:)0[0-9]')",message="must have numbers without leading zeros"
	Communities []string `json:"communities,omitempty"`

	// LocalPreference, for internal peers; higher is preferred.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LocalPreference *int64 `json:"localPreference,omitempty"`

	// MED is the multi-exit discriminator; lower is preferred.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MED *int64 `json:"med,omitempty"`

	// Prepend is how often the local AS is put in front of the path once more, for
	// external peers; a longer path is less preferred.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	Prepend int32 `json:"prepend,omitempty"`
}

// AddressPoolStatus records the assigned addresses. The plane writes it before an
// address is used anywhere, and only over the version that it read: so an
// address cannot have two owners.
type AddressPoolStatus struct {
	// Assigned is how many addresses have an owner.
	// +optional
	Assigned int32 `json:"assigned"`
	// Free is how many addresses have none, IPv4 and IPv6 apart: "13 IPv4, 255 IPv6".
	// +optional
	Free string `json:"free,omitempty"`
	// Assignments, sorted by address.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=4096
	Assignments []Assignment `json:"assignments,omitempty"`
	// Conditions of the pool: Accepted.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Assignment is one address with its owner.
type Assignment struct {
	// Address without a prefix length.
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address"`
	// Kind of the owner: Gateway, Service or IngressRoute. All root IngressRoutes of a
	// pool that ask for no address of their own share one, with no namespace and name.
	Kind string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Name string `json:"name,omitempty"`
}

// AddressPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type AddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AddressPool `json:"items"`
}

func init() { register(&AddressPool{}, &AddressPoolList{}) }

// Annotations with which Gateways, root IngressRoutes and Services choose.
const (
	// AnnotationPool names the AddressPool to take addresses from.
	AnnotationPool = "fairlead.dev/address-pool"
	// AnnotationAddresses asks for addresses, at most one of each family, separated by
	// commas. A Gateway has spec.addresses for this.
	AnnotationAddresses = "fairlead.dev/addresses"
	// AnnotationHosts of a Gateway says whose the hosts at its listeners are: HostsOfNamespaces or
	// HostsShared, which is the default.
	AnnotationHosts = "fairlead.dev/hosts"
	// AnnotationShareVIP has Services share addresses: those of one namespace with the same
	// value, and those of others whose value is NAMESPACE/VALUE, where the pool lets these
	// namespaces share. Of two that want the same port the older has it, and one of the
	// namespace that has the VIP before one of another.
	AnnotationShareVIP = "fairlead.dev/share-vip"
	// AnnotationDrainedBackends of a Service lists the addresses of backends that take no
	// new work, separated by commas.
	AnnotationDrainedBackends = "fairlead.dev/drained-backends"
)

// AnnotationAllowEndpoints of a Namespace lists CIDRs, separated by commas. Endpoints of the namespace may
// be there though they would be refused, in addresses of AddressPools, say.
const AnnotationAllowEndpoints = "fairlead.dev/allow-endpoints"

// The values of AnnotationHosts.
const (
	// HostsOfNamespaces: at each host the routes of one namespace are served, that of the oldest, and
	// those of the Gateway's own namespace, or the ListenerSet's.
	HostsOfNamespaces = "Namespace"
	// HostsShared: routes of all namespaces that may attach are merged (Gateway API, HTTPRouteRule.matches).
	HostsShared = "Shared"
)

// LoadBalancerClass is the class of the Services of type LoadBalancer that are ours.
const LoadBalancerClass = "fairlead.dev/l4"

// ConditionServed is a condition of a Service of LoadBalancerClass: whether machines
// answer at its address.
const ConditionServed = "fairlead.dev/Served"

// Reasons of ConditionServed, beside those that say why a Service has no address.
const (
	// ReasonServed says that every machine concerned balances it.
	ReasonServed = "Served"
	// ReasonPending says that a machine concerned has not said so yet.
	ReasonPending = "Pending"
	// ReasonUnsupportedProtocol says that no port of it is TCP or UDP.
	ReasonUnsupportedProtocol = "UnsupportedProtocol"
	// ReasonPortTaken says that another has a port of the address that it shares.
	ReasonPortTaken = "PortTaken"
)

// ConditionAccepted is true of a resource that has no fault of its own.
const ConditionAccepted = "Accepted"

// Reasons of ConditionAccepted.
const (
	// ReasonAccepted says that nothing is wrong with it.
	ReasonAccepted = "Accepted"
	// ReasonInvalid says that a field is wrong; the message names it.
	ReasonInvalid = "Invalid"
	// ReasonOverlap says that an older pool has some of the addresses.
	ReasonOverlap = "Overlap"
	// ReasonMachineAddress says that an address of the pool is a machine's own.
	ReasonMachineAddress = "MachineAddress"
	// ReasonAddressInUse says that an address of the pool is somebody else's: a BGPPeer's, a
	// Service's cluster IP, an endpoint, the address of a Service of another load balancer.
	ReasonAddressInUse = "AddressInUse"
)

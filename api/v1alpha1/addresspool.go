package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddressPool is a set of addresses from which Gateways, root IngressRoutes and Services are
// assigned VIPs. It selects the machines that announce the VIPs and the namespaces that may
// use them.
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

// AddressPoolSpec configures a pool.
type AddressPoolSpec struct {
	// Addresses of the pool: CIDRs ("192.0.2.0/28", "2001:db8::/120"), ranges
	// ("192.0.2.16-192.0.2.19") and single addresses ("192.0.2.30"). IPv4 and IPv6 can be
	// mixed. A pool must not overlap with another pool, nor contain an address of a machine.
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
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/3', '::/127', 'fe80::/10', 'ff00::/8'].all(n, !cidr(n).containsIP(cidr(self).ip()) && !cidr(self).containsCIDR(n))",message="has addresses that no client can reach (RFC 6890)"
	// +kubebuilder:validation:items:XValidation:rule="self.contains('/') || !self.split('-', 2).all(a, isIP(a.trim())) || self.split('-', 2).all(a, ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/3', '::/127', 'fe80::/10', 'ff00::/8'].all(n, !cidr(n).containsIP(a.trim())))",message="has addresses that no client can reach (RFC 6890)"
	Addresses []string `json:"addresses"`

	// AvoidBuggy excludes IPv4 addresses that end in .0 or .255, which some old equipment
	// treats as broadcast addresses.
	// +optional
	AvoidBuggy bool `json:"avoidBuggy,omitempty"`

	// Assign controls the assignment of addresses. Automatic assigns an address to every
	// resource that needs one. OnRequest assigns addresses only to resources that name the
	// pool or one of its addresses.
	// +optional
	// +kubebuilder:default=Automatic
	Assign AssignPolicy `json:"assign,omitempty"`

	// Namespaces selects, by label, the namespaces that may use the pool. Default: all.
	// +optional
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`

	// Sharing lets Services of several namespaces share a VIP of the pool, on different ports.
	// Default: only Services of one namespace can share a VIP.
	// +optional
	Sharing *PoolSharing `json:"sharing,omitempty"`

	// Machines selects, by label, the machines that announce the VIPs. Default: all.
	// +optional
	Machines *metav1.LabelSelector `json:"machines,omitempty"`

	// MaxMachines limits how many of the selected machines announce the VIPs. Default: all.
	// Cordoned machines do not count. Adding or removing a machine moves no other machine's
	// VIPs.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxMachines *int32 `json:"maxMachines,omitempty"`

	// Announce is the way in which the network learns where a VIP is. BGP: every machine
	// advertises the VIP to its peers, and the router spreads flows over the machines. L2: one
	// machine at a time answers ARP and neighbour discovery for the VIP.
	// +optional
	// +kubebuilder:default=BGP
	Announce AnnounceMode `json:"announce,omitempty"`

	// BGP configures the attributes of the advertisements of the pool's VIPs.
	// +optional
	BGP PathAttributes `json:"bgp,omitempty,omitzero"`

	// Interfaces on which the owner of a VIP answers (L2). Default: the interfaces in the
	// VIP's network; if there are none, the interface of the default route.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Interfaces []string `json:"interfaces,omitempty"`
}

// PoolSharing configures which namespaces may share the VIPs of a pool.
type PoolSharing struct {
	// Namespaces selects, by label, the namespaces whose Services may share VIPs with each
	// other; {} selects all. It must select both the namespace that the VIP is assigned to and
	// the namespace that shares it.
	Namespaces metav1.LabelSelector `json:"namespaces"`
}

// AssignPolicy controls the assignment of a pool's addresses.
//
// +kubebuilder:validation:Enum=Automatic;OnRequest
type AssignPolicy string

// The assign policies.
const (
	AssignAutomatic AssignPolicy = "Automatic"
	AssignOnRequest AssignPolicy = "OnRequest"
)

// AnnounceMode is the way in which the network learns where a VIP is.
//
// +kubebuilder:validation:Enum=BGP;L2
type AnnounceMode string

// The ways to announce.
const (
	AnnounceBGP AnnounceMode = "BGP"
	AnnounceL2  AnnounceMode = "L2"
)

// PathAttributes are added to an advertisement. An omitted attribute keeps the default of BGP.
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

	// LocalPreference for internal peers; a higher value is preferred.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LocalPreference *int64 `json:"localPreference,omitempty"`

	// MED is the multi-exit discriminator; a lower value is preferred.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MED *int64 `json:"med,omitempty"`

	// Prepend is how many more times the local AS is prepended to the path, for external
	// peers; a longer path is less preferred.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	Prepend int32 `json:"prepend,omitempty"`
}

// AddressPoolStatus records the assigned addresses. The plane records an address before the
// address is used, and only if the status has not changed since the plane read it. An address
// therefore never has two owners.
type AddressPoolStatus struct {
	// Assigned is the number of addresses that have an owner.
	// +optional
	Assigned int32 `json:"assigned"`
	// Free is the number of addresses that have no owner, for IPv4 and IPv6 separately: "13
	// IPv4, 255 IPv6".
	// +optional
	Free string `json:"free,omitempty"`
	// Assignments of addresses to owners, sorted by address.
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

// Assignment is an address and its owner.
type Assignment struct {
	// Address without a prefix length.
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address"`
	// Kind of the owner: Gateway, Service or IngressRoute. All root IngressRoutes of a pool
	// that request no address share one assignment, which has no namespace and no name.
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

// Annotations with which Gateways, root IngressRoutes and Services select VIPs and their use.
const (
	// AnnotationPool names the AddressPool from which VIPs are assigned.
	AnnotationPool = "fairlead.dev/address-pool"
	// AnnotationAddresses requests addresses, at most one of each family, separated by commas.
	// A Gateway uses spec.addresses instead.
	AnnotationAddresses = "fairlead.dev/addresses"
	// AnnotationHosts of a Gateway selects who may serve a host at its listeners:
	// HostsOfNamespaces or HostsShared, which is the default.
	AnnotationHosts = "fairlead.dev/hosts"
	// AnnotationShareVIP lets Services share VIPs. Services of one namespace share if they
	// have the same value. A Service of another namespace takes part with the value
	// NAMESPACE/VALUE, if the pool lets these namespaces share. If two Services use the same
	// port, a Service of the VIP's namespace has precedence over one of another namespace, and
	// then the older Service over the newer one.
	AnnotationShareVIP = "fairlead.dev/share-vip"
	// AnnotationDrainedBackends of a Service lists the addresses of its draining backends,
	// separated by commas.
	AnnotationDrainedBackends = "fairlead.dev/drained-backends"
)

// AnnotationAllowEndpoints of a Namespace lists CIDRs, separated by commas. Endpoints of the
// namespace in these networks are accepted although they would otherwise be refused, for
// example because they are in an AddressPool.
const AnnotationAllowEndpoints = "fairlead.dev/allow-endpoints"

// AnnotationMetrics of an HTTPRoute, a GRPCRoute or an IngressRoute asks for more metrics of its requests: MetricsOfRoute.
// That of a Service asks for metrics of each of its backends: MetricsOfBackend.
const AnnotationMetrics = "fairlead.dev/metrics"

// MetricsOfRoute is the value of AnnotationMetrics that gives a route series of its own.
const MetricsOfRoute = "route"

// MetricsOfBackend is the value of AnnotationMetrics that gives each backend of a Service series of its own.
const MetricsOfBackend = "backend"

// The values of AnnotationHosts.
const (
	// HostsOfNamespaces: each host serves the routes of one namespace, that of its oldest
	// route, and the routes of the namespace of the Gateway or the ListenerSet.
	HostsOfNamespaces = "Namespace"
	// HostsShared: each host serves the routes of all namespaces that may attach, merged
	// (Gateway API, HTTPRouteRule.matches).
	HostsShared = "Shared"
)

// LoadBalancerClass is the loadBalancerClass of the Services of type LoadBalancer that
// Fairlead balances.
const LoadBalancerClass = "fairlead.dev/l4"

// ConditionServed is a condition of a Service of LoadBalancerClass. It is true while machines
// serve the Service at its VIP.
const ConditionServed = "fairlead.dev/Served"

// Reasons of ConditionServed, in addition to the reasons for which a Service has no address.
const (
	// ReasonServed says that every machine concerned balances the Service.
	ReasonServed = "Served"
	// ReasonPending says that a machine concerned has not yet reported that it balances the
	// Service.
	ReasonPending = "Pending"
	// ReasonUnsupportedProtocol says that the Service has no TCP or UDP port.
	ReasonUnsupportedProtocol = "UnsupportedProtocol"
	// ReasonPortTaken says that another Service has a port of the shared VIP.
	ReasonPortTaken = "PortTaken"
)

// ConditionAccepted is true of a resource that is valid and conflicts with no other resource.
const ConditionAccepted = "Accepted"

// Reasons of ConditionAccepted.
const (
	// ReasonAccepted says that the resource is accepted.
	ReasonAccepted = "Accepted"
	// ReasonInvalid says that a field is invalid; the message names the field.
	ReasonInvalid = "Invalid"
	// ReasonOverlap says that an older pool has some of the addresses.
	ReasonOverlap = "Overlap"
	// ReasonMachineAddress says that the pool contains an address of a machine.
	ReasonMachineAddress = "MachineAddress"
	// ReasonAddressInUse says that the pool contains an address that is used elsewhere: by a
	// BGPPeer, as a Service's cluster IP, by an endpoint, or by a Service of another load
	// balancer.
	ReasonAddressInUse = "AddressInUse"
)

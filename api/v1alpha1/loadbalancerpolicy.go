package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// LoadBalancerPolicy configures how machines balance the connections and datagrams that
// clients send to a VIP of a Service of class fairlead.dev/l4, a Gateway or a route.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=loadbalancerpolicies,shortName=lbpol,categories=fairlead
// +kubebuilder:metadata:labels="gateway.networking.k8s.io/policy=Direct"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRefs[0].name`
// +kubebuilder:printcolumn:name="Section",type=string,JSONPath=`.spec.targetRefs[0].sectionName`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Check",type=string,JSONPath=`.spec.healthCheck.type`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.ancestors[0].conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.ancestors[0].conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LoadBalancerPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LoadBalancerPolicySpec `json:"spec"`
	// +optional
	Status gatewayv1.PolicyStatus `json:"status,omitempty,omitzero"`
}

// LoadBalancerPolicySpec configures the balancing of connections and datagrams. An omitted
// field has the value of the policy of a less specific target, or its default.
//
// +kubebuilder:validation:XValidation:rule="[has(self.mode), has(self.dataPlane), has(self.hash), has(self.sessionAffinity), has(self.healthCheck), has(self.panicThreshold), has(self.drainTime), has(self.sourceRanges), has(self.newFlowsPerSecond), has(self.externalTrafficPolicy), has(self.weights), has(self.scheduler), has(self.maxFlowsPerBackend), has(self.quic)].exists(x, x)",message="set at least one field besides targetRefs"
// +kubebuilder:validation:XValidation:rule="!has(self.dataPlane) || self.dataPlane == 'IPVS' || !has(self.scheduler)",message="scheduler is for dataPlane IPVS"
// +kubebuilder:validation:XValidation:rule="!has(self.dataPlane) || self.dataPlane == 'IPVS' || !has(self.maxFlowsPerBackend)",message="maxFlowsPerBackend is for dataPlane IPVS"
// +kubebuilder:validation:XValidation:rule="!has(self.dataPlane) || self.dataPlane == 'XDP' || !has(self.quic)",message="quic is for dataPlane XDP"
// +kubebuilder:validation:XValidation:rule="!has(self.dataPlane) || self.dataPlane == 'XDP' || !has(self.mode) || self.mode != 'DSRGeneve'",message="mode DSRGeneve is for dataPlane XDP"
// +kubebuilder:validation:XValidation:rule="!has(self.dataPlane) || self.dataPlane != 'NFTables' || !has(self.mode) || !(self.mode in ['DSRIPIP', 'DSRL2'])",message="modes DSRIPIP and DSRL2 are for dataPlane XDP and IPVS"
// +kubebuilder:validation:XValidation:rule="!has(self.dataPlane) || self.dataPlane != 'IPVS' || !has(self.sourceRanges) && !has(self.newFlowsPerSecond)",message="sourceRanges and newFlowsPerSecond are for dataPlane XDP and NFTables"
// +kubebuilder:validation:XValidation:rule="(!has(self.mode) || self.mode != 'DSRGeneve') && !has(self.quic) && !has(self.sourceRanges) && !has(self.newFlowsPerSecond) || !has(self.maxFlowsPerBackend) && (!has(self.scheduler) || self.scheduler == 'mh')",message="mode DSRGeneve and quic need XDP, sourceRanges and newFlowsPerSecond XDP or NFTables; schedulers wlc and wrr and maxFlowsPerBackend need IPVS: a frontend has one data plane"
type LoadBalancerPolicySpec struct {
	// TargetRefs are the targets of the policy: Services of class fairlead.dev/l4
	// (sectionName: the name of a port), Gateways (sectionName: a listener), TCPRoutes and
	// UDPRoutes. The policy of a route has precedence over that of its Gateway, and the policy
	// of a section over that of the whole object.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.group == '' && t.kind == 'Service' || t.group == 'gateway.networking.k8s.io' && t.kind in ['Gateway', 'TCPRoute', 'UDPRoute'])",message="targets of a LoadBalancerPolicy are Services, Gateways, TCPRoutes and UDPRoutes"
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, t == u))",message="name each target once"
	TargetRefs []gatewayv1.LocalPolicyTargetReferenceWithSectionName `json:"targetRefs"`

	// Mode is the way of packets to backends. Default: DSRGeneve if every backend is on a
	// machine with an agent, otherwise NAT.
	// +optional
	Mode ForwardMode `json:"mode,omitempty"`

	// DataPlane that balances. Default: the first of XDP, NFTables and IPVS that the machine
	// supports.
	// +optional
	DataPlane DataPlane `json:"dataPlane,omitempty"`

	// Hash selects the fields of a packet that choose the backend. Default: FiveTuple.
	// +optional
	Hash FlowHash `json:"hash,omitempty"`

	// SessionAffinity keeps each client address at its backend.
	// +optional
	SessionAffinity *SessionAffinity `json:"sessionAffinity,omitempty"`

	// HealthCheck probes the health of each backend. A few machines check, and all machines
	// receive the results. Default: a TCP backend is checked every second by a connection.
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`

	// PanicThreshold is the share of healthy backends, in percent, below which all backends
	// count as healthy; 0 means never. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PanicThreshold *int32 `json:"panicThreshold,omitempty"`

	// DrainTime is how long a draining backend keeps its flows. Default: 30s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be from 1s to 24h"
	DrainTime *gatewayv1.Duration `json:"drainTime,omitempty"`

	// SourceRanges lists the addresses and CIDRs of clients that are admitted. Default: all.
	// If the Service has loadBalancerSourceRanges, too, a client must be in both. IPVS does
	// not support it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self)",message="must be an address or a CIDR"
	SourceRanges []string `json:"sourceRanges,omitempty"`

	// NewFlowsPerSecond is the limit of new flows per second at one machine; further flows are
	// dropped and counted. IPVS does not support it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000000
	NewFlowsPerSecond *int32 `json:"newFlowsPerSecond,omitempty"`

	// ExternalTrafficPolicy Local sends new flows only to backends on the machine that
	// receives them, and only machines with such a backend announce the VIP. Default: the
	// value of the Service, otherwise Cluster.
	// +optional
	ExternalTrafficPolicy TrafficPolicy `json:"externalTrafficPolicy,omitempty"`

	// Weights of single backends among the backends of their Service. Default: 100. A backend
	// with weight 0 receives no new flows.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=1024
	Weights []BackendWeight `json:"weights,omitempty"`

	// Scheduler of IPVS. wlc and wrr need IPVS, because other data planes always hash.
	// Default: mh.
	// +optional
	Scheduler Scheduler `json:"scheduler,omitempty"`

	// MaxFlowsPerBackend is the limit of flows of a backend, beyond which it receives no new
	// flows (uthreshold of IPVS). Other data planes do not support it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxFlowsPerBackend *int32 `json:"maxFlowsPerBackend,omitempty"`

	// QUIC routes by connection IDs that contain the ID of the server, so that a client keeps
	// its server when its address changes. It needs UDP and data plane XDP.
	// +optional
	QUIC *QUICServerID `json:"quic,omitempty"`
}

// ForwardMode is the way of a packet to a backend. Local: to a socket of the machine itself.
// NAT: the addresses of both ends are rewritten, in both directions. DSRGeneve: through a
// tunnel to the agent on the backend's machine, and the backend answers the client directly.
// DSRIPIP: by IP-in-IP to any host that has the VIP and decapsulates. DSRL2: by its link
// address to a host of the same segment that has the VIP.
//
// +kubebuilder:validation:Enum=Local;NAT;DSRGeneve;DSRIPIP;DSRL2
type ForwardMode string

// The modes.
const (
	ForwardLocal     ForwardMode = "Local"
	ForwardNAT       ForwardMode = "NAT"
	ForwardDSRGeneve ForwardMode = "DSRGeneve"
	ForwardDSRIPIP   ForwardMode = "DSRIPIP"
	ForwardDSRL2     ForwardMode = "DSRL2"
)

// DataPlane is the kernel facility that balances.
//
// +kubebuilder:validation:Enum=XDP;NFTables;IPVS
type DataPlane string

// The data planes.
const (
	DataPlaneXDP      DataPlane = "XDP"
	DataPlaneNFTables DataPlane = "NFTables"
	DataPlaneIPVS     DataPlane = "IPVS"
)

// FlowHash is the set of fields that choose the backend of a packet: addresses, ports and
// protocol (FiveTuple), both addresses and the protocol (ThreeTuple), or the client's address
// (Source).
//
// +kubebuilder:validation:Enum=FiveTuple;ThreeTuple;Source
type FlowHash string

// The hashes.
const (
	HashFiveTuple  FlowHash = "FiveTuple"
	HashThreeTuple FlowHash = "ThreeTuple"
	HashSource     FlowHash = "Source"
)

// TrafficPolicy selects the backends to which a machine sends new flows: all (Cluster) or
// those on the machine itself (Local).
//
// +kubebuilder:validation:Enum=Cluster;Local
type TrafficPolicy string

// The traffic policies.
const (
	TrafficCluster TrafficPolicy = "Cluster"
	TrafficLocal   TrafficPolicy = "Local"
)

// Scheduler of IPVS: weighted least connection, weighted round robin, or Maglev hashing.
//
// +kubebuilder:validation:Enum=wlc;wrr;mh
type Scheduler string

// The schedulers.
const (
	SchedulerWLC Scheduler = "wlc"
	SchedulerWRR Scheduler = "wrr"
	SchedulerMH  Scheduler = "mh"
)

// SessionAffinity keeps each client address at its backend.
type SessionAffinity struct {
	// Timeout after which a silent client may be sent to another backend. Default: 3h.
	// +optional
	// +kubebuilder:default="3h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be from 1s to 24h"
	Timeout gatewayv1.Duration `json:"timeout,omitempty"`
}

// HealthCheck probes the health of each backend.
//
// +kubebuilder:validation:XValidation:rule="self.type in ['HTTP', 'HTTPS'] || !has(self.path) && !has(self.codes)",message="path and codes are for types HTTP and HTTPS"
// +kubebuilder:validation:XValidation:rule="self.type in ['HTTP', 'HTTPS', 'TLS', 'GRPC', 'GRPCS'] || !has(self.host)",message="host is for types HTTP, HTTPS, TLS, GRPC and GRPCS"
// +kubebuilder:validation:XValidation:rule="self.type in ['GRPC', 'GRPCS'] || !has(self.service)",message="service is for types GRPC and GRPCS"
// +kubebuilder:validation:XValidation:rule="self.type == 'UDP' ? has(self.send) : !has(self.send) && !has(self.expect)",message="type UDP needs send; send and expect are for type UDP only"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || !has(self.interval) || duration(self.timeout) <= duration(self.interval)",message="timeout must not be longer than interval"
type HealthCheck struct {
	// Type of the check: a connection (TCP), a TLS handshake (TLS), a GET request (HTTP,
	// HTTPS), grpc.health.v1 (GRPC, and GRPCS over TLS), or a datagram and its answer (UDP).
	// Certificates are not verified. None turns checks off: each backend that is ready in
	// Kubernetes receives new flows. Without healthCheck, TCP backends are checked every
	// second by a connection (presumed checks); None turns these off, too.
	Type CheckType `json:"type"`
	// Port to check. Default: the backend's own port.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`
	// Path of the request (HTTP, HTTPS). Default: "/".
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[!-~]*$`
	Path string `json:"path,omitempty"`
	// Host of the request, and the server name (SNI) of TLS. Default: the backend's address,
	// and no server name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Host string `json:"host,omitempty"`
	// Codes of healthy answers (HTTP, HTTPS), as numbers and ranges: "200", "200-399".
	// Default: 200.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^[1-5][0-9]{2}(-[1-5][0-9]{2})?$`
	Codes []string `json:"codes,omitempty"`
	// Service of the gRPC health protocol (GRPC, GRPCS). Default: the whole server.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Service string `json:"service,omitempty"`
	// Send is the datagram of a UDP check, in base64.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Send []byte `json:"send,omitempty"`
	// Expect is the prefix that the answer to a UDP check must have, in base64. Default: any
	// answer passes.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Expect []byte `json:"expect,omitempty"`
	// Interval between two checks. Default: 2s.
	// +optional
	// +kubebuilder:default="2s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1h')",message="must be from 100ms to 1h"
	Interval gatewayv1.Duration `json:"interval,omitempty"`
	// Timeout of one check. Default: 1s, or the interval if it is shorter.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('1m')",message="must be from 10ms to 1m"
	Timeout gatewayv1.Duration `json:"timeout,omitempty"`
	// JitterPercent is the random share of the interval. Default: 10.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	JitterPercent *int32 `json:"jitterPercent,omitempty"`
	// Rise is the number of successful checks in a row after which a backend is healthy again.
	// Default: 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Rise *int32 `json:"rise,omitempty"`
	// Fall is the number of failed checks in a row after which a backend is unhealthy.
	// Default: 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Fall *int32 `json:"fall,omitempty"`
}

// CheckType is the type of a health check.
//
// +kubebuilder:validation:Enum=TCP;TLS;HTTP;HTTPS;GRPC;GRPCS;UDP;None
type CheckType string

// The types of checks.
const (
	CheckTCP   CheckType = "TCP"
	CheckTLS   CheckType = "TLS"
	CheckHTTP  CheckType = "HTTP"
	CheckHTTPS CheckType = "HTTPS"
	CheckGRPC  CheckType = "GRPC"
	CheckGRPCS CheckType = "GRPCS"
	CheckUDP   CheckType = "UDP"
	CheckNone  CheckType = "None"
)

// BackendWeight is the weight of one backend.
type BackendWeight struct {
	// Address of the backend.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an address"
	Address string `json:"address"`
	// Weight relative to the other backends of the Service, which have weight 100 by default.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Weight int32 `json:"weight"`
}

// QUICServerID locates the server ID in a connection ID (draft-ietf-quic-load-balancers, in
// clear text).
//
// +kubebuilder:validation:XValidation:rule="(has(self.serverIDOffset) ? self.serverIDOffset : 1) + self.serverIDLength <= 20",message="connection IDs have at most 20 bytes"
type QUICServerID struct {
	// ServerIDOffset is the number of bytes before the server ID. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=15
	ServerIDOffset *int32 `json:"serverIDOffset,omitempty"`
	// ServerIDLength is the length of the server ID in bytes.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	ServerIDLength int32 `json:"serverIDLength"`
}

// LoadBalancerPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type LoadBalancerPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LoadBalancerPolicy `json:"items"`
}

func init() { register(&LoadBalancerPolicy{}, &LoadBalancerPolicyList{}) }

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// LoadBalancerPolicy says how machines balance the connections and datagrams that clients
// send to a VIP: of a Service of class fairlead.dev/l4, of a Gateway, or of a route.
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

// LoadBalancerPolicySpec is how connections and datagrams are balanced. What is left out
// is what a policy of a larger target says, or the default.
//
// +kubebuilder:validation:XValidation:rule="[has(self.mode), has(self.dataPlane), has(self.hash), has(self.sessionAffinity), has(self.healthCheck), has(self.panicThreshold), has(self.drainTime), has(self.sourceRanges), has(self.newFlowsPerSecond), has(self.externalTrafficPolicy), has(self.weights), has(self.scheduler), has(self.maxFlowsPerBackend), has(self.quic)].exists(x, x)",message="say at least one thing besides targetRefs"
// +kubebuilder:validation:XValidation:rule="!has(self.dataPlane) || self.dataPlane == 'IPVS' || !has(self.scheduler)",message="scheduler is for dataPlane IPVS"
// +kubebuilder:validation:XValidation:rule="!has(self.dataPlane) || self.dataPlane == 'IPVS' || !has(self.maxFlowsPerBackend)",message="maxFlowsPerBackend is for dataPlane IPVS"
// +kubebuilder:validation:XValidation:rule="!has(self.dataPlane) || self.dataPlane == 'XDP' || !has(self.quic)",message="quic is for dataPlane XDP"
// +kubebuilder:validation:XValidation:rule="!has(self.dataPlane) || self.dataPlane == 'XDP' || !has(self.mode) || self.mode != 'DSRGeneve'",message="mode DSRGeneve is for dataPlane XDP"
// +kubebuilder:validation:XValidation:rule="!has(self.dataPlane) || self.dataPlane != 'NFTables' || !has(self.mode) || !(self.mode in ['DSRIPIP', 'DSRL2'])",message="modes DSRIPIP and DSRL2 are for dataPlane XDP and IPVS"
// +kubebuilder:validation:XValidation:rule="!has(self.dataPlane) || self.dataPlane != 'IPVS' || !has(self.sourceRanges) && !has(self.newFlowsPerSecond)",message="sourceRanges and newFlowsPerSecond are for dataPlane XDP and NFTables"
// +kubebuilder:validation:XValidation:rule="(!has(self.mode) || self.mode != 'DSRGeneve') && !has(self.quic) && !has(self.sourceRanges) && !has(self.newFlowsPerSecond) || !has(self.maxFlowsPerBackend) && (!has(self.scheduler) || self.scheduler == 'mh')",message="mode DSRGeneve and quic need XDP, sourceRanges and newFlowsPerSecond XDP or NFTables; schedulers wlc and wrr and maxFlowsPerBackend need IPVS: no machine balances by both"
type LoadBalancerPolicySpec struct {
	// TargetRefs name Services of class fairlead.dev/l4 (sectionName is the name of a
	// port), Gateways (sectionName is a listener), TCPRoutes and UDPRoutes. What a route's
	// policy says goes before what its Gateway's says, a section before the whole.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.group == '' && t.kind == 'Service' || t.group == 'gateway.networking.k8s.io' && t.kind in ['Gateway', 'TCPRoute', 'UDPRoute'])",message="targets of a LoadBalancerPolicy are Services, Gateways, TCPRoutes and UDPRoutes"
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, t == u))",message="name each target once"
	TargetRefs []gatewayv1.LocalPolicyTargetReferenceWithSectionName `json:"targetRefs"`

	// Mode is how packets get to backends. Left out, the machine chooses: DSRGeneve where
	// every backend is on a machine with an agent, else NAT.
	// +optional
	Mode ForwardMode `json:"mode,omitempty"`

	// DataPlane that carries it out. Left out, the machine takes the first of XDP, NFTables
	// and IPVS that it can.
	// +optional
	DataPlane DataPlane `json:"dataPlane,omitempty"`

	// Hash says what of a packet chooses the backend. Default: FiveTuple.
	// +optional
	Hash FlowHash `json:"hash,omitempty"`

	// SessionAffinity keeps each client address at its backend.
	// +optional
	SessionAffinity *SessionAffinity `json:"sessionAffinity,omitempty"`

	// HealthCheck asks each backend whether it works. A few machines ask, and all know. Default:
	// backends of TCP are asked for a connection each second.
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`

	// PanicThreshold is the share of healthy backends, percent, below which all count as
	// healthy: 0 is never. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PanicThreshold *int32 `json:"panicThreshold,omitempty"`

	// DrainTime is how long a backend that takes no new flow keeps those that it has.
	// Default: 30s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be from 1s to 24h"
	DrainTime *gatewayv1.Duration `json:"drainTime,omitempty"`

	// SourceRanges that may be clients, as addresses or CIDRs; everybody when left out.
	// Where a Service says loadBalancerSourceRanges too, a client must be in both. Not of IPVS.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self)",message="must be an address or a CIDR"
	SourceRanges []string `json:"sourceRanges,omitempty"`

	// NewFlowsPerSecond that one machine lets in; more are dropped and counted. Not of IPVS.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000000
	NewFlowsPerSecond *int32 `json:"newFlowsPerSecond,omitempty"`

	// ExternalTrafficPolicy Local takes new flows to backends of the machine that they
	// reach only, and only machines that have one announce the VIP. Default: what the
	// Service says, else Cluster.
	// +optional
	ExternalTrafficPolicy TrafficPolicy `json:"externalTrafficPolicy,omitempty"`

	// Weights of single backends among those of their Service, 100 for others; 0 takes no
	// new flow.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=1024
	Weights []BackendWeight `json:"weights,omitempty"`

	// Scheduler of IPVS; any but mh needs it, for other data planes always hash. Default: mh.
	// +optional
	Scheduler Scheduler `json:"scheduler,omitempty"`

	// MaxFlowsPerBackend lets no further flow to a backend that has so many (IPVS:
	// uthreshold). Other data planes do not count flows so.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxFlowsPerBackend *int32 `json:"maxFlowsPerBackend,omitempty"`

	// QUIC routes by connection IDs into which the servers write who they are, so that a
	// client keeps its server when its address changes. For UDP, with data plane XDP.
	// +optional
	QUIC *QUICServerID `json:"quic,omitempty"`
}

// ForwardMode is how a packet gets to a backend: to sockets of the machine itself
// (Local); with the addresses of both ends rewritten, both ways (NAT); through a tunnel to
// the agent of the backend's machine, which answers the client directly (DSRGeneve);
// through IP-in-IP to any host that has the VIP and undoes it (DSRIPIP); or by its link
// address to a host of the same segment that has the VIP (DSRL2).
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

// DataPlane is what carries balancing out in the kernel.
//
// +kubebuilder:validation:Enum=XDP;NFTables;IPVS
type DataPlane string

// The data planes.
const (
	DataPlaneXDP      DataPlane = "XDP"
	DataPlaneNFTables DataPlane = "NFTables"
	DataPlaneIPVS     DataPlane = "IPVS"
)

// FlowHash is what of a packet chooses the backend: addresses, ports and protocol
// (FiveTuple), both addresses and the protocol (ThreeTuple), or the client's address
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

// TrafficPolicy says to which backends a machine takes new flows: all (Cluster), or its
// own only (Local).
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
	// Timeout after which a silent client may get another backend. Default: 3h.
	// +optional
	// +kubebuilder:default="3h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be from 1s to 24h"
	Timeout gatewayv1.Duration `json:"timeout,omitempty"`
}

// HealthCheck asks each backend whether it works.
//
// +kubebuilder:validation:XValidation:rule="self.type in ['HTTP', 'HTTPS'] || !has(self.path) && !has(self.codes)",message="path and codes are for types HTTP and HTTPS"
// +kubebuilder:validation:XValidation:rule="self.type in ['HTTP', 'HTTPS', 'TLS', 'GRPC', 'GRPCS'] || !has(self.host)",message="host is for types HTTP, HTTPS, TLS, GRPC and GRPCS"
// +kubebuilder:validation:XValidation:rule="self.type in ['GRPC', 'GRPCS'] || !has(self.service)",message="service is for types GRPC and GRPCS"
// +kubebuilder:validation:XValidation:rule="self.type == 'UDP' ? has(self.send) : !has(self.send) && !has(self.expect)",message="type UDP needs send, and no other has send or expect"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || !has(self.interval) || duration(self.timeout) <= duration(self.interval)",message="timeout must not be longer than interval"
type HealthCheck struct {
	// Type is how a backend is asked: a connection (TCP), a TLS handshake (TLS), a GET (HTTP,
	// HTTPS), grpc.health.v1 (GRPC, and GRPCS over TLS), or a datagram and its answer (UDP).
	// Certificates are not verified. None switches checks off: each backend that Kubernetes
	// calls ready gets new flows. Without any healthCheck, backends of TCP are checked by a
	// connection every second (presumed checks); None switches these off, too.
	Type CheckType `json:"type"`
	// Port to ask at; the backend's own when left out.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`
	// Path to get (HTTP, HTTPS). Default: "/".
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
	// Codes that are healthy (HTTP, HTTPS), as numbers and ranges: "200", "200-399".
	// Default: 200.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^[1-5][0-9]{2}(-[1-5][0-9]{2})?$`
	Codes []string `json:"codes,omitempty"`
	// Service of the gRPC health protocol (GRPC, GRPCS); the whole server when left out.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Service string `json:"service,omitempty"`
	// Send is the datagram of a UDP check, in base64.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Send []byte `json:"send,omitempty"`
	// Expect is what the answer to a UDP check must begin with, in base64; any answer is
	// good when left out.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Expect []byte `json:"expect,omitempty"`
	// Interval between two checks. Default: 2s.
	// +optional
	// +kubebuilder:default="2s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1h')",message="must be from 100ms to 1h"
	Interval gatewayv1.Duration `json:"interval,omitempty"`
	// Timeout of one check. Default: 1s, or the interval where that is shorter.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('1m')",message="must be from 10ms to 1m"
	Timeout gatewayv1.Duration `json:"timeout,omitempty"`
	// JitterPercent is the share of the interval that is drawn at random. Default: 10.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	JitterPercent *int32 `json:"jitterPercent,omitempty"`
	// Rise is how many good checks in a row bring a backend back. Default: 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Rise *int32 `json:"rise,omitempty"`
	// Fall is how many bad checks in a row take a backend out. Default: 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Fall *int32 `json:"fall,omitempty"`
}

// CheckType is how a backend is asked.
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
	// Weight among the backends of its Service; 100 is that of one of which nothing is said.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Weight int32 `json:"weight"`
}

// QUICServerID says where in a connection ID the server wrote who it is
// (draft-ietf-quic-load-balancers, in clear text).
//
// +kubebuilder:validation:XValidation:rule="(has(self.serverIDOffset) ? self.serverIDOffset : 1) + self.serverIDLength <= 20",message="connection IDs have at most 20 bytes"
type QUICServerID struct {
	// ServerIDOffset is how many bytes stand before the server ID. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=15
	ServerIDOffset *int32 `json:"serverIDOffset,omitempty"`
	// ServerIDLength is how many bytes the server ID has.
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

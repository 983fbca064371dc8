package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BGPPeer is a router or a route reflector to which machines advertise VIPs.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=peer,categories=fairlead
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="Interface",type=string,JSONPath=`.spec.interface`
// +kubebuilder:printcolumn:name="Local AS",type=integer,JSONPath=`.spec.localASN`
// +kubebuilder:printcolumn:name="Peer AS",type=integer,JSONPath=`.spec.peerASN`
// +kubebuilder:printcolumn:name="Established",type=string,JSONPath=`.status.conditions[?(@.type=="Established")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.status=="False")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BGPPeer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec BGPPeerSpec `json:"spec"`
	// +optional
	Status BGPPeerStatus `json:"status,omitempty"`
}

// BGPPeerSpec configures the sessions of machines with a peer.
//
// +kubebuilder:validation:XValidation:rule="has(self.address) != has(self.interface)",message="give either address, or interface to find the router of a link"
// +kubebuilder:validation:XValidation:rule="!has(self.interface) || !has(self.sourceAddress)",message="sourceAddress is for peers with an address: with interface the session comes from the link-local address"
// +kubebuilder:validation:XValidation:rule="!has(self.interface) || !has(self.ttl)",message="ttl is for peers with an address: with interface the router is on the link"
// +kubebuilder:validation:XValidation:rule="!has(self.interface) || !has(self.ttlSecurityHops) || self.ttlSecurityHops == 1",message="with interface the router is on the link: ttlSecurityHops must be 1"
// +kubebuilder:validation:XValidation:rule="!has(self.keepaliveTime) || !has(self.holdTime) || !self.holdTime.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') || duration(self.holdTime) != duration('0s')",message="holdTime 0s turns keepalives off: leave one of the two out"
// +kubebuilder:validation:XValidation:rule="!has(self.keepaliveTime) || !has(self.holdTime) || !self.holdTime.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') || !self.keepaliveTime.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') || duration(self.holdTime) == duration('0s') || duration(self.keepaliveTime) < duration(self.holdTime)",message="keepaliveTime must be shorter than holdTime"
// +kubebuilder:validation:XValidation:rule="!has(self.ttl) || self.localASN != self.peerASN",message="ttl is for external peers: localASN and peerASN are the same"
// +kubebuilder:validation:XValidation:rule="!has(self.ttl) || !has(self.ttlSecurityHops)",message="ttl and ttlSecurityHops exclude each other: with ttlSecurityHops packets have TTL 255"
// +kubebuilder:validation:XValidation:rule="!has(self.role) || self.localASN != self.peerASN",message="role is for external peers: localASN and peerASN are the same"
// +kubebuilder:validation:XValidation:rule="!has(self.strictRole) || !self.strictRole || has(self.role)",message="strictRole needs role"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceAddress) || !has(self.address) || !isIP(self.address.split('%')[0]) || self.sourceAddress.contains(':') == self.address.contains(':')",message="sourceAddress must be of the same family as address"
// +kubebuilder:validation:XValidation:rule="!has(self.localPreference) || self.localASN == self.peerASN",message="localPreference is for internal peers: localASN and peerASN differ"
// +kubebuilder:validation:XValidation:rule="!has(self.prepend) || self.prepend == 0 || self.localASN != self.peerASN",message="prepend is for external peers: localASN and peerASN are the same"
type BGPPeerSpec struct {
	// Address of the peer, IPv4 or IPv6. A link-local IPv6 address needs its interface:
	// fe80::1%eth0. Set either address or interface.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isIP(self.split('%')[0])",message="must be an IPv4 or IPv6 address"
	// +kubebuilder:validation:XValidation:rule="!isIP(self.split('%')[0]) || ip(self.split('%')[0]).isGlobalUnicast() || ip(self.split('%')[0]).isLinkLocalUnicast() || ip(self.split('%')[0]).isLoopback()",message="must be the address of one machine"
	// +kubebuilder:validation:XValidation:rule="!isIP(self.split('%')[0]) || self.contains('%') == (ip(self.split('%')[0]).family() == 6 && ip(self.split('%')[0]).isLinkLocalUnicast())",message="a link-local IPv6 address needs its interface, as in fe80::1%eth0, and no other address has one"
	Address string `json:"address,omitempty"`

	// Interface is the name of the interface, on each machine, that leads to the peer.
	// Machines learn the router's link-local address from its Router Advertisements (RFC
	// 4861). They send Router Advertisements too, so that the router learns their addresses.
	// The link must have one router at the other end.
	// +optional
	// +kubebuilder:validation:Pattern=`^[^/:%\s]{1,15}$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['.', '..'])",message="is not a valid interface name"
	Interface string `json:"interface,omitempty"`

	// Port of the peer.
	// +optional
	// +kubebuilder:default=179
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// LocalASN is the AS of the machines.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:XValidation:rule="!(self in [23456, 65535, 4294967295])",message="is a reserved AS (RFC 6793, RFC 7300)"
	LocalASN int64 `json:"localASN"`

	// PeerASN is the AS of the peer. If it is the same as localASN, the peer is internal, for
	// example a route reflector.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:XValidation:rule="!(self in [23456, 65535, 4294967295])",message="is a reserved AS (RFC 6793, RFC 7300)"
	PeerASN int64 `json:"peerASN"`

	// Machines selects, by label, the machines that have a session with the peer. Default:
	// all.
	// +optional
	Machines *metav1.LabelSelector `json:"machines,omitempty"`

	// TTL of packets to an external peer that is not on the machines' link (multihop).
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=255
	TTL int32 `json:"ttl,omitempty"`

	// TTLSecurityHops is the largest distance, in hops, from which packets of the peer are
	// accepted; 1 is the machines' link (RFC 5082, GTSM). The peer must send packets with TTL
	// 255. The machines do so, too.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=254
	TTLSecurityHops int32 `json:"ttlSecurityHops,omitempty"`

	// Connection selects the side that opens the TCP connection. Active: machines connect to
	// the peer. Passive: machines wait for the peer at port 179. Both: machines do both, and
	// one connection remains.
	// +optional
	// +kubebuilder:default=Active
	Connection ConnectionMode `json:"connection,omitempty"`

	// SourceAddress of the session: an address, or a network in which each machine has one
	// address.
	// +optional
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isIP(self) || isCIDR(self)",message="must be an address like 192.0.2.7, or a network like 192.0.2.0/24 in which each machine has one"
	SourceAddress string `json:"sourceAddress,omitempty"`

	// VRF is the name of the VRF device through which machines reach the peer.
	// +optional
	// +kubebuilder:validation:Pattern=`^[^/:%\s]{1,15}$`
	VRF string `json:"vrf,omitempty"`

	// Role of the machines towards the peer (RFC 9234). The session is established only if the
	// peer's role matches, and routes are marked to prevent route leaks.
	// +optional
	Role BGPRole `json:"role,omitempty"`

	// StrictRole refuses a peer that announces no role.
	// +optional
	StrictRole bool `json:"strictRole,omitempty"`

	// PasswordSecret is the name of a Secret in the planes' namespace (fairlead-system). Its
	// key "password" authenticates the TCP segments (RFC 2385, MD5).
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PasswordSecret string `json:"passwordSecret,omitempty"`

	// HoldTime after which the session with a silent peer ends; 0s means never.
	// +optional
	// +kubebuilder:default="9s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$')",message="must be a duration, such as 9s, 1500ms or 1m30s"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') || duration(self) == duration('0s') || duration(self) >= duration('3s') && duration(self) <= duration('65535s')",message="holdTime must be 0s (never) or from 3s to 65535s (RFC 4271, 4.2)"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') || duration(self).getMilliseconds() % 1000 == 0",message="holdTime must be whole seconds"
	HoldTime *metav1.Duration `json:"holdTime,omitempty"`

	// KeepaliveTime is the time between two keepalive messages. Default: a third of the hold
	// time.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$')",message="must be a duration, such as 9s, 1500ms or 1m30s"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') || duration(self) >= duration('1s') && duration(self) <= duration('21845s')",message="must be between 1s and 21845s"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') || duration(self).getMilliseconds() % 1000 == 0",message="must be whole seconds"
	KeepaliveTime *metav1.Duration `json:"keepaliveTime,omitempty"`

	// ConnectRetryTime is the longest time between two attempts to connect.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$')",message="must be a duration, such as 9s, 1500ms or 1m30s"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') || duration(self) >= duration('1s') && duration(self) <= duration('3600s')",message="must be between 1s and 1h"
	ConnectRetryTime *metav1.Duration `json:"connectRetryTime,omitempty"`

	// BFD monitors the path to the peer and detects a failure sooner than the hold time does.
	// +optional
	BFD *BFDSpec `json:"bfd,omitempty"`

	// GracefulRestart lets the peer keep the machine's routes while the agent restarts and
	// Envoy continues to serve.
	// +optional
	// +kubebuilder:default={}
	GracefulRestart GracefulRestartSpec `json:"gracefulRestart,omitempty"`

	// AddPath offers the peer several paths for a prefix (RFC 7911).
	// +optional
	AddPath bool `json:"addPath,omitempty"`

	// Families of addresses that the session carries. Default: the family of address; with
	// interface, both families.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	Families []Family `json:"families,omitempty"`

	// NextHopIPv4 replaces the session's own address as the next hop of IPv4 prefixes: an
	// address, or a network in which each machine has one address.
	// +optional
	// +kubebuilder:validation:MaxLength=18
	// +kubebuilder:validation:XValidation:rule="isIP(self) ? ip(self).family() == 4 && ip(self).isGlobalUnicast() : isCIDR(self) && cidr(self).ip().family() == 4",message="must be an IPv4 address at which a router can reach a machine, or an IPv4 network in which each machine has one"
	NextHopIPv4 string `json:"nextHopIPv4,omitempty"`

	// NextHopIPv6 is the next hop of IPv6 prefixes, like nextHopIPv4.
	// +optional
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isIP(self) ? ip(self).family() == 6 && ip(self).isGlobalUnicast() : isCIDR(self) && cidr(self).ip().family() == 6",message="must be an IPv6 address at which a router can reach a machine, or an IPv6 network in which each machine has one"
	NextHopIPv6 string `json:"nextHopIPv6,omitempty"`

	// MaxPrefixes is the largest number of prefixes that the peer may send. No prefix of the
	// peer is used, and prefixes beyond the limit are not counted.
	// +optional
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	MaxPrefixes int32 `json:"maxPrefixes,omitempty"`

	// MaxPrefixesAction is the action if the peer exceeds the limit. Ignore keeps the session
	// and reports the excess. EndSession ends the session, which withdraws its VIPs, and
	// retries later.
	// +optional
	// +kubebuilder:default=Ignore
	MaxPrefixesAction MaxPrefixesAction `json:"maxPrefixesAction,omitempty"`

	PathAttributes `json:",inline"`
}

// MaxPrefixesAction is the action if a peer sends too many prefixes.
//
// +kubebuilder:validation:Enum=Ignore;EndSession
type MaxPrefixesAction string

// The actions.
const (
	MaxPrefixesIgnore     MaxPrefixesAction = "Ignore"
	MaxPrefixesEndSession MaxPrefixesAction = "EndSession"
)

// Family is an address family.
//
// +kubebuilder:validation:Enum=IPv4;IPv6
type Family string

// The address families.
const (
	FamilyIPv4 Family = "IPv4"
	FamilyIPv6 Family = "IPv6"
)

// BFDSpec configures the monitoring of a path (RFC 5880).
type BFDSpec struct {
	// Interval between two packets, in both directions.
	// +optional
	// +kubebuilder:default="300ms"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$')",message="must be a duration, such as 9s, 1500ms or 1m30s"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') || duration(self) >= duration('10ms') && duration(self) <= duration('60s')",message="must be between 10ms and 60s"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// Multiplier is the number of missed packets after which the path is down.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	Multiplier int32 `json:"multiplier,omitempty"`

	// Mode of BFD. SingleHop (RFC 5881, port 3784) accepts only packets that crossed no
	// router. MultiHop (RFC 5883, port 4784) also accepts packets that crossed routers.
	// Default: SingleHop for external peers on the link, otherwise MultiHop.
	// +optional
	Mode BFDMode `json:"mode,omitempty"`
}

// BFDMode is the distance over which BFD packets are accepted.
//
// +kubebuilder:validation:Enum=SingleHop;MultiHop
type BFDMode string

// The modes.
const (
	BFDSingleHop BFDMode = "SingleHop"
	BFDMultiHop  BFDMode = "MultiHop"
)

// ConnectionMode selects the side that opens the connection of a session.
//
// +kubebuilder:validation:Enum=Active;Passive;Both
type ConnectionMode string

// The connection modes.
const (
	ConnectionActive  ConnectionMode = "Active"
	ConnectionPassive ConnectionMode = "Passive"
	ConnectionBoth    ConnectionMode = "Both"
)

// BGPRole is the role of a speaker towards its peer (RFC 9234).
//
// +kubebuilder:validation:Enum=Provider;RouteServer;RouteServerClient;Customer;Peer
type BGPRole string

// The roles.
const (
	RoleProvider          BGPRole = "Provider"
	RoleRouteServer       BGPRole = "RouteServer"
	RoleRouteServerClient BGPRole = "RouteServerClient"
	RoleCustomer          BGPRole = "Customer"
	RolePeer              BGPRole = "Peer"
)

// GracefulRestartSpec configures how long a peer keeps routes without a session (RFC 4724).
type GracefulRestartSpec struct {
	// Disabled makes the peer remove the routes when the session ends.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// RestartTime is the longest time for which an agent may be away.
	// +optional
	// +kubebuilder:default="15s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$')",message="must be a duration, such as 9s, 1500ms or 1m30s"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') || duration(self) >= duration('1s') && duration(self) <= duration('4095s')",message="must be between 1s and 4095s"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') || duration(self).getMilliseconds() % 1000 == 0",message="must be whole seconds"
	RestartTime *metav1.Duration `json:"restartTime,omitempty"`
}

// BGPPeerStatus is the state of a peer that the plane last wrote. The plane writes it on
// transitions only; `fairlead bgp` shows the current sessions.
type BGPPeerStatus struct {
	// InForce are the settings that machines use: those of spec or, while spec is invalid, the
	// last valid ones. An invalid edit therefore ends no session.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	InForce *BGPPeerSpec `json:"inForce,omitempty"`
	// Conditions of the peer: Accepted and Established. Established is true while every
	// connected machine that is selected has a session.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BGPPeerList is a list of peers.
//
// +kubebuilder:object:root=true
type BGPPeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BGPPeer `json:"items"`
}

func init() { register(&BGPPeer{}, &BGPPeerList{}) }

// SystemNamespace is the namespace of the planes' own objects and of the peers' Secrets.
const SystemNamespace = "fairlead-system"

// Reasons of ConditionAccepted of a peer, in addition to ReasonAccepted and ReasonInvalid.
const (
	// ReasonConflict says that an older peer has the same address on some machine.
	ReasonConflict = "Conflict"
	// ReasonPasswordMissing says that the Secret with the password does not exist.
	ReasonPasswordMissing = "PasswordMissing"
)

// ConditionRouterIDConflict is present, and true, only while several machines have the same
// router ID. The oldest machine keeps the ID; the others choose another one.
const ConditionRouterIDConflict = "RouterIDConflict"

// ReasonDuplicate says that several Machines have the same router ID.
const ReasonDuplicate = "Duplicate"

// ConditionEstablished is true of a peer to which all selected machines have a session.
const ConditionEstablished = "Established"

// Reasons of ConditionEstablished, in addition to the reasons of a session, which
// docs/reference/status.md lists.
const (
	// ReasonEstablished says that every session is up.
	ReasonEstablished = "Established"
	// ReasonNoMachines says that no connected machine is selected.
	ReasonNoMachines = "NoMachines"
)

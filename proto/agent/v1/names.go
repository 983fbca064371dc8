// Package agentv1 is the agent protocol: the generated messages and services of
// agent.proto and planes.proto, and the names that both of its ends use. It holds no behaviour.
package agentv1

// Names that both ends of the agent protocol use.
const (
	// ServerName is the DNS name in a plane's certificate. Agents ask for it
	// whatever address they dial: the authority, not the address, makes a plane.
	ServerName = "plane.fairlead.internal"
	// MachinePrefix and a machine's name make the common name of its certificate.
	MachinePrefix = "machine:"
	// RoleEdge is the role of a token that says none, RoleBackend that of a machine that has
	// backends only.
	RoleEdge    = "edge"
	RoleBackend = "backend"
	// Audience is whom the token of a pod's service account must be for.
	Audience = "fairlead.dev/plane"
	// RevisionField of the node metadata, in the first request of an ADS stream, is
	// the largest "<epoch>/<revision>" that the agent has accepted, as a string.
	RevisionField = "revision"

	// The type URLs of Envoy's resources, which a plane makes and an agent relays.
	ListenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	ScopeType    = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
	RouteType    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	ClusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	SecretType   = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

	// CheckpointType and CheckpointName are the type URL and the name of the
	// Checkpoint. An agent subscribes to it after all other types.
	CheckpointType = "type.googleapis.com/fairlead.agent.v1.Checkpoint"
	CheckpointName = "checkpoint"
	// MachineConfigType is the type URL of the MachineConfig.
	MachineConfigType = "type.googleapis.com/fairlead.agent.v1.MachineConfig"
	// VipType, BgpPeerType and BgpPasswordType are the type URLs of what a machine does
	// in the network.
	VipType         = "type.googleapis.com/fairlead.agent.v1.Vip"
	BgpPeerType     = "type.googleapis.com/fairlead.agent.v1.BgpPeer"
	BgpPasswordType = "type.googleapis.com/fairlead.agent.v1.BgpPassword"
	// FrontendType and FrontendBackendsType are the type URLs of what a machine balances,
	// NodeType that of the machines around it, CheckType that of what it checks for all.
	FrontendType         = "type.googleapis.com/fairlead.agent.v1.Frontend"
	FrontendBackendsType = "type.googleapis.com/fairlead.agent.v1.FrontendBackends"
	NodeType             = "type.googleapis.com/fairlead.agent.v1.Node"
	CheckType            = "type.googleapis.com/fairlead.agent.v1.Check"
	// CheckMetadata is where the metadata of an endpoint in a load assignment says by which
	// Check it is checked, under CheckMetadataKey; only of those that take requests as far
	// as their state goes. The proxy is not sent it.
	CheckMetadata    = "fairlead.dev/health"
	CheckMetadataKey = "check"
	// PresumedMetadataKey is there, true, if nobody asked for the check: one of which nothing is
	// known takes requests beside others, and where none is left, all do.
	PresumedMetadataKey = "presumed"
)

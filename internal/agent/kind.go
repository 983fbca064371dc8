package agent

import (
	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// The resource types that an agent handles, as type URLs.
const (
	typeCluster  delta.Type = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	typeEndpoint delta.Type = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	typeSecret   delta.Type = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	typeRoute    delta.Type = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	typeScope    delta.Type = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
	typeListener delta.Type = "type.googleapis.com/envoy.config.listener.v3.Listener"

	typeMachine  delta.Type = "type.googleapis.com/fairlead.agent.v1.MachineConfig"
	typeVIP      delta.Type = agentv1.VipType
	typePeer     delta.Type = agentv1.BgpPeerType
	typePassword delta.Type = agentv1.BgpPasswordType

	typeNode             delta.Type = agentv1.NodeType
	typeFrontendBackends delta.Type = agentv1.FrontendBackendsType
	typeFrontend         delta.Type = agentv1.FrontendType
	typeCheck            delta.Type = agentv1.CheckType

	typeCheckpoint delta.Type = "type.googleapis.com/fairlead.agent.v1.Checkpoint"
)

// proxyTypes are relayed to Envoy: what is named comes before what names it.
var proxyTypes = [...]delta.Type{typeCluster, typeEndpoint, typeSecret, typeRoute, typeScope, typeListener}

// planeTypes are asked of the plane, in this order: a VIP comes when all that balances it
// is there, and the checkpoint comes last.
var planeTypes = [...]delta.Type{
	typeCluster, typeEndpoint, typeSecret, typeRoute, typeScope, typeListener, typeMachine,
	typeNode, typeFrontendBackends, typeFrontend, typeCheck, typePassword, typePeer, typeVIP, typeCheckpoint,
}

// isNetwork says that resources of a type are for the machine's network.
func isNetwork(t delta.Type) bool {
	return t == typeVIP || t == typePeer || t == typePassword || isBalancing(t) || t == typeCheck
}

// isBalancing says that resources of a type are for the machine's data planes.
func isBalancing(t delta.Type) bool {
	return t == typeNode || t == typeFrontendBackends || t == typeFrontend
}

// key names one resource.
type key struct {
	kind delta.Type
	name string
}

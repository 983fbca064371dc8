package agent

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// The resource types that an agent handles, as type URLs.
const (
	typeCluster  delta.Type = agentv1.ClusterType
	typeEndpoint delta.Type = agentv1.EndpointType
	typeSecret   delta.Type = agentv1.SecretType
	typeRoute    delta.Type = agentv1.RouteType
	typeScope    delta.Type = agentv1.ScopeType
	typeListener delta.Type = agentv1.ListenerType

	typeMachine  delta.Type = agentv1.MachineConfigType
	typeVIP      delta.Type = agentv1.VipType
	typePeer     delta.Type = agentv1.BgpPeerType
	typePassword delta.Type = agentv1.BgpPasswordType

	typeNode             delta.Type = agentv1.NodeType
	typeFrontendBackends delta.Type = agentv1.FrontendBackendsType
	typeFrontend         delta.Type = agentv1.FrontendType
	typeCheck            delta.Type = agentv1.CheckType

	typeCheckpoint delta.Type = agentv1.CheckpointType
)

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

// errUnreadable says that a resource of the plane cannot be read.
var errUnreadable = gate.ErrUnreadable

func unmarshal(r *delta.Resource, m proto.Message) error {
	if err := r.Body.UnmarshalTo(m); err != nil {
		return fmt.Errorf("%w: %s: %w", errUnreadable, r.Name, err)
	}
	return nil
}

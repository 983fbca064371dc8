package agent

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
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

func readVIP(r *delta.Resource) (model.VIP, error) {
	var m agentv1.Vip
	if err := unmarshal(r, &m); err != nil {
		return model.VIP{}, err
	}
	v, err := wire.VIPOf(&m)
	if err != nil {
		return model.VIP{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return v, nil
}

// isCheckpoint says that all before the change makes a whole state.
func isCheckpoint(c delta.Change) bool {
	return c.Type == typeCheckpoint && c.Name == agentv1.CheckpointName && c.Resource != nil
}

// cut shortens a text to at most n bytes, at a rune's border.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}

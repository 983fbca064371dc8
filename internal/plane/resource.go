package plane

import (
	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// The types of Envoy's resources that the catalog makes.
const (
	typeListener delta.Type = agentv1.ListenerType
	typeScope    delta.Type = agentv1.ScopeType
	typeRoute    delta.Type = agentv1.RouteType
	typeCluster  delta.Type = agentv1.ClusterType
	typeEndpoint delta.Type = agentv1.EndpointType
	typeSecret   delta.Type = agentv1.SecretType
	typeMachine  delta.Type = agentv1.MachineConfigType
)

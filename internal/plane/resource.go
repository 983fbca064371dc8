package plane

import (
	"cmp"
	"strings"

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

func compareChanges(a, b delta.Change) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

// shortType is the last word of a type, a label of metrics.
func shortType(t delta.Type) string {
	return string(t)[strings.LastIndexByte(string(t), '.')+1:]
}

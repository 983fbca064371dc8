package gate

import (
	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// The resource types of Envoy, as type URLs.
const (
	typeCluster  delta.Type = agentv1.ClusterType
	typeEndpoint delta.Type = agentv1.EndpointType
	typeSecret   delta.Type = agentv1.SecretType
	typeRoute    delta.Type = agentv1.RouteType
	typeScope    delta.Type = agentv1.ScopeType
	typeListener delta.Type = agentv1.ListenerType
)

// Types are the resource types of a gate: what is named comes before what names it.
var Types = [...]delta.Type{typeCluster, typeEndpoint, typeSecret, typeRoute, typeScope, typeListener}

// key names one resource.
type key struct {
	kind delta.Type
	name string
}

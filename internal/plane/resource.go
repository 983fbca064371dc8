package plane

import (
	"cmp"
	"strings"

	"fairlead.dev/internal/delta"
)

// The types of Envoy's resources that the catalog makes.
const (
	typeListener  delta.Type = "type.googleapis.com/envoy.config.listener.v3.Listener"
	typeScope     delta.Type = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
	typeRoutes    delta.Type = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	typeCluster   delta.Type = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	typeEndpoints delta.Type = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	typeSecret    delta.Type = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	typeMachine   delta.Type = "type.googleapis.com/fairlead.agent.v1.MachineConfig"
)

func compareChanges(a, b delta.Change) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

// shortType is the last word of a type, a label of metrics.
func shortType(t delta.Type) string {
	return string(t)[strings.LastIndexByte(string(t), '.')+1:]
}

package condition

import gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

// ConditionHostConflict is a condition of an HTTPRoute's parent. It is there only
// while an IngressRoute claims a host of the route on the same listener, and says
// who has the host.
const ConditionHostConflict gatewayv1.RouteConditionType = "fairlead.dev/HostConflict"

// ConditionListenerConflict is a condition of the parent of a TLSRoute, TCPRoute or
// UDPRoute. It is there only while another route wants the same connections, and says who
// has them.
const ConditionListenerConflict gatewayv1.RouteConditionType = "fairlead.dev/ListenerConflict"

// Reasons of ours, next to those of the Gateway API.
const (
	// ReasonHostConflict stands in Accepted when all hosts of a route on a parent
	// are kept by an IngressRoute.
	ReasonHostConflict gatewayv1.RouteConditionReason = "HostConflict"
	// ReasonListenerLost stands in ConditionListenerConflict.
	ReasonListenerLost gatewayv1.RouteConditionReason = "ListenerLost"
	// ReasonBackendTLS stands in ResolvedRefs when a BackendTLSPolicy of a backend is invalid.
	ReasonBackendTLS gatewayv1.RouteConditionReason = "InvalidBackendTLSPolicy"
	// ReasonHostLost and ReasonHostKept stand in ConditionHostConflict.
	ReasonHostLost gatewayv1.RouteConditionReason = "HostLost"
	ReasonHostKept gatewayv1.RouteConditionReason = "HostKept"
)

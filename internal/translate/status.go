package translate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
)

// Status is what one resource should show. Exactly one of the pointers is set.
// Conditions have no LastTransitionTime, and there is none of type Programmed.
type Status struct {
	// Generation of the object that was translated.
	Generation int64 `json:"generation"`

	GatewayClass *gatewayv1.GatewayClassStatus `json:"gatewayClass,omitempty"`
	Gateway      *gatewayv1.GatewayStatus      `json:"gateway,omitempty"`
	ListenerSet  *gatewayv1.ListenerSetStatus  `json:"listenerSet,omitempty"`
	// HTTPRoute holds the parents that are ours; none when no Gateway of ours is named.
	HTTPRoute *gatewayv1.HTTPRouteStatus `json:"httpRoute,omitempty"`
	// GRPCRoute is the same of a GRPCRoute.
	GRPCRoute *gatewayv1.GRPCRouteStatus `json:"grpcRoute,omitempty"`
	// TLSRoute, TCPRoute and UDPRoute are the same of those.
	TLSRoute *gatewayv1.TLSRouteStatus `json:"tlsRoute,omitempty"`
	TCPRoute *gatewayv1.TCPRouteStatus `json:"tcpRoute,omitempty"`
	UDPRoute *gatewayv1.UDPRouteStatus `json:"udpRoute,omitempty"`
	// Policy is of a ClientPolicy, RoutePolicy, BackendPolicy or LoadBalancerPolicy.
	Policy *gatewayv1.PolicyStatus `json:"policy,omitempty"`
	// BackendTLSPolicy has the ancestors that are ours.
	BackendTLSPolicy *gatewayv1.PolicyStatus `json:"backendTLSPolicy,omitempty"`
	IngressRoute     *contourv1beta1.Status  `json:"ingressRoute,omitempty"`
	// AddressPool is the whole status. It must be written only over the version of the
	// pool that was translated: that is what fences the assignments.
	AddressPool *v1alpha1.AddressPoolStatus `json:"addressPool,omitempty"`
	BGPPeer     *v1alpha1.BGPPeerStatus     `json:"bgpPeer,omitempty"`
	Service     *corev1.ServiceStatus       `json:"service,omitempty"`

	// Notes are what is worth knowing of a Service, whatever machines have: whoever words
	// that it is served adds them.
	Notes string `json:"notes,omitempty"`

	// Hold keeps the resource from being programmed, whatever the machines have.
	Hold *Hold `json:"hold,omitempty"`

	// Sections are the listeners that serve those of a Gateway or ListenerSet.
	Sections map[gatewayv1.SectionName]model.ListenerID `json:"sections,omitempty"`
	// Unserved says of listeners that are accepted why nobody is served there all the same.
	Unserved map[gatewayv1.SectionName]string `json:"unserved,omitempty"`

	// Hosts, Listeners and Frontends must reach the machines for the resource to be
	// programmed, sorted. Empty when nothing of the resource is served. Frontends are those
	// without a proxy.
	Hosts     []model.HostKey     `json:"hosts,omitempty"`
	Listeners []model.ListenerID  `json:"listeners,omitempty"`
	Frontends []model.FrontendKey `json:"frontends,omitempty"`
	// SectionFrontends are those of Frontends that serve a listener of a Gateway or
	// ListenerSet.
	SectionFrontends map[gatewayv1.SectionName][]model.FrontendKey `json:"sectionFrontends,omitempty"`
}

// Route is the status of a route of Gateways, of whatever kind; nil of anything else.
func (s *Status) Route() *gatewayv1.RouteStatus {
	switch {
	case s.HTTPRoute != nil:
		return &s.HTTPRoute.RouteStatus
	case s.GRPCRoute != nil:
		return &s.GRPCRoute.RouteStatus
	case s.TLSRoute != nil:
		return &s.TLSRoute.RouteStatus
	case s.TCPRoute != nil:
		return &s.TCPRoute.RouteStatus
	case s.UDPRoute != nil:
		return &s.UDPRoute.RouteStatus
	default:
		return nil
	}
}

// Hold says why a resource is not programmed although nothing of it is invalid: it has
// no address yet.
type Hold struct {
	Reason  gatewayv1.GatewayConditionReason `json:"reason"`
	Message string                           `json:"message"`
}

// noteUnserved notes a listener that is accepted and has no certificate.
func (s *Status) noteUnserved(l *gatewayListener) {
	if !l.broken() {
		return
	}
	if s.Unserved == nil {
		s.Unserved = map[gatewayv1.SectionName]string{}
	}
	s.Unserved[l.name] = limit("it has no certificate to show: " + l.resolved.message)
}

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

func condition[T, R ~string](kind T, ok bool, reason R, message string, generation int64) metav1.Condition {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{
		Type: string(kind), Status: status, Reason: string(reason), Message: limit(message), ObservedGeneration: generation,
	}
}

// withNotes adds to a message what else is worth knowing.
func withNotes(message string, notes []string) string {
	return strings.Join(append([]string{message}, notes...), "; ")
}

// verdict is a condition before it is written: true unless a reason was found.
type verdict[R ~string] struct {
	failed  bool
	reason  R
	message string
}

// fail keeps the first reason and collects the messages.
func (v *verdict[R]) fail(reason R, message string) {
	if !v.failed {
		v.failed, v.reason, v.message = true, reason, message
		return
	}
	v.message += "; " + message
}

// messageLimit is the longest message that conditions may carry (32,768 in the
// schema of metav1.Condition), with room for those who add to it.
const messageLimit = 16 << 10

// limit cuts a message that is too long to be written, and makes it UTF-8.
func limit(message string) string {
	if len(message) > messageLimit {
		message = message[:messageLimit] + " ..."
	}
	return strings.ToValidUTF8(message, "\uFFFD")
}

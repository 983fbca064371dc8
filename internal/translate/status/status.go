package status

import (
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/gateway"
)

// PoolUse is how many addresses of a family are assigned and free in an AddressPool.
type PoolUse struct {
	Family     string
	Used, Free uint64 // the largest number stands for more, too
}

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
	// Pool is the use of an AddressPool by family.
	Pool    []PoolUse               `json:"-"`
	BGPPeer *v1alpha1.BGPPeerStatus `json:"bgpPeer,omitempty"`
	Service *corev1.ServiceStatus   `json:"service,omitempty"`

	// Notes are what is worth knowing of a Service, whatever machines have: whoever words
	// that it is served adds them.
	Notes string `json:"notes,omitempty"`

	// Hold keeps the resource from being programmed, whatever the machines have.
	Hold *condition.Hold `json:"hold,omitempty"`

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

// noteUnserved notes a listener that is accepted and has no certificate.
func (s *Status) noteUnserved(l *gateway.Listener) {
	if !l.Broken() {
		return
	}
	if s.Unserved == nil {
		s.Unserved = map[gatewayv1.SectionName]string{}
	}
	s.Unserved[l.Name] = condition.Limit("it has no certificate to show: " + l.Resolved.Message)
}

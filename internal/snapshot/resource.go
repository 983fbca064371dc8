package snapshot

import (
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
)

// Kind is a resource kind as a manifest writes it.
type Kind string

// The kinds that a snapshot holds.
const (
	KindAddressPool              Kind = "AddressPool"
	KindBGPPeer                  Kind = "BGPPeer"
	KindBackendPolicy            Kind = "BackendPolicy"
	KindBackendTLSPolicy         Kind = "BackendTLSPolicy"
	KindClientPolicy             Kind = "ClientPolicy"
	KindConfigMap                Kind = "ConfigMap"
	KindEndpointSlice            Kind = "EndpointSlice"
	KindFreeze                   Kind = "Freeze"
	KindGRPCRoute                Kind = "GRPCRoute"
	KindGateway                  Kind = "Gateway"
	KindGatewayClass             Kind = "GatewayClass"
	KindHTTPRoute                Kind = "HTTPRoute"
	KindIngressRoute             Kind = "IngressRoute"
	KindListenerSet              Kind = "ListenerSet"
	KindLoadBalancerPolicy       Kind = "LoadBalancerPolicy"
	KindMachine                  Kind = "Machine"
	KindNamespace                Kind = "Namespace"
	KindReferenceGrant           Kind = "ReferenceGrant"
	KindRoutePolicy              Kind = "RoutePolicy"
	KindSecret                   Kind = "Secret"
	KindService                  Kind = "Service"
	KindTCPRoute                 Kind = "TCPRoute"
	KindTLSCertificateDelegation Kind = "TLSCertificateDelegation"
	KindTLSRoute                 Kind = "TLSRoute"
	KindUDPRoute                 Kind = "UDPRoute"
	KindUpstream                 Kind = "Upstream"
)

// KindTime and KindOwn stand for Snapshot.Now and Snapshot.Own among keys. They are no kinds of resources.
const (
	KindTime Kind = "Time"
	KindOwn  Kind = "Own"
)

// Object is an object of an API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Resource describes one kind: its names in an API, its map in a Snapshot, and the use that Fairlead makes of its objects.
// It is the only description of a kind. Sources, the plane, the support bundle and the rights of the chart follow it.
type Resource struct {
	Kind Kind
	// GroupVersionResource is where an API serves the kind.
	schema.GroupVersionResource
	// SameVersions are versions besides Version that have the same fields. Manifests may use them.
	SameVersions []string
	// ClusterScoped objects have no namespace.
	ClusterScoped bool
	// BuiltIn kinds are part of Kubernetes: every API serves them, as protobuf too.
	BuiltIn bool
	// Lenient kinds are read without the values that do not fit their fields: their definitions checked little.
	Lenient bool
	// Private objects may hold secrets. No support bundle has them.
	Private bool
	// Status is the origin of the status that the plane writes.
	Status StatusOrigin
	// Route kinds lead hosts or ports to backends. The status screen lists their objects as routes.
	Route bool

	// Targets are the kinds of objects that a policy of the kind may be attached to by its spec.targetRefs, with the API
	// group of each; nil: the kind is no policy of Fairlead.
	Targets map[Kind]string

	trim      func(o Object, passwords string) Object
	refs      func(Object) *[]TargetRef
	route     func(Object) *GatewayRoute
	ancestors func(Object) *gatewayv1.PolicyStatus
	objects   access
}

// StatusOrigin says from what the plane makes the status of an object.
type StatusOrigin int

// The origins of a status.
const (
	StatusNone       StatusOrigin = iota // the plane writes none
	StatusTranslated                     // the translation says it
	StatusReported                       // agents report it
)

// objects are those of a Snapshot, by kind.
type objects struct {
	AddressPools              map[Name]*v1alpha1.AddressPool
	BGPPeers                  map[Name]*v1alpha1.BGPPeer
	BackendPolicies           map[Name]*v1alpha1.BackendPolicy
	ClientPolicies            map[Name]*v1alpha1.ClientPolicy
	Freezes                   map[Name]*v1alpha1.Freeze
	LoadBalancerPolicies      map[Name]*v1alpha1.LoadBalancerPolicy
	RoutePolicies             map[Name]*v1alpha1.RoutePolicy
	Machines                  map[Name]*v1alpha1.Machine
	Namespaces                map[Name]*corev1.Namespace
	Secrets                   map[Name]*corev1.Secret    // as Trim leaves them
	ConfigMaps                map[Name]*corev1.ConfigMap // as TrimConfigMap leaves them
	Services                  map[Name]*corev1.Service
	EndpointSlices            map[Name]*discoveryv1.EndpointSlice
	GatewayClasses            map[Name]*gatewayv1.GatewayClass
	Gateways                  map[Name]*gatewayv1.Gateway
	ListenerSets              map[Name]*gatewayv1.ListenerSet
	HTTPRoutes                map[Name]*gatewayv1.HTTPRoute
	GRPCRoutes                map[Name]*gatewayv1.GRPCRoute
	TLSRoutes                 map[Name]*gatewayv1.TLSRoute
	TCPRoutes                 map[Name]*gatewayv1.TCPRoute
	UDPRoutes                 map[Name]*gatewayv1.UDPRoute
	BackendTLSPolicies        map[Name]*gatewayv1.BackendTLSPolicy
	ReferenceGrants           map[Name]*gatewayv1.ReferenceGrant
	IngressRoutes             map[Name]*contourv1beta1.IngressRoute
	TLSCertificateDelegations map[Name]*contourv1beta1.TLSCertificateDelegation
	Upstreams                 map[Name]*v1alpha1.Upstream
}

// resources describes every kind, in the order of their names.
var resources = []Resource{
	{
		Kind: KindAddressPool, GroupVersionResource: v1alpha1.GroupVersion.WithResource("addresspools"), ClusterScoped: true, Status: StatusTranslated,
		objects: in[v1alpha1.AddressPool, v1alpha1.AddressPoolList](func(s *Snapshot) *map[Name]*v1alpha1.AddressPool { return &s.AddressPools }),
	},
	{
		Kind: KindBGPPeer, GroupVersionResource: v1alpha1.GroupVersion.WithResource("bgppeers"), ClusterScoped: true, Status: StatusTranslated,
		objects: in[v1alpha1.BGPPeer, v1alpha1.BGPPeerList](func(s *Snapshot) *map[Name]*v1alpha1.BGPPeer { return &s.BGPPeers }),
	},
	{
		Kind: KindBackendPolicy, GroupVersionResource: v1alpha1.GroupVersion.WithResource("backendpolicies"), Status: StatusTranslated,
		objects:   in[v1alpha1.BackendPolicy, v1alpha1.BackendPolicyList](func(s *Snapshot) *map[Name]*v1alpha1.BackendPolicy { return &s.BackendPolicies }),
		ancestors: field(func(o *v1alpha1.BackendPolicy) *gatewayv1.PolicyStatus { return &o.Status }),
		refs:      field(func(o *v1alpha1.BackendPolicy) *[]TargetRef { return &o.Spec.TargetRefs }),
		Targets:   map[Kind]string{KindService: ""},
	},
	{
		Kind: KindBackendTLSPolicy, GroupVersionResource: gateway.WithResource("backendtlspolicies"), Status: StatusTranslated,
		objects:   in[gatewayv1.BackendTLSPolicy, gatewayv1.BackendTLSPolicyList](func(s *Snapshot) *map[Name]*gatewayv1.BackendTLSPolicy { return &s.BackendTLSPolicies }),
		ancestors: field(func(o *gatewayv1.BackendTLSPolicy) *gatewayv1.PolicyStatus { return &o.Status }),
	},
	{
		Kind: KindClientPolicy, GroupVersionResource: v1alpha1.GroupVersion.WithResource("clientpolicies"), Status: StatusTranslated,
		objects:   in[v1alpha1.ClientPolicy, v1alpha1.ClientPolicyList](func(s *Snapshot) *map[Name]*v1alpha1.ClientPolicy { return &s.ClientPolicies }),
		ancestors: field(func(o *v1alpha1.ClientPolicy) *gatewayv1.PolicyStatus { return &o.Status }),
		refs:      field(func(o *v1alpha1.ClientPolicy) *[]TargetRef { return &o.Spec.TargetRefs }),
		Targets:   map[Kind]string{KindGatewayClass: gatewayv1.GroupName, KindGateway: gatewayv1.GroupName, KindListenerSet: gatewayv1.GroupName},
	},
	{
		Kind: KindConfigMap, GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), BuiltIn: true, Private: true,
		objects: in[corev1.ConfigMap, corev1.ConfigMapList](func(s *Snapshot) *map[Name]*corev1.ConfigMap { return &s.ConfigMaps }),
		trim:    trimmer(func(o *corev1.ConfigMap, _ string) *corev1.ConfigMap { return TrimConfigMap(o) }),
	},
	{
		Kind: KindEndpointSlice, GroupVersionResource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), BuiltIn: true,
		objects: in[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](func(s *Snapshot) *map[Name]*discoveryv1.EndpointSlice { return &s.EndpointSlices }),
	},
	{
		Kind: KindFreeze, GroupVersionResource: v1alpha1.GroupVersion.WithResource("freezes"), ClusterScoped: true,
		objects: in[v1alpha1.Freeze, v1alpha1.FreezeList](func(s *Snapshot) *map[Name]*v1alpha1.Freeze { return &s.Freezes }),
	},
	{
		Kind: KindGRPCRoute, GroupVersionResource: gateway.WithResource("grpcroutes"), Status: StatusTranslated, Route: true,
		objects: in[gatewayv1.GRPCRoute, gatewayv1.GRPCRouteList](func(s *Snapshot) *map[Name]*gatewayv1.GRPCRoute { return &s.GRPCRoutes }),
		route: field(func(o *gatewayv1.GRPCRoute) *GatewayRoute {
			return &GatewayRoute{o.Spec.Hostnames, o.Spec.ParentRefs, &o.Status.RouteStatus}
		}),
	},
	{
		Kind: KindGateway, GroupVersionResource: gateway.WithResource("gateways"), SameVersions: []string{"v1beta1"}, Status: StatusTranslated,
		objects: in[gatewayv1.Gateway, gatewayv1.GatewayList](func(s *Snapshot) *map[Name]*gatewayv1.Gateway { return &s.Gateways }),
	},
	{
		Kind: KindGatewayClass, GroupVersionResource: gateway.WithResource("gatewayclasses"), SameVersions: []string{"v1beta1"}, ClusterScoped: true, Status: StatusTranslated,
		objects: in[gatewayv1.GatewayClass, gatewayv1.GatewayClassList](func(s *Snapshot) *map[Name]*gatewayv1.GatewayClass { return &s.GatewayClasses }),
	},
	{
		Kind: KindHTTPRoute, GroupVersionResource: gateway.WithResource("httproutes"), SameVersions: []string{"v1beta1"}, Status: StatusTranslated, Route: true,
		objects: in[gatewayv1.HTTPRoute, gatewayv1.HTTPRouteList](func(s *Snapshot) *map[Name]*gatewayv1.HTTPRoute { return &s.HTTPRoutes }),
		route: field(func(o *gatewayv1.HTTPRoute) *GatewayRoute {
			return &GatewayRoute{o.Spec.Hostnames, o.Spec.ParentRefs, &o.Status.RouteStatus}
		}),
	},
	{
		Kind: KindIngressRoute, GroupVersionResource: contourv1beta1.GroupVersion.WithResource("ingressroutes"), Lenient: true, Status: StatusTranslated, Route: true,
		objects: in[contourv1beta1.IngressRoute, contourv1beta1.IngressRouteList](func(s *Snapshot) *map[Name]*contourv1beta1.IngressRoute { return &s.IngressRoutes }),
	},
	{
		Kind: KindListenerSet, GroupVersionResource: gateway.WithResource("listenersets"), Status: StatusTranslated,
		objects: in[gatewayv1.ListenerSet, gatewayv1.ListenerSetList](func(s *Snapshot) *map[Name]*gatewayv1.ListenerSet { return &s.ListenerSets }),
	},
	{
		Kind: KindLoadBalancerPolicy, GroupVersionResource: v1alpha1.GroupVersion.WithResource("loadbalancerpolicies"), Status: StatusTranslated,
		objects:   in[v1alpha1.LoadBalancerPolicy, v1alpha1.LoadBalancerPolicyList](func(s *Snapshot) *map[Name]*v1alpha1.LoadBalancerPolicy { return &s.LoadBalancerPolicies }),
		ancestors: field(func(o *v1alpha1.LoadBalancerPolicy) *gatewayv1.PolicyStatus { return &o.Status }),
		refs:      field(func(o *v1alpha1.LoadBalancerPolicy) *[]TargetRef { return &o.Spec.TargetRefs }),
		Targets: map[Kind]string{
			KindService: "", KindGateway: gatewayv1.GroupName, KindTCPRoute: gatewayv1.GroupName, KindUDPRoute: gatewayv1.GroupName,
		},
	},
	{
		Kind: KindMachine, GroupVersionResource: v1alpha1.GroupVersion.WithResource("machines"), ClusterScoped: true, Status: StatusReported,
		objects: in[v1alpha1.Machine, v1alpha1.MachineList](func(s *Snapshot) *map[Name]*v1alpha1.Machine { return &s.Machines }),
	},
	{
		Kind: KindNamespace, GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), ClusterScoped: true, BuiltIn: true,
		objects: in[corev1.Namespace, corev1.NamespaceList](func(s *Snapshot) *map[Name]*corev1.Namespace { return &s.Namespaces }),
	},
	{
		Kind: KindReferenceGrant, GroupVersionResource: gateway.WithResource("referencegrants"), SameVersions: []string{"v1beta1"},
		objects: in[gatewayv1.ReferenceGrant, gatewayv1.ReferenceGrantList](func(s *Snapshot) *map[Name]*gatewayv1.ReferenceGrant { return &s.ReferenceGrants }),
	},
	{
		Kind: KindRoutePolicy, GroupVersionResource: v1alpha1.GroupVersion.WithResource("routepolicies"), Status: StatusTranslated,
		objects:   in[v1alpha1.RoutePolicy, v1alpha1.RoutePolicyList](func(s *Snapshot) *map[Name]*v1alpha1.RoutePolicy { return &s.RoutePolicies }),
		ancestors: field(func(o *v1alpha1.RoutePolicy) *gatewayv1.PolicyStatus { return &o.Status }),
		refs:      field(func(o *v1alpha1.RoutePolicy) *[]TargetRef { return &o.Spec.TargetRefs }),
		Targets: map[Kind]string{
			KindGateway: gatewayv1.GroupName, KindListenerSet: gatewayv1.GroupName, KindHTTPRoute: gatewayv1.GroupName,
			KindGRPCRoute: gatewayv1.GroupName, KindIngressRoute: contourv1beta1.GroupVersion.Group,
		},
	},
	{
		Kind: KindSecret, GroupVersionResource: corev1.SchemeGroupVersion.WithResource("secrets"), BuiltIn: true, Private: true,
		objects: in[corev1.Secret, corev1.SecretList](func(s *Snapshot) *map[Name]*corev1.Secret { return &s.Secrets }),
		trim:    trimmer(Trim),
	},
	{
		Kind: KindService, GroupVersionResource: corev1.SchemeGroupVersion.WithResource("services"), BuiltIn: true, Status: StatusTranslated,
		objects: in[corev1.Service, corev1.ServiceList](func(s *Snapshot) *map[Name]*corev1.Service { return &s.Services }),
	},
	{
		Kind: KindTCPRoute, GroupVersionResource: gateway.WithResource("tcproutes"), Status: StatusTranslated, Route: true,
		objects: in[gatewayv1.TCPRoute, gatewayv1.TCPRouteList](func(s *Snapshot) *map[Name]*gatewayv1.TCPRoute { return &s.TCPRoutes }),
		route: field(func(o *gatewayv1.TCPRoute) *GatewayRoute {
			return &GatewayRoute{nil, o.Spec.ParentRefs, &o.Status.RouteStatus}
		}),
	},
	{
		Kind: KindTLSCertificateDelegation, GroupVersionResource: contourv1beta1.GroupVersion.WithResource("tlscertificatedelegations"), Lenient: true,
		objects: in[contourv1beta1.TLSCertificateDelegation, contourv1beta1.TLSCertificateDelegationList](func(s *Snapshot) *map[Name]*contourv1beta1.TLSCertificateDelegation {
			return &s.TLSCertificateDelegations
		}),
	},
	{
		Kind: KindTLSRoute, GroupVersionResource: gateway.WithResource("tlsroutes"), Status: StatusTranslated, Route: true,
		objects: in[gatewayv1.TLSRoute, gatewayv1.TLSRouteList](func(s *Snapshot) *map[Name]*gatewayv1.TLSRoute { return &s.TLSRoutes }),
		route: field(func(o *gatewayv1.TLSRoute) *GatewayRoute {
			return &GatewayRoute{o.Spec.Hostnames, o.Spec.ParentRefs, &o.Status.RouteStatus}
		}),
	},
	{
		Kind: KindUDPRoute, GroupVersionResource: gateway.WithResource("udproutes"), Status: StatusTranslated, Route: true,
		objects: in[gatewayv1.UDPRoute, gatewayv1.UDPRouteList](func(s *Snapshot) *map[Name]*gatewayv1.UDPRoute { return &s.UDPRoutes }),
		route: field(func(o *gatewayv1.UDPRoute) *GatewayRoute {
			return &GatewayRoute{nil, o.Spec.ParentRefs, &o.Status.RouteStatus}
		}),
	},
	{
		Kind: KindUpstream, GroupVersionResource: v1alpha1.GroupVersion.WithResource("upstreams"), ClusterScoped: true, Status: StatusReported,
		objects: in[v1alpha1.Upstream, v1alpha1.UpstreamList](func(s *Snapshot) *map[Name]*v1alpha1.Upstream { return &s.Upstreams }),
	},
}

var gateway = schema.GroupVersion(gatewayv1.GroupVersion)

// Kinds lists every kind of a snapshot in the order of their names.
func Kinds() []Kind {
	kinds := make([]Kind, len(resources))
	for i, r := range resources {
		kinds[i] = r.Kind
	}
	return kinds
}

// Resources describes every kind of a snapshot, in the order of their names.
func Resources() []Resource { return slices.Clone(resources) }

// ResourceOf describes a kind; false: a snapshot does not hold it.
func ResourceOf(k Kind) (Resource, bool) {
	r := find(k)
	if r == nil {
		return Resource{}, false
	}
	return *r, true
}

// ResourceFor describes the kind that a manifest names; false: a snapshot does not hold it.
func ResourceFor(apiVersion, kind string) (Resource, bool) {
	r := find(Kind(kind))
	if r == nil {
		return Resource{}, false
	}
	for _, version := range append([]string{r.Version}, r.SameVersions...) {
		if (schema.GroupVersion{Group: r.Group, Version: version}).String() == apiVersion {
			return *r, true
		}
	}
	return Resource{}, false
}

func find(k Kind) *Resource {
	i, found := slices.BinarySearchFunc(resources, k, func(r Resource, k Kind) int { return strings.Compare(string(r.Kind), string(k)) })
	if !found {
		return nil
	}
	return &resources[i]
}

// GroupVersionKind names the kind for a scheme.
func (r Resource) GroupVersionKind() schema.GroupVersionKind {
	return r.GroupVersion().WithKind(string(r.Kind))
}

// New returns an empty object of the kind.
func (r Resource) New() Object { return r.objects.object() }

// NewList returns an empty list of the kind, as an API answers with one.
func (r Resource) NewList() runtime.Object { return r.objects.list() }

// Trim returns what a snapshot may hold of an object of the kind: Secrets and ConfigMaps as Trim and TrimConfigMap leave
// them, others as they are. The passwords of Secrets are kept in the namespace passwords alone.
func (r Resource) Trim(o Object, passwords string) Object {
	if r.trim == nil {
		return o
	}
	return r.trim(o, passwords)
}

// GatewayRoute is the part of a route of Gateways that all kinds have.
type GatewayRoute struct {
	Hostnames []gatewayv1.Hostname // none in kinds without
	Parents   []gatewayv1.ParentReference
	Status    *gatewayv1.RouteStatus
}

// RouteStatus is the status inside of a route of Gateways; nil: the object is no such route.
func RouteStatus(o Object) *gatewayv1.RouteStatus {
	for i := range resources {
		if route := resources[i].route; route != nil {
			if r := route(o); r != nil {
				return r.Status
			}
		}
	}
	return nil
}

// GatewayRoutes are the routes of Gateways as they are written, in no order.
func (s *Snapshot) GatewayRoutes() iter.Seq2[Key, *GatewayRoute] {
	return func(yield func(Key, *GatewayRoute) bool) {
		for i := range resources {
			r := &resources[i]
			if r.route == nil {
				continue
			}
			for n := range r.objects.names(s) {
				if !yield(Key{r.Kind, n}, r.route(r.objects.get(s, n))) {
					return
				}
			}
		}
	}
}

// TargetRef names what a policy is attached to.
type TargetRef = gatewayv1.LocalPolicyTargetReferenceWithSectionName

// TargetRefs are the targets that a policy of the kind names.
func (r Resource) TargetRefs(o Object) []TargetRef {
	if r.refs == nil {
		return nil
	}
	return *r.refs(o)
}

// PolicyStatus is the status inside of a policy that is attached to others; nil: the object is no such policy.
func PolicyStatus(o Object) *gatewayv1.PolicyStatus {
	for i := range resources {
		if ancestors := resources[i].ancestors; ancestors != nil {
			if status := ancestors(o); status != nil {
				return status
			}
		}
	}
	return nil
}

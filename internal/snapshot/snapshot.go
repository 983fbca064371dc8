package snapshot

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
)

// Unreadable is the annotation in which a source says which values of an object it left out, since they do not fit their
// fields. It stands in no API: sources take it away from what they read.
const Unreadable = "fairlead.dev/unreadable"

// Kind is a resource kind as a manifest writes it.
type Kind string

// The kinds that a snapshot holds.
const (
	KindAddressPool              Kind = "AddressPool"
	KindBGPPeer                  Kind = "BGPPeer"
	KindBackendPolicy            Kind = "BackendPolicy"
	KindClientPolicy             Kind = "ClientPolicy"
	KindFreeze                   Kind = "Freeze"
	KindLoadBalancerPolicy       Kind = "LoadBalancerPolicy"
	KindRoutePolicy              Kind = "RoutePolicy"
	KindMachine                  Kind = "Machine"
	KindNamespace                Kind = "Namespace"
	KindSecret                   Kind = "Secret"
	KindService                  Kind = "Service"
	KindConfigMap                Kind = "ConfigMap"
	KindEndpointSlice            Kind = "EndpointSlice"
	KindGatewayClass             Kind = "GatewayClass"
	KindGateway                  Kind = "Gateway"
	KindListenerSet              Kind = "ListenerSet"
	KindHTTPRoute                Kind = "HTTPRoute"
	KindGRPCRoute                Kind = "GRPCRoute"
	KindTLSRoute                 Kind = "TLSRoute"
	KindTCPRoute                 Kind = "TCPRoute"
	KindUDPRoute                 Kind = "UDPRoute"
	KindBackendTLSPolicy         Kind = "BackendTLSPolicy"
	KindReferenceGrant           Kind = "ReferenceGrant"
	KindIngressRoute             Kind = "IngressRoute"
	KindTLSCertificateDelegation Kind = "TLSCertificateDelegation"
)

// KindTime and KindOwn stand for Snapshot.Now and Snapshot.Own among keys. They are no kinds of resources.
const (
	KindTime Kind = "Time"
	KindOwn  Kind = "Own"
)

// Kinds lists every kind of a snapshot in the order of their names.
func Kinds() []Kind {
	return []Kind{
		KindAddressPool, KindBGPPeer, KindBackendPolicy, KindBackendTLSPolicy, KindClientPolicy, KindConfigMap, KindEndpointSlice, KindFreeze, KindGRPCRoute, KindGateway,
		KindGatewayClass, KindHTTPRoute, KindIngressRoute, KindListenerSet, KindLoadBalancerPolicy, KindMachine, KindNamespace, KindReferenceGrant, KindRoutePolicy, KindSecret, KindService, KindTCPRoute, KindTLSCertificateDelegation,
		KindTLSRoute, KindUDPRoute,
	}
}

// Name is a namespace and a name; the namespace is empty for cluster-scoped kinds.
type Name = types.NamespacedName

// Key names one object of a snapshot.
type Key struct {
	Kind Kind
	Name Name
}

// String is "Kind namespace/name".
func (k Key) String() string {
	if k.Name.Namespace == "" {
		return string(k.Kind) + " " + k.Name.Name
	}
	return string(k.Kind) + " " + k.Name.String()
}

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(l Key) int {
	return cmp.Or(cmp.Compare(k.Kind, l.Kind),
		cmp.Compare(k.Name.Namespace, l.Name.Namespace), cmp.Compare(k.Name.Name, l.Name.Name))
}

// Own are the endpoints at which the plane itself takes calls, in any order.
type Own struct {
	Agents []netip.AddrPort // where its agents call
	API    []netip.AddrPort // of its own Kubernetes API; none: the API is somebody else's
}

// Snapshot is the state of the API as far as translation needs it. The zero value
// is not usable; call New.
type Snapshot struct {
	// Now is the time at which the validity of certificates is judged; zero judges none. Who
	// moves it on says so with a key of KindTime.
	Now time.Time

	// Own is where the plane that translates takes calls. Who moves it says so with a key of KindOwn.
	Own Own

	// PeersInForce are the settings of BGPPeers that machines have, as the last translation
	// said. They go before those of an object's status, which may not have been written yet.
	PeersInForce map[Name]*v1alpha1.BGPPeerSpec

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
}

// New returns an empty snapshot.
func New() *Snapshot {
	return &Snapshot{
		PeersInForce:              map[Name]*v1alpha1.BGPPeerSpec{},
		AddressPools:              map[Name]*v1alpha1.AddressPool{},
		BGPPeers:                  map[Name]*v1alpha1.BGPPeer{},
		BackendPolicies:           map[Name]*v1alpha1.BackendPolicy{},
		ClientPolicies:            map[Name]*v1alpha1.ClientPolicy{},
		Freezes:                   map[Name]*v1alpha1.Freeze{},
		LoadBalancerPolicies:      map[Name]*v1alpha1.LoadBalancerPolicy{},
		RoutePolicies:             map[Name]*v1alpha1.RoutePolicy{},
		Machines:                  map[Name]*v1alpha1.Machine{},
		Namespaces:                map[Name]*corev1.Namespace{},
		Secrets:                   map[Name]*corev1.Secret{},
		ConfigMaps:                map[Name]*corev1.ConfigMap{},
		Services:                  map[Name]*corev1.Service{},
		EndpointSlices:            map[Name]*discoveryv1.EndpointSlice{},
		GatewayClasses:            map[Name]*gatewayv1.GatewayClass{},
		Gateways:                  map[Name]*gatewayv1.Gateway{},
		ListenerSets:              map[Name]*gatewayv1.ListenerSet{},
		HTTPRoutes:                map[Name]*gatewayv1.HTTPRoute{},
		GRPCRoutes:                map[Name]*gatewayv1.GRPCRoute{},
		TLSRoutes:                 map[Name]*gatewayv1.TLSRoute{},
		TCPRoutes:                 map[Name]*gatewayv1.TCPRoute{},
		UDPRoutes:                 map[Name]*gatewayv1.UDPRoute{},
		BackendTLSPolicies:        map[Name]*gatewayv1.BackendTLSPolicy{},
		ReferenceGrants:           map[Name]*gatewayv1.ReferenceGrant{},
		IngressRoutes:             map[Name]*contourv1beta1.IngressRoute{},
		TLSCertificateDelegations: map[Name]*contourv1beta1.TLSCertificateDelegation{},
	}
}

// Set puts an object in, replacing the one of the same name, and returns its key.
// The snapshot keeps the pointer: the object must not change afterwards. A type
// that no snapshot holds is an error, and so is a Secret that was not trimmed.
func (s *Snapshot) Set(object metav1.Object) (Key, error) {
	n := Name{Namespace: object.GetNamespace(), Name: object.GetName()}
	switch o := object.(type) {
	case *v1alpha1.AddressPool:
		s.AddressPools[n] = o
		return Key{KindAddressPool, n}, nil
	case *v1alpha1.BGPPeer:
		s.BGPPeers[n] = o
		return Key{KindBGPPeer, n}, nil
	case *v1alpha1.BackendPolicy:
		s.BackendPolicies[n] = o
		return Key{KindBackendPolicy, n}, nil
	case *v1alpha1.Freeze:
		s.Freezes[n] = o
		return Key{KindFreeze, n}, nil
	case *v1alpha1.ClientPolicy:
		s.ClientPolicies[n] = o
		return Key{KindClientPolicy, n}, nil
	case *v1alpha1.LoadBalancerPolicy:
		s.LoadBalancerPolicies[n] = o
		return Key{KindLoadBalancerPolicy, n}, nil
	case *v1alpha1.RoutePolicy:
		s.RoutePolicies[n] = o
		return Key{KindRoutePolicy, n}, nil
	case *v1alpha1.Machine:
		s.Machines[n] = o
		return Key{KindMachine, n}, nil
	case *corev1.Namespace:
		s.Namespaces[n] = o
		return Key{KindNamespace, n}, nil
	case *corev1.Secret:
		if !trimmed(o) {
			return Key{}, fmt.Errorf("secret %s holds more than a snapshot may: it was not trimmed", n)
		}
		s.Secrets[n] = o
		return Key{KindSecret, n}, nil
	case *corev1.ConfigMap:
		s.ConfigMaps[n] = o
		return Key{KindConfigMap, n}, nil
	case *corev1.Service:
		s.Services[n] = o
		return Key{KindService, n}, nil
	case *discoveryv1.EndpointSlice:
		s.EndpointSlices[n] = o
		return Key{KindEndpointSlice, n}, nil
	case *gatewayv1.GatewayClass:
		s.GatewayClasses[n] = o
		return Key{KindGatewayClass, n}, nil
	case *gatewayv1.Gateway:
		s.Gateways[n] = o
		return Key{KindGateway, n}, nil
	case *gatewayv1.ListenerSet:
		s.ListenerSets[n] = o
		return Key{KindListenerSet, n}, nil
	case *gatewayv1.GRPCRoute:
		s.GRPCRoutes[n] = o
		return Key{KindGRPCRoute, n}, nil
	case *gatewayv1.TLSRoute:
		s.TLSRoutes[n] = o
		return Key{KindTLSRoute, n}, nil
	case *gatewayv1.TCPRoute:
		s.TCPRoutes[n] = o
		return Key{KindTCPRoute, n}, nil
	case *gatewayv1.UDPRoute:
		s.UDPRoutes[n] = o
		return Key{KindUDPRoute, n}, nil
	case *gatewayv1.BackendTLSPolicy:
		s.BackendTLSPolicies[n] = o
		return Key{KindBackendTLSPolicy, n}, nil
	case *gatewayv1.HTTPRoute:
		s.HTTPRoutes[n] = o
		return Key{KindHTTPRoute, n}, nil
	case *gatewayv1.ReferenceGrant:
		s.ReferenceGrants[n] = o
		return Key{KindReferenceGrant, n}, nil
	case *contourv1beta1.IngressRoute:
		s.IngressRoutes[n] = o
		return Key{KindIngressRoute, n}, nil
	case *contourv1beta1.TLSCertificateDelegation:
		s.TLSCertificateDelegations[n] = o
		return Key{KindTLSCertificateDelegation, n}, nil
	default:
		return Key{}, fmt.Errorf("a snapshot holds no %T", object)
	}
}

// Delete takes the named object out; a missing one is no error.
func (s *Snapshot) Delete(k Key) {
	switch k.Kind {
	case KindAddressPool:
		delete(s.AddressPools, k.Name)
	case KindBGPPeer:
		delete(s.BGPPeers, k.Name)
		delete(s.PeersInForce, k.Name)
	case KindBackendPolicy:
		delete(s.BackendPolicies, k.Name)
	case KindFreeze:
		delete(s.Freezes, k.Name)
	case KindClientPolicy:
		delete(s.ClientPolicies, k.Name)
	case KindLoadBalancerPolicy:
		delete(s.LoadBalancerPolicies, k.Name)
	case KindTLSRoute:
		delete(s.TLSRoutes, k.Name)
	case KindTCPRoute:
		delete(s.TCPRoutes, k.Name)
	case KindUDPRoute:
		delete(s.UDPRoutes, k.Name)
	case KindRoutePolicy:
		delete(s.RoutePolicies, k.Name)
	case KindMachine:
		delete(s.Machines, k.Name)
	case KindNamespace:
		delete(s.Namespaces, k.Name)
	case KindSecret:
		delete(s.Secrets, k.Name)
	case KindService:
		delete(s.Services, k.Name)
	case KindEndpointSlice:
		delete(s.EndpointSlices, k.Name)
	case KindGatewayClass:
		delete(s.GatewayClasses, k.Name)
	case KindGateway:
		delete(s.Gateways, k.Name)
	case KindConfigMap:
		delete(s.ConfigMaps, k.Name)
	case KindListenerSet:
		delete(s.ListenerSets, k.Name)
	case KindGRPCRoute:
		delete(s.GRPCRoutes, k.Name)
	case KindBackendTLSPolicy:
		delete(s.BackendTLSPolicies, k.Name)
	case KindHTTPRoute:
		delete(s.HTTPRoutes, k.Name)
	case KindReferenceGrant:
		delete(s.ReferenceGrants, k.Name)
	case KindIngressRoute:
		delete(s.IngressRoutes, k.Name)
	case KindTLSCertificateDelegation:
		delete(s.TLSCertificateDelegations, k.Name)
	}
}

// Keys returns the key of every object, sorted.
func (s *Snapshot) Keys() []Key {
	var keys []Key
	keys = appendKeys(keys, KindAddressPool, s.AddressPools)
	keys = appendKeys(keys, KindBGPPeer, s.BGPPeers)
	keys = appendKeys(keys, KindBackendPolicy, s.BackendPolicies)
	keys = appendKeys(keys, KindBackendTLSPolicy, s.BackendTLSPolicies)
	keys = appendKeys(keys, KindClientPolicy, s.ClientPolicies)
	keys = appendKeys(keys, KindFreeze, s.Freezes)
	keys = appendKeys(keys, KindConfigMap, s.ConfigMaps)
	keys = appendKeys(keys, KindEndpointSlice, s.EndpointSlices)
	keys = appendKeys(keys, KindGRPCRoute, s.GRPCRoutes)
	keys = appendKeys(keys, KindListenerSet, s.ListenerSets)
	keys = appendKeys(keys, KindGateway, s.Gateways)
	keys = appendKeys(keys, KindGatewayClass, s.GatewayClasses)
	keys = appendKeys(keys, KindHTTPRoute, s.HTTPRoutes)
	keys = appendKeys(keys, KindIngressRoute, s.IngressRoutes)
	keys = appendKeys(keys, KindMachine, s.Machines)
	keys = appendKeys(keys, KindNamespace, s.Namespaces)
	keys = appendKeys(keys, KindReferenceGrant, s.ReferenceGrants)
	keys = appendKeys(keys, KindLoadBalancerPolicy, s.LoadBalancerPolicies)
	keys = appendKeys(keys, KindTLSRoute, s.TLSRoutes)
	keys = appendKeys(keys, KindTCPRoute, s.TCPRoutes)
	keys = appendKeys(keys, KindUDPRoute, s.UDPRoutes)
	keys = appendKeys(keys, KindRoutePolicy, s.RoutePolicies)
	keys = appendKeys(keys, KindSecret, s.Secrets)
	keys = appendKeys(keys, KindService, s.Services)
	keys = appendKeys(keys, KindTLSCertificateDelegation, s.TLSCertificateDelegations)
	if !s.Now.IsZero() {
		keys = append(keys, Key{Kind: KindTime})
	}
	if len(s.Own.Agents)+len(s.Own.API) > 0 {
		keys = append(keys, Key{Kind: KindOwn})
	}
	slices.SortFunc(keys, Key.Compare)
	return keys
}

func appendKeys[T any](keys []Key, kind Kind, objects map[Name]T) []Key {
	for n := range objects {
		keys = append(keys, Key{kind, n})
	}
	return keys
}

package kube

import (
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
)

// resource is how the API serves one kind.
type resource struct {
	kind     snapshot.Kind
	gvr      schema.GroupVersionResource
	object   func() runtime.Object
	list     func() runtime.Object
	protobuf bool // the API serves it as protobuf too
}

// resources are those of the kinds of a snapshot.
func resources() []resource {
	core, discovery := corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion
	gateway, contour, ours := schema.GroupVersion(gatewayv1.GroupVersion), contourv1beta1.GroupVersion, v1alpha1.GroupVersion
	return []resource{
		{
			snapshot.KindAddressPool, ours.WithResource("addresspools"),
			func() runtime.Object { return &v1alpha1.AddressPool{} }, func() runtime.Object { return &v1alpha1.AddressPoolList{} }, false,
		},
		{
			snapshot.KindBGPPeer, ours.WithResource("bgppeers"),
			func() runtime.Object { return &v1alpha1.BGPPeer{} }, func() runtime.Object { return &v1alpha1.BGPPeerList{} }, false,
		},
		{
			snapshot.KindBackendPolicy, ours.WithResource("backendpolicies"),
			func() runtime.Object { return &v1alpha1.BackendPolicy{} }, func() runtime.Object { return &v1alpha1.BackendPolicyList{} }, false,
		},
		{
			snapshot.KindFreeze, ours.WithResource("freezes"),
			func() runtime.Object { return &v1alpha1.Freeze{} }, func() runtime.Object { return &v1alpha1.FreezeList{} }, false,
		},
		{
			snapshot.KindClientPolicy, ours.WithResource("clientpolicies"),
			func() runtime.Object { return &v1alpha1.ClientPolicy{} }, func() runtime.Object { return &v1alpha1.ClientPolicyList{} }, false,
		},
		{
			snapshot.KindLoadBalancerPolicy, ours.WithResource("loadbalancerpolicies"),
			func() runtime.Object { return &v1alpha1.LoadBalancerPolicy{} }, func() runtime.Object { return &v1alpha1.LoadBalancerPolicyList{} }, false,
		},
		{
			snapshot.KindRoutePolicy, ours.WithResource("routepolicies"),
			func() runtime.Object { return &v1alpha1.RoutePolicy{} }, func() runtime.Object { return &v1alpha1.RoutePolicyList{} }, false,
		},
		{
			snapshot.KindSecret, core.WithResource("secrets"),
			func() runtime.Object { return &corev1.Secret{} }, func() runtime.Object { return &corev1.SecretList{} }, true,
		},
		{
			snapshot.KindConfigMap, core.WithResource("configmaps"),
			func() runtime.Object { return &corev1.ConfigMap{} }, func() runtime.Object { return &corev1.ConfigMapList{} }, true,
		},
		{
			snapshot.KindListenerSet, gateway.WithResource("listenersets"),
			func() runtime.Object { return &gatewayv1.ListenerSet{} }, func() runtime.Object { return &gatewayv1.ListenerSetList{} }, false,
		},
		{
			snapshot.KindGRPCRoute, gateway.WithResource("grpcroutes"),
			func() runtime.Object { return &gatewayv1.GRPCRoute{} }, func() runtime.Object { return &gatewayv1.GRPCRouteList{} }, false,
		},
		{
			snapshot.KindTLSRoute, gateway.WithResource("tlsroutes"),
			func() runtime.Object { return &gatewayv1.TLSRoute{} }, func() runtime.Object { return &gatewayv1.TLSRouteList{} }, false,
		},
		{
			snapshot.KindTCPRoute, gateway.WithResource("tcproutes"),
			func() runtime.Object { return &gatewayv1.TCPRoute{} }, func() runtime.Object { return &gatewayv1.TCPRouteList{} }, false,
		},
		{
			snapshot.KindUDPRoute, gateway.WithResource("udproutes"),
			func() runtime.Object { return &gatewayv1.UDPRoute{} }, func() runtime.Object { return &gatewayv1.UDPRouteList{} }, false,
		},
		{
			snapshot.KindBackendTLSPolicy, gateway.WithResource("backendtlspolicies"),
			func() runtime.Object { return &gatewayv1.BackendTLSPolicy{} }, func() runtime.Object { return &gatewayv1.BackendTLSPolicyList{} }, false,
		},
		{
			snapshot.KindEndpointSlice, discovery.WithResource("endpointslices"),
			func() runtime.Object { return &discoveryv1.EndpointSlice{} }, func() runtime.Object { return &discoveryv1.EndpointSliceList{} }, true,
		},
		{
			snapshot.KindGateway, gateway.WithResource("gateways"),
			func() runtime.Object { return &gatewayv1.Gateway{} }, func() runtime.Object { return &gatewayv1.GatewayList{} }, false,
		},
		{
			snapshot.KindGatewayClass, gateway.WithResource("gatewayclasses"),
			func() runtime.Object { return &gatewayv1.GatewayClass{} }, func() runtime.Object { return &gatewayv1.GatewayClassList{} }, false,
		},
		{
			snapshot.KindHTTPRoute, gateway.WithResource("httproutes"),
			func() runtime.Object { return &gatewayv1.HTTPRoute{} }, func() runtime.Object { return &gatewayv1.HTTPRouteList{} }, false,
		},
		{
			snapshot.KindIngressRoute, contour.WithResource("ingressroutes"),
			func() runtime.Object { return &contourv1beta1.IngressRoute{} }, func() runtime.Object { return &contourv1beta1.IngressRouteList{} }, false,
		},
		{
			snapshot.KindMachine, ours.WithResource("machines"),
			func() runtime.Object { return &v1alpha1.Machine{} }, func() runtime.Object { return &v1alpha1.MachineList{} }, false,
		},
		{
			snapshot.KindNamespace, core.WithResource("namespaces"),
			func() runtime.Object { return &corev1.Namespace{} }, func() runtime.Object { return &corev1.NamespaceList{} }, true,
		},
		{
			snapshot.KindReferenceGrant, gateway.WithResource("referencegrants"),
			func() runtime.Object { return &gatewayv1.ReferenceGrant{} }, func() runtime.Object { return &gatewayv1.ReferenceGrantList{} }, false,
		},
		{
			snapshot.KindService, core.WithResource("services"),
			func() runtime.Object { return &corev1.Service{} }, func() runtime.Object { return &corev1.ServiceList{} }, true,
		},
		{
			snapshot.KindTLSCertificateDelegation, contour.WithResource("tlscertificatedelegations"),
			func() runtime.Object { return &contourv1beta1.TLSCertificateDelegation{} },
			func() runtime.Object { return &contourv1beta1.TLSCertificateDelegationList{} }, false,
		},
	}
}

// NewScheme knows every type that Fairlead reads from or writes to an API.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, coordinationv1.AddToScheme,
		gatewayv1.Install, contourv1beta1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("register API types: %w", err)
		}
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s, nil
}

// NewClient returns a client for the types of NewScheme. It asks the API for
// nothing until it is used, not even which types are served. The client itself
// does not limit its rate.
func NewClient(cfg *rest.Config) (client.Client, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	c, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: mapper()})
	if err != nil {
		return nil, fmt.Errorf("make a client for the API at %s: %w", cfg.Host, err)
	}
	return c, nil
}

// mapper knows our kinds without asking the API, which may not serve all yet.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	cluster := map[snapshot.Kind]bool{
		snapshot.KindAddressPool: true, snapshot.KindBGPPeer: true, snapshot.KindFreeze: true, snapshot.KindGatewayClass: true, snapshot.KindMachine: true, snapshot.KindNamespace: true,
	}
	for _, r := range resources() {
		var scope meta.RESTScope = meta.RESTScopeNamespace
		if cluster[r.kind] {
			scope = meta.RESTScopeRoot
		}
		gvk := r.gvr.GroupVersion().WithKind(string(r.kind))
		m.AddSpecific(gvk, r.gvr, r.gvr, scope)
	}
	for _, r := range []struct {
		kind string
		gvr  schema.GroupVersionResource
	}{
		{"Lease", coordinationv1.SchemeGroupVersion.WithResource("leases")},
		{"Event", corev1.SchemeGroupVersion.WithResource("events")},
		{"ServiceAccount", corev1.SchemeGroupVersion.WithResource("serviceaccounts")},
	} {
		m.AddSpecific(r.gvr.GroupVersion().WithKind(r.kind), r.gvr, r.gvr, meta.RESTScopeNamespace)
	}
	return m
}

// restClient talks to the resource's group and version over the shared transport.
func (r resource) restClient(cfg *rest.Config, transport *http.Client, codecs serializer.CodecFactory, mark string) (rest.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	gv := r.gvr.GroupVersion()
	cfg.GroupVersion = &gv
	cfg.APIPath = "/apis"
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = lenientFor(r, codecs.WithoutConversion())
	if !r.protobuf { // what is built in has one definition
		cfg.NegotiatedSerializer = tolerant{cfg.NegotiatedSerializer, r, mark}
	}
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if r.protobuf {
		cfg.ContentType = runtime.ContentTypeProtobuf
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	c, err := rest.RESTClientForConfigAndClient(cfg, transport)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", r.gvr.GroupResource(), err)
	}
	return c, nil
}

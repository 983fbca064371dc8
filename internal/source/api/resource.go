package apisource

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
	for _, r := range snapshot.Resources() {
		var scope meta.RESTScope = meta.RESTScopeNamespace
		if r.ClusterScoped {
			scope = meta.RESTScopeRoot
		}
		m.AddSpecific(r.GroupVersionKind(), r.GroupVersionResource, r.GroupVersionResource, scope)
	}
	for _, r := range []struct {
		kind string
		gvr  schema.GroupVersionResource
	}{
		{"Lease", coordinationv1.SchemeGroupVersion.WithResource("leases")},
		{"Event", corev1.SchemeGroupVersion.WithResource("events")},
		{"ServiceAccount", corev1.SchemeGroupVersion.WithResource("serviceaccounts")},
		{"Endpoints", corev1.SchemeGroupVersion.WithResource("endpoints")},
	} {
		m.AddSpecific(r.gvr.GroupVersion().WithKind(r.kind), r.gvr, r.gvr, meta.RESTScopeNamespace)
	}
	return m
}

// restClient talks to the resource's group and version over the shared transport.
func restClient(r snapshot.Resource, cfg *rest.Config, transport *http.Client, codecs serializer.CodecFactory, mark string) (rest.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	gv := r.GroupVersion()
	cfg.GroupVersion = &gv
	cfg.APIPath = "/apis"
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = lenientFor(r, codecs.WithoutConversion())
	if !r.BuiltIn { // what is built in has one definition
		cfg.NegotiatedSerializer = tolerant{cfg.NegotiatedSerializer, r, mark}
	}
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if r.BuiltIn {
		cfg.ContentType = runtime.ContentTypeProtobuf
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	c, err := rest.RESTClientForConfigAndClient(cfg, transport)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", r.GroupResource(), err)
	}
	return c, nil
}

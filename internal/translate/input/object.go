package input

import (
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
)

// BackendTLSObject names a BackendTLSPolicy as resources are named in the model.
func BackendTLSObject(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindBackendTLSPolicy), Namespace: n.Namespace, Name: n.Name}
}

// GatewayOwner names a Gateway as resources are named in the model.
func GatewayOwner(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindGateway), Namespace: n.Namespace, Name: n.Name}
}

// IngressOwner names a IngressRoute as resources are named in the model.
func IngressOwner(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindIngressRoute), Namespace: n.Namespace, Name: n.Name}
}

// PoolObject names an AddressPool as resources are named in the model.
func PoolObject(name string) model.Object {
	return model.Object{Kind: string(snapshot.KindAddressPool), Name: name}
}

// RouteOwner names a route of a kind as resources are named in the model.
func RouteOwner(kind snapshot.Kind, n snapshot.Name) model.Object {
	return model.Object{Kind: string(kind), Namespace: n.Namespace, Name: n.Name}
}

// OwnerOf names the objects of a kind.
func OwnerOf(kind snapshot.Kind) func(snapshot.Name) model.Object {
	return func(n snapshot.Name) model.Object { return RouteOwner(kind, n) }
}

// NameOf is the name of an object.
func NameOf(o model.Object) snapshot.Name { return snapshot.Name{Namespace: o.Namespace, Name: o.Name} }

// IsOurs reports whether a Service is one of type LoadBalancer that is ours to serve.
func IsOurs(o *corev1.Service) bool {
	return o != nil && o.Spec.Type == corev1.ServiceTypeLoadBalancer && field.Deref(o.Spec.LoadBalancerClass) == v1alpha1.LoadBalancerClass
}

// ServiceOwner names a Service as resources are named in the model.
func ServiceOwner(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindService), Namespace: n.Namespace, Name: n.Name}
}

package input

import (
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
)

func BackendTLSObject(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindBackendTLSPolicy), Namespace: n.Namespace, Name: n.Name}
}

func GatewayOwner(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindGateway), Namespace: n.Namespace, Name: n.Name}
}

func IngressOwner(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindIngressRoute), Namespace: n.Namespace, Name: n.Name}
}

func PoolObject(name string) model.Object {
	return model.Object{Kind: string(snapshot.KindAddressPool), Name: name}
}

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

func ServiceOwner(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindService), Namespace: n.Namespace, Name: n.Name}
}

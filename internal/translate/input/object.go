package input

import (
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
)

// Object names an object of a kind as the model names it.
func Object(kind snapshot.Kind, n snapshot.Name) model.Object {
	return model.Object{Kind: string(kind), Namespace: n.Namespace, Name: n.Name}
}

// ObjectOf is Object for one kind.
func ObjectOf(kind snapshot.Kind) func(snapshot.Name) model.Object {
	return func(n snapshot.Name) model.Object { return Object(kind, n) }
}

// NameOf is the name of an object.
func NameOf(o model.Object) snapshot.Name { return snapshot.Name{Namespace: o.Namespace, Name: o.Name} }

// IsOurs reports whether a Service is one of type LoadBalancer that is ours to serve.
func IsOurs(o *corev1.Service) bool {
	return o != nil && o.Spec.Type == corev1.ServiceTypeLoadBalancer && field.Deref(o.Spec.LoadBalancerClass) == v1alpha1.LoadBalancerClass
}

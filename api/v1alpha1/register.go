package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: "fairlead.dev", Version: "v1alpha1"}

// SchemeBuilder collects the functions that add this package's types to a scheme.
var SchemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// register has schemes know a kind: its type and the type of its lists. The file of each kind calls it.
func register(types ...runtime.Object) {
	SchemeBuilder.Register(func(s *runtime.Scheme) error {
		s.AddKnownTypes(GroupVersion, types...)
		return nil
	})
}

// AddToScheme registers this package's types.
func AddToScheme(s *runtime.Scheme) error { return SchemeBuilder.AddToScheme(s) }

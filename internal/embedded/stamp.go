package embedded

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/apis/core"
)

const stampPlugin = "FairleadChangedBy"

// Stamp has the API write into an annotation which user changed an object last, over whatever a client sends. It does what the
// MutatingAdmissionPolicy of the chart does elsewhere: that one refuses writes of a kind for the first seconds after the API has learnt of
// the kind, which is after each start.
type Stamp struct {
	Annotation string
	Groups     []string // whose objects are stamped, beside those of Kubernetes that planes read
	Namespace  string   // all of whose Secrets and ConfigMaps planes read
}

// add has kube-apiserver run the plugin after all that changes objects.
func (s Stamp) add(o *options.ServerRunOptions) {
	all := o.Admission.GenericAdmission
	all.Plugins.Register(stampPlugin, func(io.Reader) (admission.Interface, error) { return s, nil })
	order := slices.Clone(all.RecommendedPluginOrder) // it is everybody's
	all.RecommendedPluginOrder = slices.Insert(order, slices.Index(order, mutating.PluginName)+1, stampPlugin)
}

// Handles implements admission.Interface.
func (Stamp) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Admit implements admission.MutationInterface.
func (s Stamp) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !s.reads(a) { // subresources of a Service or Namespace can write its annotations
		return nil
	}
	o, err := meta.Accessor(a.GetObject())
	if err != nil {
		return fmt.Errorf("say who changes a %s: %w", a.GetKind().Kind, err)
	}
	if a.GetOperation() == admission.Update && equality.Semantic.DeepEqual(written(a.GetObject()), written(a.GetOldObject())) {
		return nil
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[s.Annotation] = a.GetUserInfo().GetName()
	o.SetAnnotations(annotations)
	return nil
}

// reads says whether planes read an object.
func (s Stamp) reads(a admission.Attributes) bool {
	if group := a.GetResource().Group; group != "" {
		return slices.Contains(s.Groups, group)
	}
	switch a.GetObject().(type) {
	case *core.Service, *core.Namespace:
		return true
	case *core.Secret, *core.ConfigMap:
		return a.GetNamespace() == s.Namespace || slices.ContainsFunc([]runtime.Object{a.GetObject(), a.GetOldObject()}, trusted)
	}
	return false
}

// trusted says whether an object has a certificate, or authorities and lists of revoked ones.
func trusted(o runtime.Object) bool {
	switch o := o.(type) {
	case *core.Secret:
		return o.Type == core.SecretTypeTLS || o.Data["ca.crt"] != nil || o.Data["ca.crl"] != nil
	case *core.ConfigMap:
		_, authority := o.Data["ca.crt"]
		_, list := o.Data["ca.crl"]
		return authority || list
	}
	return false
}

// written is what users write of an object: all but status, and what the API keeps about it.
func written(o runtime.Object) []any {
	m, err := meta.Accessor(o)
	if err != nil {
		return []any{o}
	}
	return append(content(o), m.GetLabels(), m.GetAnnotations())
}

func content(o runtime.Object) []any {
	switch o := o.(type) {
	case *unstructured.Unstructured:
		fields := maps.Clone(o.Object)
		for _, kept := range []string{"apiVersion", "kind", "metadata", "status"} {
			delete(fields, kept)
		}
		return []any{fields}
	case *core.Service:
		return []any{o.Spec}
	case *core.Namespace:
		return []any{o.Spec}
	case *core.Secret:
		return []any{o.Type, o.Data}
	case *core.ConfigMap:
		return []any{o.Data, o.BinaryData}
	}
	return []any{o}
}

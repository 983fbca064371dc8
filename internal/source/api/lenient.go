package apisource

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/source/mistype"
)

// lenient decodes the kinds whose definitions checked few fields, those of Contour. An API may have objects with values
// that do not fit ours, and one of them would make the list of all unreadable. The values are left out, and the object
// says which in the annotation snapshot.Unreadable.
type lenient struct {
	runtime.NegotiatedSerializer
	resource snapshot.Resource
}

// lenientFor wraps the serializer of a kind, where the kind needs it.
func lenientFor(r snapshot.Resource, s runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	if !r.Lenient {
		return s
	}
	return lenient{NegotiatedSerializer: s, resource: r}
}

// DecoderToVersion is asked for lists and for the objects of watches.
func (l lenient) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return lenientDecoder{Decoder: l.NegotiatedSerializer.DecoderToVersion(d, gv), resource: l.resource}
}

type lenientDecoder struct {
	runtime.Decoder
	resource snapshot.Resource
}

// Decode decodes what fits.
func (d lenientDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err == nil {
		forEach(object, func(o metav1.Object) { mark(o, "") }) // nobody else writes it
		return object, gvk, nil
	}
	pruned, found := d.prune(data)
	if len(found) == 0 {
		return object, gvk, err
	}
	// The first try may have left something in into.
	fresh, gvk, again := d.Decoder.Decode(pruned, defaults, nil)
	if again != nil {
		return object, gvk, err
	}
	i := 0
	forEach(fresh, func(o metav1.Object) { mark(o, found[i]); i++ })
	if into == nil {
		return fresh, gvk, nil
	}
	to, from := reflect.ValueOf(into), reflect.ValueOf(fresh)
	if to.Type() != from.Type() {
		return object, gvk, err
	}
	to.Elem().Set(from.Elem())
	return into, gvk, nil
}

// prune takes values that do not fit out of an object, or out of the objects of a list. It says of each object which;
// found is empty when the data are neither.
func (d lenientDecoder) prune(data []byte) (pruned []byte, found []string) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value map[string]any
	if decoder.Decode(&value) != nil {
		return nil, nil
	}
	objects := []any{value}
	switch kind := string(d.resource.Kind); value["kind"] {
	case kind:
	case kind + "List":
		objects, _ = value["items"].([]any)
	default:
		return nil, nil
	}
	for _, o := range objects {
		object, is := o.(map[string]any)
		if !is {
			return nil, nil
		}
		var texts []string
		for _, m := range mistype.Prune(object, d.resource.New()) {
			texts = append(texts, m.String())
		}
		found = append(found, strings.Join(texts, "; "))
	}
	pruned, err := json.Marshal(value)
	if err != nil {
		return nil, nil
	}
	return pruned, found
}

// forEach calls f for an object, or for those of a list.
func forEach(o runtime.Object, f func(metav1.Object)) {
	visit := func(o runtime.Object) error {
		if object, is := o.(metav1.Object); is {
			f(object)
		}
		return nil
	}
	if !meta.IsListType(o) {
		_ = visit(o)
		return
	}
	_ = meta.EachListItem(o, visit)
}

// mark notes what was left out of an object.
func mark(o metav1.Object, found string) {
	a := o.GetAnnotations()
	switch {
	case found != "":
		if a == nil {
			a = map[string]string{}
		}
		a[snapshot.Unreadable] = found
	case a[snapshot.Unreadable] != "":
		delete(a, snapshot.Unreadable)
	default:
		return
	}
	o.SetAnnotations(a)
}

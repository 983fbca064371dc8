package apisource

import (
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.dev/internal/snapshot"
)

// tolerant reads what the API sends object by object where one of them cannot be read: an API keeps what was stored
// under an older definition, and one such object would hide all others of its kind.
type tolerant struct {
	runtime.NegotiatedSerializer
	resource snapshot.Resource
	mark     string // begins the annotation of an object that cannot be read; nobody else knows it
}

// unreadableAnnotation says why an object cannot be read. It is in memory alone.
const unreadableAnnotation = "source.fairlead.dev/unreadable"

// DecoderToVersion is the decoder of lists and of the objects of a watch.
func (t tolerant) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return tolerantDecoder{t.NegotiatedSerializer.DecoderToVersion(d, gv), t}
}

type tolerantDecoder struct {
	runtime.Decoder
	tolerant
}

// Decode decodes a list with what of it can be read, or an object that says why it cannot.
func (d tolerantDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err == nil {
		return object, gvk, nil
	}
	var raw struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        json.RawMessage   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(data, &raw) != nil {
		return object, gvk, err
	}
	switch raw.Kind {
	case string(d.resource.Kind):
		object, e := d.one(data, err)
		if e != nil {
			return nil, gvk, err
		}
		return object, gvk, nil
	case string(d.resource.Kind) + "List":
		list, e := d.list(raw.TypeMeta, raw.Metadata, raw.Items, into)
		if e != nil {
			return nil, gvk, err
		}
		return list, gvk, nil
	}
	return object, gvk, err
}

// list decodes the items of a list one by one.
func (d tolerantDecoder) list(of metav1.TypeMeta, metadata json.RawMessage, items []json.RawMessage, into runtime.Object) (runtime.Object, error) {
	empty, err := json.Marshal(map[string]any{"kind": of.Kind, "apiVersion": of.APIVersion, "metadata": metadata, "items": []any{}})
	if err != nil {
		return nil, err
	}
	list, _, err := d.Decoder.Decode(empty, nil, into)
	if err != nil {
		return nil, err
	}
	var objects []runtime.Object
	for _, item := range items {
		object, _, err := d.Decoder.Decode(item, nil, d.resource.New())
		if err != nil {
			if object, err = d.one(item, err); err != nil {
				return nil, err
			}
		}
		objects = append(objects, object)
	}
	return list, meta.SetList(list, objects)
}

// one is an object that says of itself why it cannot be read.
func (d tolerantDecoder) one(data []byte, why error) (runtime.Object, error) {
	var raw struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, err
	}
	object := d.resource.New()
	object.SetNamespace(raw.Metadata.Namespace)
	object.SetName(raw.Metadata.Name)
	object.SetUID(raw.Metadata.UID)
	object.SetResourceVersion(raw.Metadata.ResourceVersion)
	object.SetAnnotations(map[string]string{unreadableAnnotation: d.mark + why.Error()})
	if object.GetName() == "" {
		return nil, fmt.Errorf("an object without a name: %w", io.ErrUnexpectedEOF)
	}
	return object, nil
}

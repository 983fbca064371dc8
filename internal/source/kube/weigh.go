package kube

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubejson "k8s.io/apimachinery/pkg/runtime/serializer/json"

	"fairlead.dev/internal/source/cloud"
)

const (
	// maxEvent is how large an event of a watch may be; client-go reads no larger one of protobuf.
	maxEvent = 16 << 20
	// maxNesting bounds how deep JSON may be nested. The decoder has a larger bound.
	maxNesting = 1000
	// mapEntry is about what an entry of a map takes, beside its value.
	mapEntry = 64
	// objectBytes is about what the reflector keeps of an object until a list is complete.
	objectBytes = 512
)

// protobufPrefix begins each object in protobuf.
var protobufPrefix = []byte("k8s\x00")

// codecs read JSON and protobuf, the formats that are asked for. An API may answer in others, which take more memory to
// decode, or are nobody's choice.
//
// A value of two bytes, such as an empty item of a list, may take a kilobyte of memory once it is decoded. So each
// answer and event is weighed before: it is refused if its decoded values take more than growth times the bytes that it
// may have.
type codecs struct {
	runtime.NegotiatedSerializer
	scale *scale
}

// scale weighs what one client decodes.
type scale struct {
	most int64 // weight of a list
	last int64 // weight of the last list; it belongs to the goroutine that asked for it
}

func (c codecs) SupportedMediaTypes() []runtime.SerializerInfo {
	var out []runtime.SerializerInfo
	for _, info := range c.NegotiatedSerializer.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeJSON && info.MediaType != runtime.ContentTypeProtobuf {
			continue
		}
		if info.StreamSerializer != nil {
			s := *info.StreamSerializer
			s.Framer = framer{s.Framer}
			info.StreamSerializer = &s
		}
		out = append(out, info)
	}
	return out
}

func (c codecs) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return decoder{c.NegotiatedSerializer.DecoderToVersion(d, gv), c.scale}
}

// framer bounds what is read for one event.
type framer struct{ runtime.Framer }

func (f framer) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	b := &bounded{ReadCloser: r}
	return &frames{ReadCloser: f.Framer.NewFrameReader(b), from: b}
}

type frames struct {
	io.ReadCloser
	from *bounded
}

func (f *frames) Read(p []byte) (int, error) {
	f.from.left = 2 * maxEvent // the reader may read ahead
	return f.ReadCloser.Read(p)
}

type bounded struct {
	io.ReadCloser
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, cloud.BadAnswer("an event is larger than %d MiB", maxEvent>>20)
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= n
	return n, err
}

// decoder weighs what it decodes.
type decoder struct {
	runtime.Decoder
	scale *scale
}

// Decode decodes a list or object into into. Without it, it decodes the object of an event, or an error.
func (d decoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	most := min(d.scale.most, growth*maxEvent)
	if into != nil {
		most = d.scale.most
	}
	n, err := weigh(data, into)
	if err != nil {
		return nil, nil, err
	}
	if n > most {
		return nil, nil, cloud.BadAnswer("what the answer has takes more than %d MiB of memory (spec.limits.answerMiB is a quarter of that)", most>>20)
	}
	if into != nil {
		d.scale.last = n
	}
	return d.Decoder.Decode(data, defaults, into)
}

// weigh is about how much memory the values of an object will take, without its texts. The kind of the object is what
// the object says. If it says nothing, it is that of into.
func weigh(data []byte, into runtime.Object) (int64, error) {
	var kind string
	raw := data
	isProtobuf := bytes.HasPrefix(data, protobufPrefix)
	if isProtobuf {
		var ok bool
		if kind, raw, ok = unwrap(data[len(protobufPrefix):]); !ok {
			return 0, cloud.BadAnswer("the answer is no protobuf")
		}
	} else {
		gvk, err := kubejson.DefaultMetaFactory.Interpret(data)
		if err != nil {
			return 0, cloud.BadAnswer("the answer is no JSON of an object: %w", err)
		}
		kind = gvk.Kind
	}
	if kind == "" && into != nil {
		kind = reflect.TypeOf(into).Elem().Name()
	}
	s := shapes()[kind]
	switch {
	case kind == "":
		return 0, nil // it is not decoded
	case s == nil:
		return 0, cloud.BadAnswer("the answer is a %q, which was not asked for", clip(kind))
	case isProtobuf:
		n, ok := s.protobuf(raw)
		if !ok {
			return 0, cloud.BadAnswer("the answer is no protobuf of a %s", kind)
		}
		return n, nil
	}
	w := weigher{data: data}
	w.value(s, 0)
	if w.deep {
		return 0, cloud.BadAnswer("the answer is nested deeper than %d", maxNesting)
	}
	return w.weight, nil
}

// unwrap reads the kind and the object of a runtime.Unknown.
func unwrap(data []byte) (kind string, raw []byte, ok bool) {
	ok = fields(data, func(number protowire.Number, content []byte) bool {
		switch number {
		case 1:
			return fields(content, func(number protowire.Number, content []byte) bool {
				if number == 2 {
					kind = string(content)
				}
				return true
			})
		case 2:
			raw = content
		}
		return true
	})
	return kind, raw, ok
}

// fields calls f with the fields of a message that have a length. It says whether all could be read.
func fields(data []byte, f func(number protowire.Number, content []byte) bool) bool {
	for len(data) > 0 {
		number, wire, n := protowire.ConsumeTag(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		if wire != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, wire, data); n < 0 {
				return false
			}
			data = data[n:]
			continue
		}
		content, n := protowire.ConsumeBytes(data)
		if n < 0 || !f(number, content) {
			return false
		}
		data = data[n:]
	}
	return true
}

// shape is what is to be known of a Go type to weigh values of it.
type shape struct {
	size    int64                       // of each value that is not a part of another one
	each    *shape                      // of the values of a list or map
	members map[string]*shape           // of a struct, by the name in JSON
	numbers map[protowire.Number]*shape // of a struct, by the number in protobuf
}

// shapes are those of the kinds that may be decoded.
var shapes = sync.OnceValue(func() map[string]*shape {
	known := map[reflect.Type]*shape{}
	out := map[string]*shape{}
	for _, o := range []any{
		corev1.Service{}, corev1.ServiceList{}, corev1.Namespace{}, discoveryv1.EndpointSlice{}, discoveryv1.EndpointSliceList{}, metav1.Status{},
	} {
		t := reflect.TypeOf(o)
		out[t.Name()] = shapeOf(t, known)
	}
	return out
})

func shapeOf(t reflect.Type, known map[reflect.Type]*shape) *shape {
	if s := known[t]; s != nil {
		return s
	}
	s := &shape{}
	known[t] = s
	switch t.Kind() {
	case reflect.Pointer:
		*s = *shapeOf(t.Elem(), known)
		s.size = int64(t.Elem().Size())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			break // a text
		}
		each := *shapeOf(t.Elem(), known)
		each.size = int64(t.Elem().Size())
		s.each = &each
	case reflect.Map:
		each := *shapeOf(t.Elem(), known)
		each.size = int64(t.Key().Size()+t.Elem().Size()) + mapEntry
		s.each = &each
	case reflect.Struct:
		s.members, s.numbers = map[string]*shape{}, map[protowire.Number]*shape{}
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() {
				continue
			}
			child := shapeOf(f.Type, known)
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
				s.members[name] = child
			}
			if tag := strings.Split(f.Tag.Get("protobuf"), ","); len(tag) > 1 {
				if n, err := strconv.Atoi(tag[1]); err == nil {
					s.numbers[protowire.Number(n)] = child
				}
			}
		}
	}
	return s
}

// protobuf weighs the content of a message. Maps are lists of messages on the wire; their values are texts.
func (s *shape) protobuf(data []byte) (weight int64, ok bool) {
	ok = fields(data, func(number protowire.Number, content []byte) bool {
		child := s.numbers[number]
		if child == nil {
			return true
		}
		if child.each != nil { // each field is an element
			child = child.each
		}
		weight += child.size
		if child.numbers == nil {
			return true
		}
		n, ok := child.protobuf(content)
		weight += n
		return ok
	})
	return weight, ok
}

// weigher reads JSON that is known to be valid.
type weigher struct {
	data   []byte
	weight int64
	deep   bool
}

// next is the next byte that is no space; 0: there is none.
func (w *weigher) next() byte {
	for len(w.data) > 0 {
		switch c := w.data[0]; c {
		case ' ', '\t', '\r', '\n':
			w.data = w.data[1:]
		default:
			return c
		}
	}
	return 0
}

// value reads a value of a shape; nil: it is left out of the decoded object.
func (w *weigher) value(s *shape, depth int) {
	if s != nil {
		w.weight += s.size
	}
	if depth > maxNesting {
		w.deep, w.data = true, nil
		return
	}
	switch c := w.next(); c {
	case '{', '[':
		w.data = w.data[1:]
		for {
			switch w.next() {
			case 0:
				return
			case '}', ']':
				w.data = w.data[1:]
				return
			case ',':
				w.data = w.data[1:]
				continue
			}
			var child *shape
			if s != nil {
				child = s.each
			}
			if c == '{' {
				name := w.text()
				if s != nil && s.members != nil {
					child = s.members[memberName(name)]
				}
				if w.next() == ':' {
					w.data = w.data[1:]
				}
			}
			w.value(child, depth+1)
		}
	case '"':
		w.text()
	default:
		i := bytes.IndexAny(w.data, ",]} \t\r\n")
		if i < 0 {
			i = len(w.data)
		}
		w.data = w.data[max(i, min(1, len(w.data))):]
	}
}

// text reads a string, and gives it as it is written, with its quotes.
func (w *weigher) text() []byte {
	all := w.data
	for i := 1; i < len(all); i++ {
		switch all[i] {
		case '\\':
			i++
		case '"':
			w.data = all[i+1:]
			return all[:i+1]
		}
	}
	w.data = nil
	return all
}

// memberName is the name that a string is.
func memberName(text []byte) string {
	if bytes.IndexByte(text, '\\') < 0 {
		return string(bytes.Trim(text, `"`))
	}
	var name string
	_ = json.Unmarshal(text, &name) // the decoder reads it in the same way
	return name
}

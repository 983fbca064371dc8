package kube

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	decodejson "sigs.k8s.io/json"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/source/cloud"
)

// inProtobuf is an object as an API sends it.
func inProtobuf(t testing.TB, kind string, raw []byte) []byte {
	t.Helper()
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}
	b, err := u.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), b...)
}

// Small answers that take much memory, and formats that were not asked for, are refused.
func TestHeavyAnswers(t *testing.T) {
	const version, more = "\x0a\x05\x12\x01\x31\x1a\x00", "\x0a\x09\x12\x01\x31\x1a\x04more"
	list := func(rest string) []byte {
		return []byte(`{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},` + rest)
	}
	for name, c := range map[string]struct {
		format  string
		list    []byte // the answer to a list
		watch   []byte // the answer to a watch
		message string
	}{
		"empty items in protobuf": {
			format: runtime.ContentTypeProtobuf, list: inProtobuf(t, "ServiceList", []byte(version+strings.Repeat("\x12\x00", 100_000))),
			message: "list services: what the answer has takes more than 4 MiB of memory",
		},
		"empty items in JSON": {
			format: runtime.ContentTypeJSON, list: list(`"items":[` + strings.Repeat(`{},`, 100_000) + `{}]}`),
			message: "list services: what the answer has takes more than 4 MiB of memory",
		},
		"empty ports": {
			format: runtime.ContentTypeJSON, list: list(`"items":[{"spec":{"ports":[` + strings.Repeat(`{},`, 100_000) + `{}]}}]}`),
			message: "list services: what the answer has takes more than 4 MiB of memory",
		},
		"pages of empty items": {
			format: runtime.ContentTypeProtobuf, list: inProtobuf(t, "ServiceList", []byte(more+strings.Repeat("\x12\x00", 1000))),
			message: "list services: the list is larger than 1 MiB (spec.limits.answerMiB)",
		},
		"another kind": {
			format: runtime.ContentTypeJSON, list: []byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{},{}]}`),
			message: `list services: the answer is a "PodList", which was not asked for`,
		},
		"YAML": {
			format: runtime.ContentTypeYAML, list: []byte("apiVersion: v1\nkind: ServiceList\nmetadata: {resourceVersion: '1'}\nitems: [{}]\n"),
			message: "list services: ",
		},
		"an event in YAML": {format: runtime.ContentTypeYAML, watch: []byte("type: ADDED\n"), message: "watch services: "},
		"an event with empty ports": {
			format: runtime.ContentTypeJSON,
			watch: []byte(`{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","metadata":{"namespace":"a","name":"b","resourceVersion":"2"},"spec":{"ports":[` +
				strings.Repeat(`{},`, 100_000) + `{}]}}}`),
			message: "what the answer has takes more than 4 MiB of memory",
		},
		"tiny events": {
			format:  runtime.ContentTypeJSON,
			watch:   bytes.Repeat([]byte(`{"type":"ADDED","object":{"kind":"Service","metadata":{"resourceVersion":"2"},"apiVersion":"v1"}}`), 9000),
			message: "the list is larger than 1 MiB (spec.limits.answerMiB)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeAPI(t)
				f.paged = true
				f.setFault(ofServices(func(w http.ResponseWriter, r *http.Request) bool {
					answer := c.list
					if r.URL.Query().Get("watch") != "" {
						answer = c.watch
					}
					if answer == nil {
						return false
					}
					w.Header().Set("Content-Type", c.format)
					_, _ = w.Write(answer)
					flush(w)
					if r.URL.Query().Get("watch") != "" {
						<-r.Context().Done()
					}
					return true
				}))
				s := f.follow(t, func(c *Config) { c.AnswerBytes = 1 << 20 })
				time.Sleep(10 * time.Second)
				want(t, "given", s.took(), "")
				s.heardOnly(t, v1alpha1.ReasonBadAnswer, c.message)
			})
		})
	}
}

// The weight of an object is the memory of its values, in both formats.
func TestWeigh(t *testing.T) {
	size := func(v any) int64 { return int64(reflect.TypeOf(v).Size()) }
	label := int64(32 + mapEntry)
	for name, c := range map[string]struct {
		object runtime.Object
		want   int64
	}{
		"no items":  {&corev1.ServiceList{}, 0},
		"items":     {&corev1.ServiceList{Items: make([]corev1.Service, 3)}, 3 * size(corev1.Service{})},
		"ports":     {&corev1.Service{Spec: corev1.ServiceSpec{Ports: make([]corev1.ServicePort, 5)}}, 5 * size(corev1.ServicePort{})},
		"labels":    {&corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"{": "[", "\"": "\\", "c": "}]"}}}, 3 * label},
		"a pointer": {&corev1.Service{Spec: corev1.ServiceSpec{SessionAffinityConfig: &corev1.SessionAffinityConfig{}}}, size(corev1.SessionAffinityConfig{})},
		"endpoints": {
			&discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1", "10.0.0.2"}}, {Addresses: []string{""}}}},
			2*size(discoveryv1.Endpoint{}) + 3*size(""),
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := reflect.TypeOf(c.object).Elem().Name()
			raw, err := c.object.(interface{ Marshal() ([]byte, error) }).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.MarshalIndent(c.object, "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			for format, data := range map[string][]byte{
				"protobuf": inProtobuf(t, kind, raw), "JSON": text, "JSON with escapes": bytes.ReplaceAll(text, []byte(`"items"`), []byte(`"\u0069tems"`)),
			} {
				if got, err := weigh(data, c.object); err != nil || got != c.want {
					t.Errorf("%s: weighs %d, want %d: %v", format, got, c.want, err)
				}
			}
		})
	}
}

func TestWeighDeep(t *testing.T) {
	data := `{"kind":"Service","metadata":{"managedFields":[{"fieldsV1":` + strings.Repeat(`{"f":`, 2000) + "1" + strings.Repeat("}", 2000) + `}]}}`
	if _, err := weigh([]byte(data), nil); cloud.ReasonOf(err) != v1alpha1.ReasonBadAnswer {
		t.Errorf("error %v", err)
	}
}

// Whatever JSON is, its weight is no less than that of what it is decoded to, and reading it ends.
func FuzzWeigh(f *testing.F) {
	f.Add([]byte(`{"kind":"ServiceList","items":[{},null,{"spec":{"ports":[{},{"targetPort":"a"}]}}]}`))
	f.Add([]byte(`{"\u0069tems":[{"metadata":{"labels":{"a":"}"}}}],"items":[]}`))
	f.Add([]byte(`[`))
	f.Add(inProtobuf(f, "ServiceList", []byte("\x12\x00\x12\x00")))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := weigh(data, &corev1.ServiceList{})
		var list corev1.ServiceList
		if err != nil || decodejson.UnmarshalCaseSensitivePreserveInts(data, &list) != nil {
			return
		}
		least := len(list.Items) * int(reflect.TypeFor[corev1.Service]().Size())
		for i := range list.Items {
			least += len(list.Items[i].Spec.Ports) * int(reflect.TypeFor[corev1.ServicePort]().Size())
		}
		if list.Kind == "ServiceList" && n < int64(least) {
			t.Errorf("weighs %d, and takes %d", n, least)
		}
	})
}

// One event without an end is not read for ever.
func TestEndlessEvent(t *testing.T) {
	r := framer{kubejson.Framer}.NewFrameReader(io.NopCloser(io.LimitReader(endless{}, 1<<28)))
	if _, err := r.Read(make([]byte, 1024)); cloud.ReasonOf(err) != v1alpha1.ReasonBadAnswer {
		t.Errorf("error %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

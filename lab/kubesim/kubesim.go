// Package kubesim simulates the APIs of hundreds of Kubernetes clusters in one process, for clients that follow Services and
// EndpointSlices. It counts the requests.
//
// It refuses everything else: other kinds, other encodings than protobuf, selectors and writes by HTTP. Objects are put
// by methods. Invariant: as of a kube-apiserver, a list and a watch from its resource version have every change exactly once.
//
// Files in reading order: kubesim.go (clusters and their objects), serve.go (requests).
package kubesim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// The resources that are served.
const (
	Services       = "services"
	EndpointSlices = "endpointslices"
)

// kept is how many changes a cluster remembers for watches that begin in the past.
const kept = 4096

// Counts are what a cluster was asked since it was made.
type Counts struct {
	// Lists are complete lists that were begun, by pages or by a watch, by resource.
	Lists map[string]int
	// Requests of all kinds.
	Requests int
}

// Cluster is one API. Its methods may be called concurrently.
type Cluster struct {
	name, token string

	mu      sync.Mutex
	rv      uint64
	objects map[string]map[types.NamespacedName]*stored // by resource
	log     []change
	oldest  uint64        // watches from before it are refused
	news    chan struct{} // closed at the next change
	cut     chan struct{} // closed to end all watches
	down    bool
	counts  Counts
}

// stored is an object as it is sent.
type stored struct {
	object runtime.Object
	raw    []byte // its encoding
}

type change struct {
	rv       uint64
	resource string
	name     types.NamespacedName
	frame    []byte // of a watch
}

// Object is a Service or an EndpointSlice.
type Object interface {
	runtime.Object
	metav1.Object
}

// New returns an API without objects that answers those who know the token.
func New(name, token string) *Cluster {
	return &Cluster{
		name: name, token: token, rv: 1, oldest: 1, news: make(chan struct{}), cut: make(chan struct{}),
		objects: map[string]map[types.NamespacedName]*stored{Services: {}, EndpointSlices: {}}, counts: Counts{Lists: map[string]int{}},
	}
}

// Name of the cluster.
func (c *Cluster) Name() string { return c.name }

// Counts returns what the cluster was asked so far.
func (c *Cluster) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.counts
	n.Lists = maps.Clone(n.Lists)
	return n
}

// Put creates or replaces an object. It is the cluster's from then on: nobody changes it.
func (c *Cluster) Put(o Object) error {
	resource, gvk, err := kindOf(o)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	kind := watch.Added
	if c.objects[resource][name] != nil {
		kind = watch.Modified
	}
	c.rv++
	o.SetResourceVersion(strconv.FormatUint(c.rv, 10))
	o.SetUID(types.UID(c.name + "/" + resource + "/" + name.String()))
	o.GetObjectKind().SetGroupVersionKind(gvk)
	raw, err := encode(o)
	if err != nil {
		return err
	}
	c.objects[resource][name] = &stored{o, raw}
	return c.tell(resource, name, kind, raw)
}

// Delete deletes an object by its type and name, if there is one.
func (c *Cluster) Delete(o Object) error {
	resource, gvk, err := kindOf(o)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	if c.objects[resource][name] == nil {
		return nil
	}
	delete(c.objects[resource], name)
	c.rv++
	o.SetResourceVersion(strconv.FormatUint(c.rv, 10))
	o.GetObjectKind().SetGroupVersionKind(gvk)
	raw, err := encode(o)
	if err != nil {
		return err
	}
	return c.tell(resource, name, watch.Deleted, raw)
}

// SetDown makes the API refuse everything with 503, and end its watches, or work again.
func (c *Cluster) SetDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
	if down {
		close(c.cut)
		c.cut = make(chan struct{})
	}
}

// tell notes a change for those who watch.
func (c *Cluster) tell(resource string, name types.NamespacedName, kind watch.EventType, raw []byte) error {
	frame, err := frameOf(kind, raw)
	if err != nil {
		return err
	}
	c.log = append(c.log, change{c.rv, resource, name, frame})
	if len(c.log) >= 2*kept {
		c.oldest = c.log[kept-1].rv
		c.log = slices.Clone(c.log[kept:])
	}
	close(c.news)
	c.news = make(chan struct{})
	return nil
}

func kindOf(o Object) (resource string, gvk schema.GroupVersionKind, err error) {
	switch o.(type) {
	case *corev1.Service:
		return Services, corev1.SchemeGroupVersion.WithKind("Service"), nil
	case *discoveryv1.EndpointSlice:
		return EndpointSlices, discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), nil
	}
	return "", gvk, fmt.Errorf("a simulated cluster has no %T", o)
}

// codec writes objects that name their own kind.
var codec = protobuf.NewSerializer(nil, nil)

func encode(o runtime.Object) ([]byte, error) {
	var b bytes.Buffer
	if err := codec.Encode(o, &b); err != nil {
		return nil, fmt.Errorf("encode a %T: %w", o, err)
	}
	return b.Bytes(), nil
}

// frameOf is an event of a watch: its length in four bytes, most significant first, and a WatchEvent.
func frameOf(kind watch.EventType, raw []byte) ([]byte, error) {
	e := metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}}
	b, err := e.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode an event: %w", err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...), nil
}

// Handler serves clusters, each below "/" and its name.
func Handler(clusters ...*Cluster) http.Handler {
	byName := map[string]*Cluster{}
	for _, c := range clusters {
		byName[c.name] = c
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if c := byName[name]; c != nil {
			c.serve(w, r, "/"+path)
			return
		}
		http.NotFound(w, r)
	})
}

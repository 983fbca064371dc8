package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
)

// fakeAPI serves Services and EndpointSlices as an API server does, in memory, for tests inside a bubble. It misbehaves
// when told to.
type fakeAPI struct {
	mu       sync.Mutex
	uid      string
	rv       int
	objects  map[string]map[string]metav1.Object // by resource and key
	log      []change
	oldest   int           // versions before it are compacted
	news     chan struct{} // closed at the next change
	cut      chan struct{} // closed to end all watches
	unmarked bool          // its watches do not say when all objects were there
	paged    bool          // it lists in pages only: it does not begin watches with the objects that there are
	pages    int           // objects in a page, whatever is asked for; 0: as asked for
	requests []string
	fault    func(w http.ResponseWriter, r *http.Request) bool // answers a request itself

	base  *http.Transport
	conns chan net.Conn
	down  bool // connections are refused
}

type change struct {
	rv       int
	resource string
	old, new metav1.Object
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{
		uid: "cluster-1", rv: 100, oldest: 100, news: make(chan struct{}), cut: make(chan struct{}), conns: make(chan net.Conn),
		objects: map[string]map[string]metav1.Object{"services": {}, "endpointslices": {}},
	}
	s := &http.Server{Handler: f}
	go func() { _ = s.Serve(f) }()
	t.Cleanup(func() {
		f.breakWatches()
		_ = s.Close()
		synctest.Wait()
	})
	return f
}

// Accept makes the API a listener.
func (f *fakeAPI) Accept() (net.Conn, error) {
	c, ok := <-f.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close makes the API a listener.
func (f *fakeAPI) Close() error { close(f.conns); return nil }

// Addr makes the API a listener.
func (f *fakeAPI) Addr() net.Addr { return &net.TCPAddr{} }

func (f *fakeAPI) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	f.mu.Lock()
	down := f.down
	f.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("connection refused")}
	}
	ours, theirs := net.Pipe()
	select {
	case f.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

const plainKubeconfig = `{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"http://api"}}]}`

// follow runs a source of the API until the test ends.
func (f *fakeAPI) follow(t *testing.T, change func(*Config)) *sink {
	t.Helper()
	out := &sink{have: map[model.UpstreamKey]*model.UpstreamService{}}
	c := Config{Name: "up01", Kubeconfig: []byte(plainKubeconfig), Allow: cloud.Allow{PlainHTTP: true}, Sink: out, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&c)
	}
	s, err := newSource(c, func(base *http.Transport) { base.DialContext, f.base = f.dial, base })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		s.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		begin := time.Now()
		cancel()
		<-done
		if took := time.Since(begin); took > 0 {
			t.Errorf("the source ended only after %s", took)
		}
	})
	return out
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.URL.Path+map[bool]string{true: " watch"}[r.URL.Query().Get("watch") != ""])
	fault := f.fault
	f.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	resource, namespace := parts[len(parts)-1], ""
	if i := slices.Index(parts, "namespaces"); i >= 0 {
		namespace = parts[i+1]
	}
	switch {
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		f.mu.Lock()
		uid := f.uid
		f.mu.Unlock()
		send(w, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: types.UID(uid)}})
	case f.objects[resource] == nil:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case r.URL.Query().Get("watch") != "":
		f.watch(w, r, resource, namespace)
	default:
		f.list(w, r, resource, namespace)
	}
}

func send(w http.ResponseWriter, o any) {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(append(b, '\n'))
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	send(w, failure(code, reason, message))
}

func failure(code int, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
}

func (f *fakeAPI) list(w http.ResponseWriter, r *http.Request, resource, namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := r.URL.Query()
	if rv, _ := strconv.Atoi(q.Get("resourceVersion")); rv > f.rv {
		s := failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Too large resource version")
		s.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}}
		w.WriteHeader(http.StatusGatewayTimeout)
		send(w, s)
		return
	}
	keys := slices.Sorted(maps.Keys(f.objects[resource]))
	keys = slices.DeleteFunc(keys, func(k string) bool { return !f.selects(r, namespace, f.objects[resource][k]) })
	limit, _ := strconv.Atoi(q.Get("limit"))
	if f.pages > 0 {
		limit = f.pages
	}
	if after := q.Get("continue"); after != "" {
		keys = slices.DeleteFunc(keys, func(k string) bool { return k <= after })
	}
	l := metav1.ListMeta{ResourceVersion: strconv.Itoa(f.rv)}
	if limit > 0 && len(keys) > limit {
		keys = keys[:limit]
		l.Continue = keys[limit-1]
	}
	items := []any{}
	for _, k := range keys {
		items = append(items, f.objects[resource][k])
	}
	send(w, map[string]any{"apiVersion": version(resource), "kind": kindOf(resource) + "List", "metadata": l, "items": items})
}

func version(resource string) string {
	return map[string]string{"services": "v1", "endpointslices": "discovery.k8s.io/v1"}[resource]
}

func kindOf(resource string) string {
	return map[string]string{"services": "Service", "endpointslices": "EndpointSlice"}[resource]
}

func (f *fakeAPI) selects(r *http.Request, namespace string, o metav1.Object) bool {
	s, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		panic(err)
	}
	return o != nil && (namespace == "" || namespace == o.GetNamespace()) && s.Matches(labels.Set(o.GetLabels()))
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request, resource, namespace string) {
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	end := time.After(time.Duration(seconds) * time.Second)
	bookmark := time.NewTicker(time.Minute)
	defer bookmark.Stop()
	event := func(kind string, o any) {
		send(w, map[string]any{"type": kind, "object": o})
		_ = http.NewResponseController(w).Flush()
	}
	mark := func(rv int, annotations map[string]string) {
		event("BOOKMARK", map[string]any{
			"apiVersion": version(resource), "kind": kindOf(resource),
			"metadata": map[string]any{"resourceVersion": strconv.Itoa(rv), "annotations": annotations},
		})
	}
	f.mu.Lock()
	cut := f.cut
	switch {
	case q.Get("sendInitialEvents") == "true" && f.paged:
		f.mu.Unlock()
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
		return
	case q.Get("sendInitialEvents") == "true":
		var objects []metav1.Object
		for _, k := range slices.Sorted(maps.Keys(f.objects[resource])) {
			if o := f.objects[resource][k]; f.selects(r, namespace, o) {
				objects = append(objects, o)
			}
		}
		if from > f.rv {
			f.mu.Unlock()
			f.list(w, r, resource, namespace) // which says that the version is too large
			return
		}
		from = f.rv
		f.mu.Unlock()
		for _, o := range objects {
			event("ADDED", o)
		}
		if !f.unmarked {
			mark(from, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
	case from < f.oldest:
		f.mu.Unlock()
		refuse(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
		return
	default:
		f.mu.Unlock()
		_ = http.NewResponseController(w).Flush()
	}
	for {
		f.mu.Lock()
		news, now := f.news, f.rv
		changes := slices.DeleteFunc(slices.Clone(f.log), func(c change) bool { return c.rv <= from || c.resource != resource })
		missed := from < f.oldest-1
		f.mu.Unlock()
		if missed {
			event("ERROR", failure(http.StatusGone, metav1.StatusReasonExpired, "too old resource version"))
			return
		}
		from = max(now, from)
		for _, c := range changes {
			switch before, after := f.selects(r, namespace, c.old), f.selects(r, namespace, c.new); {
			case before && after:
				event("MODIFIED", c.new)
			case after:
				event("ADDED", c.new)
			case before:
				gone := clone(c.old)
				gone.SetResourceVersion(strconv.Itoa(c.rv))
				event("DELETED", gone)
			}
		}
		select {
		case <-news:
		case <-bookmark.C:
			f.mu.Lock()
			rv := f.rv
			f.mu.Unlock()
			mark(rv, nil)
		case <-end:
			return
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
			return
		}
	}
}

func clone(o metav1.Object) metav1.Object {
	switch o := o.(type) {
	case *corev1.Service:
		return o.DeepCopy()
	case *discoveryv1.EndpointSlice:
		return o.DeepCopy()
	}
	panic("another kind")
}

// typed is a copy that has its type, as in a watch.
func typed(o metav1.Object) metav1.Object {
	o = clone(o)
	switch o := o.(type) {
	case *corev1.Service:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	case *discoveryv1.EndpointSlice:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	}
	return o
}

// put stores objects.
func (f *fakeAPI) put(objects ...metav1.Object) {
	for _, o := range objects {
		f.mu.Lock()
		resource := "services"
		if _, ok := o.(*discoveryv1.EndpointSlice); ok {
			resource = "endpointslices"
		}
		f.set(resource, o.GetNamespace()+"/"+o.GetName(), typed(o))
		f.mu.Unlock()
	}
}

// remove removes an object.
func (f *fakeAPI) remove(resource, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set(resource, key, nil)
}

func (f *fakeAPI) set(resource, key string, o metav1.Object) {
	f.rv++
	c := change{rv: f.rv, resource: resource, new: o}
	if old := f.objects[resource][key]; old != nil {
		c.old = old
	}
	if delete(f.objects[resource], key); o != nil {
		o.SetResourceVersion(strconv.Itoa(f.rv))
		f.objects[resource][key] = o
	}
	f.log = append(f.log, c)
	close(f.news)
	f.news = make(chan struct{})
}

// compact forgets all changes.
func (f *fakeAPI) compact() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rv++
	f.log, f.oldest = nil, f.rv
}

// breakWatches ends all watches, in the middle.
func (f *fakeAPI) breakWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.cut)
	f.cut = make(chan struct{})
}

// setDown makes the API unreachable, or reachable again.
func (f *fakeAPI) setDown(down bool) {
	f.mu.Lock()
	f.down = down
	f.mu.Unlock()
	if down {
		f.breakWatches()
		synctest.Wait()
		f.base.CloseIdleConnections()
	}
}

func (f *fakeAPI) setFault(fault func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// asked says what was asked since the last time.
func (f *fakeAPI) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.requests
	f.requests = nil
	return out
}

// sink notes what it is given.
type sink struct {
	mu       sync.Mutex
	calls    []string
	contacts []error
	have     map[model.UpstreamKey]*model.UpstreamService
	replaced int
	same     bool // all services of the last Replace were the pointers that were there
}

func (s *sink) Replace(all []*model.UpstreamService) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := map[model.UpstreamKey]*model.UpstreamService{}
	s.same = len(all) == len(s.have)
	text := "replace"
	for _, u := range all {
		have[u.Key] = u
		s.same = s.same && s.have[u.Key] == u
		text += " " + u.Key.String()
	}
	s.have = have
	s.replaced++
	s.calls = append(s.calls, text)
}

func (s *sink) Put(all ...*model.UpstreamService) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := "put"
	for _, u := range all {
		s.have[u.Key] = u
		text += " " + u.Key.String()
	}
	s.calls = append(s.calls, text)
}

func (s *sink) Remove(keys ...model.UpstreamKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := "remove"
	for _, k := range keys {
		delete(s.have, k)
		text += " " + k.String()
	}
	s.calls = append(s.calls, text)
}

func (s *sink) Contact(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contacts = append(s.contacts, err)
}

// lists says how many Replaces there were.
func (s *sink) lists() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replaced
}

// unchanged says whether the last Replace gave what there was.
func (s *sink) unchanged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.same
}

// text is all that there is.
func (s *sink) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return state(s.have)
}

// took is what was given since the last time.
func (s *sink) took() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.calls, "; ")
	s.calls = nil
	return out
}

// heard are the contacts since the last time.
func (s *sink) heard() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.contacts
	s.contacts = nil
	return out
}

// moment is long enough for what needs no second attempt.
func moment() {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
}

// endpoints says the ready addresses of a service.
func (s *sink) endpoints(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	scope, name, _ := strings.Cut(key, "/")
	u := s.have[model.UpstreamKey{Scope: scope, Name: name}]
	if u == nil {
		return "none"
	}
	var out []string
	for _, p := range u.Slices {
		for _, e := range p.Endpoints {
			if e.Ready {
				out = append(out, e.Address.String())
			}
		}
	}
	return strings.Join(out, " ")
}

func newService(key string) *corev1.Service {
	namespace, name, _ := strings.Cut(key, "/")
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
}

func newSlice(key, service string, addresses ...string) *discoveryv1.EndpointSlice {
	namespace, name, _ := strings.Cut(key, "/")
	port, portName := int32(8080), "http"
	o := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port}},
	}
	for _, a := range addresses {
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return o
}

package kubesim

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
	"fairlead.dev/internal/source/kube"
)

func service(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team01", Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
}

func slice(name string, addresses ...string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "team01", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}},
	}
}

// sink holds what a source says.
type sink struct {
	mu       sync.Mutex
	services map[model.UpstreamKey]*model.UpstreamService
	replaced int
	failed   bool
	changed  chan struct{}
}

func (s *sink) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *sink) Replace(all []*model.UpstreamService) {
	s.note(func() {
		s.replaced++
		s.services = map[model.UpstreamKey]*model.UpstreamService{}
		for _, x := range all {
			s.services[x.Key] = x
		}
	})
}

func (s *sink) Put(all ...*model.UpstreamService) {
	s.note(func() {
		for _, x := range all {
			s.services[x.Key] = x
		}
	})
}

func (s *sink) Remove(keys ...model.UpstreamKey) {
	s.note(func() {
		for _, k := range keys {
			delete(s.services, k)
		}
	})
}

func (s *sink) Contact(err error) { s.note(func() { s.failed = err != nil }) }

func (s *sink) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		s.mu.Lock()
		ok := is()
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-s.changed:
		case <-limit:
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// The source of the plane follows a simulated cluster as it follows a real one: one list of each kind, then changes, and
// after a failure changes again.
func TestSourceFollows(t *testing.T) {
	c := New("c1", "secret")
	for i := range 50 {
		name := fmt.Sprintf("app-%d", i)
		for _, o := range []Object{service(name), slice(name, "10.0.0.1")} {
			if err := c.Put(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	server := httptest.NewServer(Handler(c))
	defer server.Close()
	out := &sink{changed: make(chan struct{}, 1)}
	source, err := kube.New(kube.Config{
		Name: "up01", Sink: out, Log: slog.New(slog.DiscardHandler), Allow: cloud.Allow{PlainHTTP: true, Loopback: true},
		Kubeconfig: fmt.Appendf(nil, "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {token: secret}}]}", server.URL+"/c1"),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { source.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	out.await(t, "all services", func() bool { return len(out.services) == 50 })
	key := model.UpstreamKey{Scope: "team01", Name: "app-7"}
	has := func(address string) func() bool {
		return func() bool {
			s := out.services[key]
			return s != nil && len(s.Slices) == 1 && s.Slices[0].Endpoints[0].Address.String() == address
		}
	}
	if err := c.Put(slice("app-7", "10.0.0.2")); err != nil {
		t.Fatal(err)
	}
	out.await(t, "a change", has("10.0.0.2"))
	if err := c.Delete(service("app-8")); err != nil {
		t.Fatal(err)
	}
	out.await(t, "a deletion", func() bool { return len(out.services) == 49 })
	c.SetDown(true)
	out.await(t, "a failure", func() bool { return out.failed })
	if err := c.Put(slice("app-7", "10.0.0.3")); err != nil {
		t.Fatal(err)
	}
	c.SetDown(false)
	out.await(t, "a change from while it was down", has("10.0.0.3"))
	if n := c.Counts().Lists; n[Services] != 1 || n[EndpointSlices] != 1 || out.replaced != 1 {
		t.Errorf("%v lists, %d of them given; want one of each", n, out.replaced)
	}
}

// Changes that are not remembered any more have everything listed anew.
func TestOldVersionsAreGone(t *testing.T) {
	c := New("c1", "")
	for range 3 * kept {
		if err := c.Put(slice("app", "10.0.0.1")); err != nil {
			t.Fatal(err)
		}
	}
	for version, want := range map[string]int{"5": http.StatusGone, "999999": http.StatusGone, "12200": http.StatusOK} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/c1/apis/discovery.k8s.io/v1/endpointslices?watch=1&timeoutSeconds=0&resourceVersion="+version, nil)
		r.Header.Set("Authorization", "Bearer ")
		Handler(c).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("a watch from %s: %d, want %d", version, w.Code, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	c := New("c1", "secret")
	for path, want := range map[string]int{
		"/c1/api/v1/pods": http.StatusBadRequest, "/c1/api/v1/services?labelSelector=a": http.StatusBadRequest, "/c2/api/v1/services": http.StatusNotFound,
		"/c1/api/v1/services": http.StatusOK, "/c1/api/v1/namespaces/kube-system": http.StatusOK,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer secret")
		Handler(c).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	w := httptest.NewRecorder()
	Handler(c).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/c1/api/v1/services", nil))
	if w.Code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", w.Code)
	}
}

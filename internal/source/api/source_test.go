package apisource

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
)

// fakeAPI serves machines as an API server does, and misbehaves when told to.
type fakeAPI struct {
	mu       sync.Mutex
	version  int
	machines map[string]*v1alpha1.Machine
	watches  map[chan string]bool
	served   bool // the CRD is installed
	guarded  bool // Secrets may be read in namespace system alone
	hidden   bool // something between answers 404 for everything of ours
	lies     int  // how many lists are wrongly empty
	lists    int
	expired  bool            // the next watch from a version is refused as too old
	spoilt   map[string]bool // machines whose spec is of a type that no version has
}

// encoded is a machine as the API has it.
func (f *fakeAPI) encoded(m *v1alpha1.Machine) any {
	if !f.spoilt[m.Name] {
		return m
	}
	return map[string]any{"apiVersion": m.APIVersion, "kind": m.Kind, "metadata": m.ObjectMeta, "spec": "a text"}
}

func newFakeAPI(t *testing.T) (*fakeAPI, *rest.Config) {
	f := &fakeAPI{machines: map[string]*v1alpha1.Machine{}, watches: map[chan string]bool{}, served: true}
	s := httptest.NewServer(f)
	t.Cleanup(func() { f.breakWatches(); s.CloseClientConnections(); s.Close() })
	return f, &rest.Config{Host: s.URL}
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/machines") {
		f.serveMachines(w, r)
		return
	}
	if f.serveDiscovery(w, r) {
		return
	}
	if strings.HasSuffix(r.URL.Path, "/secrets") {
		if f.guarded && !strings.Contains(r.URL.Path, "/namespaces/system/") {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			return
		}
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"SecretList","metadata":{"resourceVersion":"1"},"items":[
				{"metadata":{"name":"tor","namespace":"system","uid":"1","resourceVersion":"1","annotations":{"note":"PRIVATE"}},
				"data":{"password":"aHVudGVyMg==","tls.key":"UFJJVkFURQ=="}}]}`)
			return
		}
	}
	// Every other kind is served and empty; the answer needs no version and kind.
	if r.URL.Query().Get("watch") != "" {
		if r.URL.Query().Get("sendInitialEvents") != "" {
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`, http.StatusUnprocessableEntity)
			return
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	fmt.Fprint(w, listHead(r.URL.Path)+`"metadata":{"resourceVersion":"1"},"items":[]}`)
}

// serveDiscovery says which of the kinds that may be missing are served.
func (f *fakeAPI) serveDiscovery(w http.ResponseWriter, r *http.Request) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case r.URL.Path != "/apis" && r.URL.Path != "/apis/fairlead.dev/v1alpha1":
		return false
	case f.hidden:
		http.Error(w, "default backend - 404", http.StatusNotFound)
	case r.URL.Path == "/apis":
		fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"version":"v1"}]}]}`)
	case f.served:
		fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"machines"},{"name":"addresspools"},{"name":"bgppeers"}]}`)
	default:
		http.Error(w, "404 page not found", http.StatusNotFound)
	}
	return true
}

// listHead names the list's type as the path says it.
func listHead(path string) string {
	kinds := map[string]string{
		"addresspools": "AddressPoolList", "bgppeers": "BGPPeerList", "secrets": "SecretList",
		"namespaces": "NamespaceList", "services": "ServiceList", "endpointslices": "EndpointSliceList",
		"gateways": "GatewayList", "gatewayclasses": "GatewayClassList", "httproutes": "HTTPRouteList", "referencegrants": "ReferenceGrantList",
		"ingressroutes": "IngressRouteList", "tlscertificatedelegations": "TLSCertificateDelegationList",
	}
	parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/"), "/")
	version := strings.Join(parts[:len(parts)-1], "/")
	version, _, _ = strings.Cut(version, "/namespaces/")
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,`, version, kinds[parts[len(parts)-1]])
}

func (f *fakeAPI) serveMachines(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	switch {
	case !f.served || f.hidden:
		f.mu.Unlock()
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	case r.URL.Query().Get("sendInitialEvents") != "":
		f.mu.Unlock()
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case r.URL.Query().Get("watch") != "" && f.expired:
		f.expired = false
		f.mu.Unlock()
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
	case r.URL.Query().Get("watch") != "":
		events := make(chan string, 100)
		f.watches[events] = true
		f.mu.Unlock()
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case e, ok := <-events:
				if !ok {
					return
				}
				fmt.Fprintln(w, e)
				w.(http.Flusher).Flush()
			}
		}
	default:
		defer f.mu.Unlock()
		f.lists++
		items := []any{}
		if f.lies > 0 {
			f.lies--
		} else {
			for _, m := range f.machines {
				items = append(items, f.encoded(m))
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "fairlead.dev/v1alpha1", "kind": "MachineList", "metadata": map[string]string{"resourceVersion": fmt.Sprint(f.version)}, "items": items,
		})
	}
}

// change stores or, without a spec, removes a machine and tells the watches,
// unless they are to miss it.
func (f *fakeAPI) change(name string, spec *v1alpha1.MachineSpec, tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	event, m := "MODIFIED", f.machines[name]
	if m == nil {
		event = "ADDED"
		m = &v1alpha1.Machine{TypeMeta: metav1.TypeMeta{APIVersion: "fairlead.dev/v1alpha1", Kind: "Machine"}}
		m.Name, m.UID = name, "uid"
	}
	m = m.DeepCopy()
	m.ResourceVersion = fmt.Sprint(f.version)
	m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "someone"}}
	m.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "mine": "yes"}
	if spec == nil {
		event = "DELETED"
		delete(f.machines, name)
	} else {
		m.Spec = *spec
		f.machines[name] = m
	}
	if !tell {
		return
	}
	body, err := json.Marshal(map[string]any{"type": event, "object": f.encoded(m)})
	if err != nil {
		panic(err)
	}
	for w := range f.watches {
		w <- string(body)
	}
}

func (f *fakeAPI) breakWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watches {
		close(w)
		delete(f.watches, w)
	}
}

func (f *fakeAPI) with(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// view applies batches as a plane does.
type view struct {
	t      *testing.T
	source *Source
	held   map[snapshot.Key]metav1.Object
	log    []string
	synced bool
	secret *corev1.Secret // stands in no log: each test has it
}

func follow(t *testing.T, cfg *rest.Config) *view {
	t.Helper()
	return followWith(t, Config{REST: cfg, Log: slog.New(slog.DiscardHandler), Patience: -1, SecretNamespace: "system"})
}

func followWith(t *testing.T, c Config) *view {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return &view{t: t, source: s, held: map[snapshot.Key]metav1.Object{}}
}

// until applies batches until the condition holds.
func (v *view) until(what string, holds func() bool) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for !holds() {
		b, err := v.source.Next(ctx)
		if err != nil {
			v.t.Fatalf("waiting until %s: %v; saw %q", what, err, v.log)
		}
		v.synced = b.Synced
		for _, c := range b.Changes {
			if secret, is := c.Object.(*corev1.Secret); is {
				v.secret = secret
				continue
			}
			if c.Object == nil {
				delete(v.held, c.Key)
				v.log = append(v.log, "- "+c.Key.String())
				continue
			}
			if len(c.Object.GetManagedFields()) > 0 || c.Object.GetAnnotations()[corev1.LastAppliedConfigAnnotation] != "" {
				v.t.Errorf("%s was not trimmed", c.Key)
			}
			v.held[c.Key] = c.Object
			v.log = append(v.log, "+ "+c.Key.String())
		}
	}
}

func (v *view) machine(name string) *v1alpha1.Machine {
	m, _ := v.held[snapshot.Key{Kind: snapshot.KindMachine, Name: snapshot.Name{Name: name}}].(*v1alpha1.Machine)
	return m
}

func (v *view) expectLog(want ...string) {
	v.t.Helper()
	if fmt.Sprint(v.log) != fmt.Sprint(want) {
		v.t.Errorf("the changes were %q, want %q", v.log, want)
	}
	v.log = nil
}

func TestFollowsChanges(t *testing.T) {
	api, cfg := newFakeAPI(t)
	api.change("a", &v1alpha1.MachineSpec{}, true)
	v := follow(t, cfg)
	v.until("synced", func() bool { return v.synced })
	v.expectLog("+ Machine a")
	if v.secret == nil || string(v.secret.Data[snapshot.PasswordKey]) != "hunter2" || len(v.secret.Data) != 1 || len(v.secret.Annotations) > 0 {
		t.Errorf("of the Secret came %v", v.secret)
	}
	v.untilWatched(api)
	api.change("b", &v1alpha1.MachineSpec{Cordoned: true}, true)
	v.until("b is there", func() bool { return v.machine("b") != nil && v.machine("b").Spec.Cordoned })
	api.change("a", nil, true)
	v.until("a is gone", func() bool { return v.machine("a") == nil })
	v.expectLog("+ Machine b", "- Machine a")
}

// untilWatched waits until the machines are watched.
func (v *view) untilWatched(api *fakeAPI) {
	v.t.Helper()
	poll(v.t, "the machines are watched", func() (watched bool) {
		api.with(func() { watched = len(api.watches) > 0 })
		return watched
	})
}

// poll waits until the condition holds, and fails the test if it never does.
func poll(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("waiting until %s", what)
		case <-tick.C:
		}
	}
}

func TestBrokenWatchIsNoDeletion(t *testing.T) {
	api, cfg := newFakeAPI(t)
	api.change("a", &v1alpha1.MachineSpec{}, true)
	api.change("b", &v1alpha1.MachineSpec{}, true)
	v := follow(t, cfg)
	v.until("synced", func() bool { return v.synced && v.machine("b") != nil })
	v.log = nil
	v.untilWatched(api)
	// The watch breaks, cannot be resumed, and two changes are missed meanwhile.
	api.with(func() { api.expired = true })
	api.breakWatches()
	api.change("b", nil, false)
	api.change("c", &v1alpha1.MachineSpec{}, false)
	v.until("the missed changes arrive", func() bool { return v.machine("c") != nil && v.machine("b") == nil })
	if len(v.log) != 2 {
		t.Errorf("unchanged objects were emitted again: %q", v.log)
	}
}

func TestEmptinessIsConfirmed(t *testing.T) {
	api, cfg := newFakeAPI(t)
	api.change("a", &v1alpha1.MachineSpec{}, true)
	v := follow(t, cfg)
	v.until("synced", func() bool { return v.synced })
	v.log = nil
	v.untilWatched(api)
	lists := 0
	api.with(func() { api.expired, api.lies, lists = true, 1, api.lists })
	api.breakWatches()
	v.untilWatched(api)
	api.with(func() {
		if api.lists < lists+3 {
			t.Errorf("%d lists, want the empty one, the question and the list after it", api.lists-lists)
		}
	})
	// A lie removed nothing; the truth does.
	api.with(func() { api.expired = true })
	api.breakWatches()
	api.change("a", nil, false)
	v.until("the machine is gone", func() bool { return v.machine("a") == nil })
	v.expectLog("- Machine a")
}

func TestMissingKindIsWaitedFor(t *testing.T) {
	api, cfg := newFakeAPI(t)
	api.with(func() { api.served = false })
	v := follow(t, cfg)
	v.until("the others are synced", func() bool { return v.synced })
	if m := v.source.Missing(); len(m) != 1 || m[0] != snapshot.KindMachine {
		t.Fatalf("missing are %v", m)
	}
	api.change("a", &v1alpha1.MachineSpec{}, true)
	api.with(func() { api.served = true })
	v.until("the machine is there", func() bool { return v.machine("a") != nil })
	if m := v.source.Missing(); len(m) != 0 {
		t.Fatalf("missing are %v", m)
	}
	// The kind goes again: what is known stays.
	v.untilWatched(api)
	api.with(func() { api.served = false })
	api.breakWatches()
	poll(t, "the kind is missed", func() bool { return len(v.source.Missing()) == 1 })
	if _, ok := v.source.queue.drain(); ok {
		t.Fatal("a kind that is not served looked like deletions")
	}
}

// What stands between may answer "not found" for an API that is not there.
func TestNotFoundIsConfirmed(t *testing.T) {
	api, cfg := newFakeAPI(t)
	api.change("a", &v1alpha1.MachineSpec{}, true)
	api.with(func() { api.hidden = true })
	v := follow(t, cfg)
	poll(t, "the trouble is known", func() bool { return v.source.Trouble()[snapshot.KindMachine] != "" })
	if m := v.source.Missing(); len(m) != 0 {
		t.Fatalf("missing are %v", m)
	}
	api.with(func() { api.hidden = false })
	v.until("synced", func() bool { return v.synced })
	if v.machine("a") == nil {
		t.Fatal("synced without the machine that is there")
	}
}

package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/deploy/crd"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/embedded"
	apisource "fairlead.dev/internal/source/api"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// patience bounds waits for what is expected to happen.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared API:", err)
		code = 1
	}
	os.Exit(code)
}

// shared is the API of all tests that need one: one start costs seconds.
var shared sharedAPI

type sharedAPI struct {
	once   sync.Once
	err    error
	dir    string
	server *embedded.Server
	client client.Client
}

func (s *sharedAPI) stop() error {
	if s.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.server.Stop(ctx); err != nil {
		return err
	}
	return os.RemoveAll(s.dir)
}

func (s *sharedAPI) start() {
	log := slog.New(slog.NewTextHandler(logWriter{}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if s.dir, s.err = os.MkdirTemp("", "plane-test-"); s.err != nil {
		return
	}
	ctx := context.Background()
	if s.server, s.err = embedded.Start(ctx, embedded.Config{DataDir: s.dir, Log: log, DiskReserve: 1}); s.err != nil {
		return
	}
	if s.err = embedded.InstallCRDs(ctx, s.server.RESTConfig(), log, crd.All(crd.Experimental)...); s.err != nil {
		return
	}
	s.client, s.err = apisource.NewClient(s.server.RESTConfig())
}

// logWriter shows logs only when somebody asks for them: a test's log ends with the
// test, and servers outlive it.
type logWriter struct{}

func (logWriter) Write(b []byte) (int, error) {
	if testing.Verbose() {
		return os.Stderr.Write(b)
	}
	return len(b), nil
}

// rig is an API that holds nothing of earlier tests, and what a test makes on it.
type rig struct {
	t      *testing.T
	client client.Client
	wire   *wireTap // between planes and the API
}

func newRig(t *testing.T) *rig {
	t.Helper()
	shared.once.Do(shared.start)
	if shared.err != nil {
		t.Fatalf("start an API: %v", shared.err)
	}
	r := &rig{t: t, client: shared.client, wire: newWireTap(t, shared.server.Address().String())}
	r.wipe()
	t.Cleanup(r.wipe)
	return r
}

// wipe removes everything that planes and tests make.
func (r *rig) wipe() {
	r.t.Helper()
	ctx := context.Background()
	for _, o := range []client.Object{
		&v1alpha1.Machine{}, &v1alpha1.AddressPool{}, &v1alpha1.BGPPeer{}, &v1alpha1.Freeze{}, &gatewayv1.GatewayClass{},
	} {
		if err := r.client.DeleteAllOf(ctx, o); err != nil {
			r.t.Fatal(err)
		}
	}
	var namespaces corev1.NamespaceList
	if err := r.client.List(ctx, &namespaces); err != nil {
		r.t.Fatal(err)
	}
	for _, n := range namespaces.Items {
		for _, o := range []client.Object{
			&gatewayv1.Gateway{}, &gatewayv1.ListenerSet{}, &gatewayv1.HTTPRoute{}, &gatewayv1.ReferenceGrant{}, &contourv1beta1.IngressRoute{},
			&v1alpha1.LoadBalancerPolicy{},
		} {
			if err := r.client.DeleteAllOf(ctx, o, client.InNamespace(n.Name)); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	for _, o := range []client.Object{&coordinationv1.Lease{}, &corev1.Secret{}} {
		if err := r.client.DeleteAllOf(ctx, o, client.InNamespace(Namespace)); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, o := range []client.Object{&corev1.Service{}, &corev1.Secret{}, &discoveryv1.EndpointSlice{}} {
		if err := r.client.DeleteAllOf(ctx, o, client.InNamespace("default"), client.HasLabels{"test"}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// restConfig reaches the API through the wire tap.
func (r *rig) restConfig() *rest.Config {
	cfg := rest.CopyConfig(shared.server.RESTConfig())
	cfg.Host = "https://" + r.wire.listener.Addr().String()
	return cfg
}

// running is a plane under test.
type running struct {
	*Plane
	t        *testing.T
	registry *prometheus.Registry
	cancel   context.CancelFunc
	done     chan error
}

// clock is the time of a plane under test: the real one, moved by steps.
type clock struct {
	mu   sync.Mutex
	step time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.step)
}

func (c *clock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step += d
}

// quickLease makes elections short.
var quickLease = LeaseTimes{Duration: 2 * time.Second, Renew: 1200 * time.Millisecond, Retry: 200 * time.Millisecond}

// everywhere takes what fake agents report: they connect from loopback.
var everywhere = []RoleAddresses{
	{v1alpha1.RoleEdge, []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}},
	{v1alpha1.RoleBackend, []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}},
}

func (r *rig) plane(identity string, adjust ...func(*Config)) *running {
	r.t.Helper()
	registry := prometheus.NewRegistry()
	c := Config{
		REST: r.restConfig(), Identity: identity, AgentAddress: "127.0.0.1:0",
		Log:              slog.New(slog.NewTextHandler(logWriter{}, nil)).With("plane", identity),
		MachineAddresses: everywhere,
		Random:           rand.New(rand.NewPCG(1, 2)), TTL: 2 * time.Second, Lease: quickLease, Registerer: registry, StatusRate: 1000,
	}
	for _, f := range adjust {
		f(&c)
	}
	p, err := New(c)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	run := &running{Plane: p, t: r.t, registry: registry, cancel: cancel, done: make(chan error, 1)}
	go func() { run.done <- p.Run(ctx) }()
	r.t.Cleanup(run.stop)
	return run
}

// stop ends the plane in order.
func (p *running) stop() {
	p.cancel()
	select {
	case err := <-p.done:
		if err != nil {
			p.t.Errorf("the plane ended with: %v", err)
		}
		p.done <- nil
	case <-time.After(patience):
		p.t.Error("the plane does not stop")
	}
}

// awaitReady waits until the plane leads and serves agents: a lease that the plane before
// could not give back is free only when it has run out.
func (p *running) awaitReady() *running {
	p.t.Helper()
	return p.await("the plane leads and is ready", p.Standby)
}

// awaitStandby waits until the plane knows everything beside one that leads.
func (p *running) awaitStandby() *running {
	p.t.Helper()
	return p.await("the plane stands by", func() error {
		if p.Standby() == nil {
			return errors.New("it leads")
		}
		return nil
	})
}

func (p *running) await(what string, role func() error) *running {
	p.t.Helper()
	eventually(p.t, what, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return cmp.Or(role(), p.Readyz(ctx))
	})
	return p
}

func (p *running) metric(name string, labels map[string]string) float64 {
	p.t.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if want, ok := labels[l.GetName()]; ok && want != l.GetValue() {
					continue metrics
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// eventually tries until there is no error, and fails the test if there always is.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("waiting until %s: %v", what, err)
		case <-tick.C:
		}
	}
}

// wireTap forwards connections and can be cut.
type wireTap struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

func newWireTap(t *testing.T, target string) *wireTap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wireTap{listener: l, target: target, conns: map[net.Conn]bool{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.forward(c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		w.set(true)
	})
	return w
}

func (w *wireTap) forward(from net.Conn) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("tcp", w.target)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	w.mu.Lock()
	if w.cut {
		w.mu.Unlock()
		return
	}
	w.conns[from], w.conns[to] = true, true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.conns, from)
		delete(w.conns, to)
	}()
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
}

// set cuts the wire or mends it.
func (w *wireTap) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for c := range w.conns {
			_ = c.Close()
		}
	}
}

func (r *rig) create(objects ...client.Object) {
	r.t.Helper()
	for _, o := range objects {
		if err := r.client.Create(context.Background(), o); err != nil {
			r.t.Fatal(err)
		}
	}
}

// edit changes an object as a person would.
func edit[T client.Object](r *rig, o T, change func(T)) {
	r.t.Helper()
	eventually(r.t, "the object is edited", func() error {
		if err := reread(r, o); err != nil {
			return err
		}
		change(o)
		return r.client.Update(context.Background(), o)
	})
}

// reread replaces an object by what the API has.
func reread(r *rig, o client.Object) error {
	fresh := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object) // decoding keeps what the API lacks
	if err := r.client.Get(context.Background(), client.ObjectKeyFromObject(o), fresh); err != nil {
		return err
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(fresh).Elem())
	return nil
}

// await waits until an object of the API is as wanted.
func await[T client.Object](r *rig, o T, what string, check func(T) error) {
	r.t.Helper()
	eventually(r.t, what, func() error {
		if err := reread(r, o); err != nil {
			return err
		}
		return check(o)
	})
}

// conditionIs checks one condition.
func conditionIs(conditions []metav1.Condition, conditionType string, status metav1.ConditionStatus, reason string) error {
	for _, c := range conditions {
		if c.Type == conditionType {
			if c.Status != status || reason != "" && c.Reason != reason {
				return fmt.Errorf("condition %s is %s, %s: %s", conditionType, c.Status, c.Reason, c.Message)
			}
			return nil
		}
	}
	return fmt.Errorf("there is no condition %s in %v", conditionType, conditions)
}

// The types of Envoy's resources that the catalog makes.
const (
	typeListener delta.Type = agentv1.ListenerType
	typeScope    delta.Type = agentv1.ScopeType
	typeRoute    delta.Type = agentv1.RouteType
	typeCluster  delta.Type = agentv1.ClusterType
	typeEndpoint delta.Type = agentv1.EndpointType
	typeSecret   delta.Type = agentv1.SecretType
)

// AgentAddress is where agents are listened for; nil before Run listens.
func (p *Plane) AgentAddress() net.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.address
}

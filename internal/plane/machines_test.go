package plane

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

func TestJoiningIsRefused(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	address := p.AgentAddress().String()
	printed := r.token("edge-1", time.Hour)
	a := newFakeAgent(t, "edge-1")
	if err := a.join(address, printed); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(printed, ".")
	parts[2] = strings.Repeat("A", 43)
	for name, c := range map[string]struct {
		printed, words string
		code           codes.Code
	}{
		"used":  {printed, "it was used at", codes.Unauthenticated},
		"wrong": {strings.Join(parts, "."), "secret is wrong", codes.Unauthenticated},
		"cut":   {strings.Join([]string{parts[0], parts[1], "short", parts[3]}, "."), "was it cut", codes.Unauthenticated},
	} {
		err := newFakeAgent(t, "edge-1").join(address, c.printed)
		if grpcstatus.Code(err) != c.code || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The name of a live machine is not given away, and the token is not spent on it.
	disconnect := a.connect(address)
	a.await("is connected", func() error { return a.get(typeMachine, "edge-1", &agentv1.MachineConfig{}) })
	second := r.token("edge-1", time.Hour)
	thief := newFakeAgent(t, "edge-1")
	if err := thief.join(address, second); grpcstatus.Code(err) != codes.AlreadyExists {
		t.Errorf("a live machine's name: %v", err)
	}
	disconnect()
	eventually(t, "the name is free", func() error { return thief.join(address, second) })
	// The new key is the machine's now, the old one is not.
	a.connect(address)
	a.await("is refused", func() error {
		if grpcstatus.Code(a.ended) != codes.Unauthenticated || !strings.Contains(a.ended.Error(), "another key") {
			return errors.Join(errors.New("the stream did not end so"), a.ended)
		}
		return nil
	})
	thief.connect(address)
	thief.await("is served", func() error { return thief.get(typeMachine, "edge-1", &agentv1.MachineConfig{}) })
}

func TestDeletedMachineIsRevoked(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	address := p.AgentAddress().String()
	a := r.joined(p, "edge-1")
	a.connect(address)
	a.await("has the route", a.holdsHost("app.example"))
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}
	refused := func() error {
		if grpcstatus.Code(a.ended) != codes.Unauthenticated || !strings.Contains(a.ended.Error(), "fairlead token create --machine edge-1") {
			return errors.Join(errors.New("the stream did not end so"), a.ended)
		}
		return nil
	}
	if err := r.client.Delete(context.Background(), machine); err != nil {
		t.Fatal(err)
	}
	a.await("loses its stream", refused)
	a.connect(address)
	a.await("is refused", refused)
	if err := a.renew(address); grpcstatus.Code(err) != codes.Unauthenticated {
		t.Errorf("a deleted machine renewed its certificate: %v", err)
	}
	// A Machine that somebody makes by hand does not bring the certificate back.
	r.create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}, Spec: v1alpha1.MachineSpec{Cordoned: true}})
	eventually(t, "the plane knows the new machine", func() error {
		if n := len(p.Status(context.Background()).Machines); n != 1 {
			return fmt.Errorf("%d machines", n)
		}
		return nil
	})
	a.connect(address)
	a.await("is refused still", refused)
	// Joining does, and leaves the Machine as it is.
	eventually(t, "the name is free", func() error { return a.join(address, r.token("edge-1", time.Hour)) })
	a.connect(address)
	a.await("is told to be cordoned", func() error {
		config := &agentv1.MachineConfig{}
		if err := a.get(typeMachine, "edge-1", config); err != nil {
			return err
		}
		if !config.GetCordoned() {
			return fmt.Errorf("the machine was told %v", config)
		}
		return nil
	})
}

func TestRenewedKeysAreGood(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	address := p.AgentAddress().String()
	a := r.joined(p, "edge-1")
	disconnect := a.connect(address)
	a.await("has the route", a.holdsHost("app.example"))
	key, cert, root := a.key, a.cert, a.root
	if err := a.renew(address); err != nil {
		t.Fatal(err)
	}
	// The old stream lasts, the new key may take over.
	a.await("keeps its stream", func() error {
		if a.ended != nil {
			return a.ended
		}
		return nil
	})
	disconnect()
	a.connect(address)
	a.await("is served under the new key", func() error {
		if a.streams != 1 {
			return errors.Join(fmt.Errorf("%d streams", a.streams), a.ended)
		}
		return nil
	})
	if err := a.renew(address); err != nil {
		t.Fatal(err)
	}
	await(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}, "two keys are kept", func(m *v1alpha1.Machine) error {
		if keys := keysOf(m); len(keys) != 2 {
			return fmt.Errorf("keys are %v", keys)
		}
		return nil
	})
	old := newFakeAgent(t, "edge-1")
	old.key, old.cert, old.root = key, cert, root
	old.connect(address)
	old.await("is refused: its key is two renewals old", func() error {
		if grpcstatus.Code(old.ended) != codes.Unauthenticated {
			return errors.Join(errors.New("the stream did not end so"), old.ended)
		}
		return nil
	})
}

// The answer to a renewal may be lost, or not be stored: the key that the machine asks
// with stays good, however often that happens.
func TestRenewalsWhoseAnswerIsLost(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	address := p.AgentAddress().String()
	key, cert := a.key, a.cert
	for i := range 4 {
		if err := a.renew(address); err != nil {
			t.Fatalf("renewal %d: %v", i, err)
		}
		if i < 3 {
			a.key, a.cert = key, cert
		}
	}
	// The last answer arrived.
	a.connect(address)
	a.await("is served under the new key", func() error {
		return errors.Join(a.get(typeMachine, "edge-1", &agentv1.MachineConfig{}), a.ended)
	})
}

// A machine that is revoked while its renewal is under way gets no certificate, and
// neither its old key nor its new one is good.
func TestRenewalThatIsOvertaken(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	key := keyOf(leafOfAgent(t, a))
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}
	edit(r, m, func(m *v1alpha1.Machine) { m.Annotations[KeysAnnotation] = "another" })
	if err := p.machines.admit(context.Background(), "edge-1", "new", key, ""); grpcstatus.Code(err) != codes.Unauthenticated {
		t.Errorf("another has joined: %v", err)
	}
	if err := reread(r, m); err != nil || m.Annotations[KeysAnnotation] != "another" {
		t.Errorf("keys are %v, error %v", keysOf(m), err)
	}
	if err := r.client.Delete(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	if err := p.machines.admit(context.Background(), "edge-1", "new", key, ""); grpcstatus.Code(err) != codes.Unauthenticated {
		t.Errorf("the machine is deleted: %v", err)
	}
	if err := reread(r, m); err == nil {
		t.Error("the deleted machine is back")
	}
}

// Whoever is refused is told what is known of why: nobody joined when the annotation
// was only dropped.
func TestDroppedKeys(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	a.await("is served", func() error { return a.get(typeMachine, "edge-1", &agentv1.MachineConfig{}) })
	refused := func() error {
		if grpcstatus.Code(a.ended) != codes.Unauthenticated || !strings.Contains(a.ended.Error(), KeysAnnotation) || strings.Contains(a.ended.Error(), "another key") {
			return errors.Join(errors.New("the stream did not end so"), a.ended)
		}
		return nil
	}
	edit(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}, func(m *v1alpha1.Machine) { m.Annotations = nil })
	a.await("loses its stream", refused)
	a.connect(p.AgentAddress().String())
	a.await("is refused", refused)
}

// A token that was used lets the same key in again as long as the Machine has it, and
// brings back no machine that was deleted or displaced.
func TestUsedTokenBringsNobodyBack(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	address := p.AgentAddress().String()
	first, second := r.token("edge-1", time.Hour), r.token("edge-1", time.Hour)
	a, b := newFakeAgent(t, "edge-1"), newFakeAgent(t, "edge-1")
	for range 2 { // the first answer may be lost
		if err := a.join(address, first); err != nil {
			t.Fatal(err)
		}
	}
	// The plane has just begun to lead, and keeps the name of a machine that may come back for a while.
	eventually(t, "another key gets the name", func() error { return b.join(address, second) })
	refused := func(who *fakeAgent, printed, words string) {
		t.Helper()
		if err := who.join(address, printed); grpcstatus.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), words) {
			t.Errorf("want %q: %v", words, err)
		}
	}
	refused(a, first, "no longer valid for machine edge-1")
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}
	if err := r.client.Delete(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	refused(a, first, "was deleted since")
	refused(b, second, "was deleted since")
	r.create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}})
	refused(b, second, "no longer valid for machine edge-1")
	if err := a.join(address, r.token("edge-1", time.Hour)); err != nil {
		t.Errorf("a new token: %v", err)
	}
}

// A plane that died between spending a token and writing the Machine owes the agent
// its certificate.
func TestJoinThatWasCutShort(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	printed := r.token("edge-1", time.Hour)
	a := newFakeAgent(t, "edge-1")
	der, err := x509.MarshalPKIXPublicKey(a.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(der)
	if _, err := (tokens{r.client, time.Now}).Spend(context.Background(), parse(t, printed), southbound.KeyID(hex.EncodeToString(sum[:]))); err != nil {
		t.Fatal(err)
	}
	if err := a.join(p.AgentAddress().String(), printed); err != nil {
		t.Error(err)
	}
}

func leafOfAgent(t *testing.T, a *fakeAgent) *x509.Certificate {
	t.Helper()
	leaf, err := x509.ParseCertificate(a.cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// alwaysLeads is the election of a plane that is alone.
type alwaysLeads struct{}

func (alwaysLeads) Leading() (uint64, bool)              { return 1, true }
func (alwaysLeads) Address() string                      { return "" }
func (alwaysLeads) Exceed(context.Context, uint64) error { return nil }

// oneMachine is an API that has one Machine until it is told otherwise.
type oneMachine struct {
	client.Client
	machine *v1alpha1.Machine
	read    func() // after every reading
}

func (c *oneMachine) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	found := c.machine
	c.read()
	if found == nil {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("machines").GroupResource(), k.Name)
	}
	found.DeepCopyInto(o.(*v1alpha1.Machine))
	return nil
}

func (c *oneMachine) Update(context.Context, client.Object, ...client.UpdateOption) error {
	c.read()
	return nil
}

// A Machine that goes between its reading and what follows from it stays gone.
func TestDeletionOvertakesReading(t *testing.T) {
	ca, err := southbound.NewCA(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	chain, _, err := ca.Sign(newFakeAgent(t, "edge-1").request(), southbound.Identity{Machine: "edge-1"})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := leafOf(chain)
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func(*registry) error{
		"check": func(r *registry) error {
			_, err := r.check(context.Background(), leaf)
			return err
		},
		"admit": func(r *registry) error {
			_ = r.admit(context.Background(), "edge-1", "new", keyOf(leaf), "") // it may have been in time
			_, err := r.check(context.Background(), leaf)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := &oneMachine{machine: &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
				Name: "edge-1", ResourceVersion: "7", Annotations: map[string]string{KeysAnnotation: keyOf(leaf)},
			}}}
			r := newRegistry(api, alwaysLeads{}, ca, time.Now, slog.New(slog.DiscardHandler))
			r.know()
			reads := 0
			api.read = func() {
				reads++
				if last := map[string]int{"check": 1, "admit": 2}[name]; reads == last {
					api.machine = nil
					r.set("edge-1", nil)
				}
			}
			if err := try(r); grpcstatus.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "deleted") {
				t.Errorf("the certificate of a deleted machine: %v", err)
			}
			if len(r.keys) != 0 {
				t.Errorf("known still: %v", r.keys)
			}
		})
	}
}

// TestAddressesOfMachinesAreExpected holds that a plane which has just begun knows from where machines may call: from
// the addresses that are theirs in the API.
func TestAddressesOfMachinesAreExpected(t *testing.T) {
	r := newRegistry(nil, alwaysLeads{}, nil, time.Now, slog.New(slog.DiscardHandler))
	machine := func(version, spec, status string) *v1alpha1.Machine {
		return &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: "edge-1", ResourceVersion: version},
			Spec:       v1alpha1.MachineSpec{Addresses: []string{spec}},
			Status:     v1alpha1.MachineStatus{Addresses: []string{status, "not an address"}},
		}
	}
	expects := func(want ...string) {
		t.Helper()
		for _, text := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"} {
			if got := r.expects(netip.MustParseAddr(text)); got != slices.Contains(want, text) {
				t.Errorf("%s: %t", text, got)
			}
		}
	}
	r.set("edge-1", machine("7", "192.0.2.1", "2001:db8::1"))
	r.set("edge-2", machine("7", "192.0.2.1", "192.0.2.2"))
	expects("192.0.2.1", "192.0.2.2", "2001:db8::1")
	r.set("edge-1", machine("8", "::ffff:192.0.2.3", "192.0.2.2"))
	r.set("edge-1", machine("7", "2001:db8::1", "2001:db8::1")) // the watch is behind
	expects("192.0.2.1", "192.0.2.2", "192.0.2.3")
	r.set("edge-2", nil)
	r.set("edge-2", nil)
	expects("192.0.2.2", "192.0.2.3")
	r.set("edge-1", nil)
	if expects(); len(r.addresses) > 0 {
		t.Errorf("left: %v", r.addresses)
	}
}

// TestMachineThatRunsNoProxy: one that is to run none is well, and nobody waits for it or sends
// clients there.
func TestMachineThatRunsNoProxy(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	route := httpRoute("app", "", "")
	bare := r.joined(p, "edge-1")
	bare.with(func() { bare.stuck, bare.proxy = true, agentv1.Proxy_STATE_NONE })
	bare.connect(p.AgentAddress().String())
	await(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}, "the machine is ready", func(m *v1alpha1.Machine) error {
		return conditionIs(m.Status.Conditions, v1alpha1.MachineReady, metav1.ConditionTrue, v1alpha1.MachineReasonReady)
	})
	await(r, route, "nobody serves the route", routeIs(metav1.ConditionFalse, status.ReasonPending, "no machine serves this; without a proxy (--envoy none): edge-1"))
	r.joined(p, "edge-2").connect(p.AgentAddress().String())
	await(r, route, "the other machine serves it", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	s := p.Status(context.Background())
	if len(s.Listeners) != 1 || !slices.Equal(s.Listeners[0].Machines, []string{"edge-2"}) || s.Machines[0].Proxy.State != "none" {
		t.Errorf("the status for people is %+v", s)
	}
	for _, problem := range s.Problems {
		if problem.Subject == "Machine edge-1" {
			t.Errorf("it is a problem: %+v", problem)
		}
	}
	eventually(t, "the metrics count it", func() error {
		if n := p.metric("fairlead_plane_machines", map[string]string{"state": machineReady}); n != 2 {
			return fmt.Errorf("%v machines are ready", n)
		}
		return nil
	})
}

// TestMachineOfBackends: the condition says where the agent was started for more than the
// Machine's role.
func TestMachineOfBackends(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	r.joined(p, "edge-1").connect(p.AgentAddress().String())
	node := r.joined(p, "node-7")
	node.with(func() { node.proxy = agentv1.Proxy_STATE_OFF })
	node.connect(p.AgentAddress().String())
	is := func(name, message string) {
		t.Helper()
		machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		edit(r, machine, func(m *v1alpha1.Machine) { m.Spec.Role = v1alpha1.RoleBackend })
		await(r, machine, "what its agent is for is said", func(m *v1alpha1.Machine) error {
			if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.MachineReady); c == nil || c.Status != metav1.ConditionTrue || c.Message != message {
				return fmt.Errorf("the condition is %+v", c)
			}
			return nil
		})
	}
	is("node-7", "the agent reports; the machine has backends only")
	is("edge-1", "the agent reports; the machine has backends only, but its agent was started as an edge: start it with --role backend, or set spec.role to Edge")
}

// TestTokenHasARole: a machine that joins with a token of role backend has that role before it is sent
// anything; one that is there already has the role that its spec says.
func TestTokenHasARole(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	r.create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}})
	join := func(name string, want v1alpha1.MachineRole) *fakeAgent {
		t.Helper()
		printed, err := CreateToken(context.Background(), r.client, TokenRequest{Machine: name, Role: RoleBackend, Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		a := newFakeAgent(t, name)
		if err := a.join(p.AgentAddress().String(), printed); err != nil {
			t.Fatal(err)
		}
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := reread(r, m); err != nil {
			t.Fatal(err)
		}
		if m.Spec.Role != want {
			t.Errorf("%s has the role %s, want %s", name, m.Spec.Role, want)
		}
		a.connect(p.AgentAddress().String())
		return a
	}
	edge, node := join("edge-1", v1alpha1.RoleEdge), join("node-7", v1alpha1.RoleBackend)
	edge.await("has the routes", edge.holdsHost("app.example"))
	node.await("has all of a revision", func() error { return node.get(agentv1.CheckpointType, agentv1.CheckpointName, &agentv1.Checkpoint{}) })
	node.with(func() {
		if n := len(node.held[typeListener]) + len(node.held[typeRoute]) + len(node.held[typeCluster]) + len(node.held[typeSecret]); n > 0 {
			t.Errorf("the machine of backends was sent %d resources of a proxy", n)
		}
	})
}

// TestStrangersUseUpNoRenewals holds that certificates which somebody signs takes no renewals from the machines whose
// names are in them, and leave nothing behind; and that those of a machine which was deleted cost the API little.
func TestStrangersUseUpNoRenewals(t *testing.T) {
	ca, err := southbound.NewCA(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := southbound.NewCA(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	shows := func(ca *southbound.CA, machine string) context.Context {
		chain, _, err := ca.Sign(newFakeAgent(t, machine).request(), southbound.Identity{Machine: machine})
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := leafOf(chain)
		if err != nil {
			t.Fatal(err)
		}
		return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}}})
	}
	questions := 0
	api := &oneMachine{read: func() { questions++ }}
	r := newRegistry(api, alwaysLeads{}, ca, time.Now, slog.New(slog.DiscardHandler))
	r.know()
	call := func(ctx context.Context) codes.Code {
		_, err := r.unary(ctx, &agentv1.RenewRequest{}, nil, func(context.Context, any) (any, error) {
			return nil, grpcstatus.Error(codes.Unauthenticated, "refused by the server")
		})
		return grpcstatus.Code(err)
	}
	stranger := shows(other, "edge-1")
	for range 10 * renewBurst {
		if code := call(stranger); code != codes.Unauthenticated {
			t.Fatalf("a stranger is answered %s", code)
		}
	}
	if len(r.renewals) > 0 || len(r.lookups) > 0 || questions > 0 || !r.mayRenew("edge-1") {
		t.Errorf("strangers left %d renewals and %d names, and cost %d questions", len(r.renewals), len(r.lookups), questions)
	}
	deleted := shows(ca, "edge-2")
	for range 10 * lookupBurst {
		call(deleted)
	}
	if questions < lookupBurst || questions > lookupBurst+1 {
		t.Errorf("a machine that was deleted cost %d questions", questions)
	}
	for i := range 2 * maxLookups {
		r.mayLookUp(fmt.Sprint("edge-", i))
		r.lookups[fmt.Sprint("edge-", i)] = rate.NewLimiter(rate.Inf, lookupBurst) // a while ago
	}
	if len(r.lookups) > maxLookups+1 {
		t.Errorf("%d names are known", len(r.lookups))
	}
}

// A machine that renews its certificate without a pause, each time for another key, has the API written to no
// more than one that does so now and then.
func TestRenewalsArePaced(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	refused := 0
	for range 3 * renewBurst {
		switch err := a.renew(p.AgentAddress().String()); grpcstatus.Code(err) {
		case codes.OK:
		case codes.ResourceExhausted:
			refused++
		default:
			t.Fatal(err)
		}
	}
	if refused < renewBurst {
		t.Errorf("%d of %d renewals were refused", refused, 3*renewBurst)
	}
	// It is the machine's: another one renews.
	if err := r.joined(p, "edge-2").renew(p.AgentAddress().String()); err != nil {
		t.Error(err)
	}
}

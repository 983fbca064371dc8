package plane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/translate"
)

var (
	vip4 = netip.MustParseAddr("192.0.2.80")
	vip6 = netip.MustParseAddr("2001:db8::80")
)

// pool is one with an address of each family.
func pool() *v1alpha1.AddressPool {
	return &v1alpha1.AddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: "public"},
		Spec:       v1alpha1.AddressPoolSpec{Addresses: []string{vip4.String() + "/32", vip6.String() + "/128"}},
	}
}

func bgpPeer() *v1alpha1.BGPPeer {
	return &v1alpha1.BGPPeer{
		ObjectMeta: metav1.ObjectMeta{Name: "router"},
		Spec:       v1alpha1.BGPPeerSpec{Address: "192.0.2.254", LocalASN: 65001, PeerASN: 65000},
	}
}

// sees has an agent report a session with the router, and what it does about VIPs.
func (a *fakeAgent) sees(s model.Session, vips ...model.VIPObserved) {
	s.Peer, s.Address = "router", netip.MustParseAddr("192.0.2.254")
	a.with(func() { a.sessions, a.vips = []model.Session{s}, vips })
}

// announced is a machine that announces both VIPs.
func announced() []model.VIPObserved {
	return []model.VIPObserved{{Address: vip4, State: model.VIPAnnounced}, {Address: vip6, State: model.VIPAnnounced}}
}

func withheld(why string) []model.VIPObserved {
	return []model.VIPObserved{{Address: vip4, State: model.VIPWithheld, Message: why}, {Address: vip6, State: model.VIPAnnounced}}
}

// establishedIs checks the condition of the peer.
func establishedIs(status metav1.ConditionStatus, reason, message string) func(*v1alpha1.BGPPeer) error {
	return func(p *v1alpha1.BGPPeer) error {
		if err := conditionIs(p.Status.Conditions, v1alpha1.ConditionEstablished, status, reason); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionEstablished); c.Message != message || c.ObservedGeneration != p.Generation {
			return fmt.Errorf("the message is %q, of generation %d", c.Message, c.ObservedGeneration)
		}
		return nil
	}
}

// awaitVIP waits until a plane shows a VIP in a state, with a message.
func (p *running) awaitVIP(address netip.Addr, state, message string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%s is %s: %q", address, state, message), func() error {
		for _, v := range p.Status(context.Background()).VIPs {
			if v.Address == address {
				if v.State != state || v.Message != message {
					return fmt.Errorf("it is %s: %q", v.State, v.Message)
				}
				return nil
			}
		}
		return errors.New("there is none")
	})
}

var up = model.Session{State: model.SessionEstablished, BFD: "up"}

// TestSessionsAndVIPsOfTwoMachines follows a peer and VIPs through what machines say of
// them, fall silent, and come back to a new plane.
func TestSessionsAndVIPsOfTwoMachines(t *testing.T) {
	r := newRig(t)
	r.world()
	r.create(pool(), bgpPeer())
	p := r.plane("one").awaitReady()
	address, router := p.AgentAddress().String(), bgpPeer()
	await(r, router, "nobody is there", establishedIs(metav1.ConditionFalse, v1alpha1.ReasonNoMachines, "no connected machine is selected"))
	p.awaitVIP(vip4, vipWithheld, "its pool selects no Machine of role Edge")

	one, two := r.joined(p, "edge-1"), r.joined(p, "edge-2")
	p.awaitVIP(vip4, vipWithheld, "no machine that the pool selects is connected")
	one.sees(up, announced()...)
	two.sees(model.Session{State: model.SessionConnect, Reason: model.SessionStarting}, withheld("it has just started")...)
	one.connect(address)
	hangUp := two.connect(address)
	await(r, router, "one is about to begin", establishedIs(metav1.ConditionFalse, "Starting", "edge-2: connect"))
	p.awaitVIP(vip4, vipAnnounced, "edge-2: it has just started")
	p.awaitVIP(vip6, vipAnnounced, "")

	two.sees(model.Session{State: model.SessionIdle, Reason: model.SessionWrongAS, Message: "it has another AS"}, withheld("")...)
	await(r, router, "one is refused", establishedIs(metav1.ConditionFalse, "WrongAS", "edge-2: it has another AS"))
	p.awaitVIP(vip4, vipAnnounced, "edge-2: withheld")
	two.sees(model.Session{State: model.SessionIdle, Reason: "no reason, a story", Message: "garbage"})
	await(r, router, "one says what is no reason", establishedIs(metav1.ConditionFalse, "Unknown", "edge-2: garbage"))
	two.with(func() { two.sessions = nil })
	await(r, router, "one has no session", establishedIs(metav1.ConditionFalse, "Starting", "edge-2: it has not begun"))

	two.sees(up, model.VIPObserved{Address: vip4, State: model.VIPAnnounced, Message: "another host claims it"})
	p.awaitVIP(vip4, vipAnnounced, "edge-2: another host claims it")
	two.sees(up, announced()...)
	await(r, router, "both are up", establishedIs(metav1.ConditionTrue, v1alpha1.ReasonEstablished, "sessions with edge-1, edge-2"))
	one.sees(up, withheld("why")...)
	two.sees(up, withheld("why not")...)
	p.awaitVIP(vip4, vipWithheld, "edge-1: why; edge-2: why not")
	eventually(t, "the problems are told", func() error {
		status := p.Status(context.Background())
		if !slices.Contains(status.Problems, model.Problem{
			Severity: model.SeverityError, Subject: "VIP 192.0.2.80", Reason: "NotAnnounced", Message: "no machine announces it: edge-1: why; edge-2: why not",
		}) {
			return fmt.Errorf("they are %+v", status.Problems)
		}
		if len(status.Sessions) != 2 {
			return fmt.Errorf("the sessions are %+v", status.Sessions)
		}
		return nil
	})

	hangUp() // and no report comes any more: what it said does not count
	await(r, router, "one is lost", establishedIs(metav1.ConditionTrue, v1alpha1.ReasonEstablished, "sessions with edge-1"))
	p.awaitVIP(vip4, vipWithheld, "edge-1: why")

	since := meta.FindStatusCondition(router.Status.Conditions, v1alpha1.ConditionEstablished).LastTransitionTime
	p.stop()
	p = r.plane("one", func(c *Config) { c.AgentAddress = address }).awaitReady()
	one.connect(address)
	two.connect(address)
	one.sees(up, announced()...)
	two.sees(up, announced()...)
	await(r, router, "both are back", establishedIs(metav1.ConditionTrue, v1alpha1.ReasonEstablished, "sessions with edge-1, edge-2"))
	if now := meta.FindStatusCondition(router.Status.Conditions, v1alpha1.ConditionEstablished).LastTransitionTime; !now.Equal(&since) {
		t.Errorf("the condition changed at %s, though it was true since %s", now, since)
	}
	p.awaitVIP(vip4, vipAnnounced, "")
}

func TestNetworkProblems(t *testing.T) {
	t.Parallel()
	vip := func(state, message string) model.VIPStatus {
		return model.VIPStatus{Assignment: model.Assignment{Address: vip4}, State: state, Message: message}
	}
	session := func(state model.SessionState, reason model.SessionReason) model.SessionStatus {
		return model.SessionStatus{Machine: "edge-1", Session: model.Session{Peer: "router", State: state, Reason: reason, Message: "says it"}}
	}
	for name, c := range map[string]struct {
		vips     []model.VIPStatus
		sessions []model.SessionStatus
		want     []model.Problem
	}{
		"well":                {[]model.VIPStatus{vip(vipAnnounced, "")}, []model.SessionStatus{session(model.SessionEstablished, model.SessionOK)}, nil},
		"what nothing serves": {[]model.VIPStatus{vip(vipUnserved, "nothing serves Services yet")}, nil, nil},
		"just begun":          {nil, []model.SessionStatus{session(model.SessionConnect, model.SessionStarting)}, nil},
		"nowhere": {[]model.VIPStatus{vip(vipWithheld, "edge-1: why")}, nil, []model.Problem{
			{Severity: model.SeverityError, Subject: "VIP 192.0.2.80", Reason: "NotAnnounced", Message: "no machine announces it: edge-1: why"},
		}},
		"not everywhere": {[]model.VIPStatus{vip(vipAnnounced, "edge-1: why")}, nil, []model.Problem{
			{Severity: model.SeverityWarning, Subject: "VIP 192.0.2.80", Reason: "NotEverywhere", Message: "edge-1: why"},
		}},
		"down": {nil, []model.SessionStatus{session(model.SessionIdle, model.SessionRefused)}, []model.Problem{
			{Severity: model.SeverityError, Subject: "BGPPeer router at edge-1", Reason: "Refused", Message: "says it"},
		}},
		"up with trouble": {nil, []model.SessionStatus{session(model.SessionEstablished, model.SessionUnwanted)}, []model.Problem{
			{Severity: model.SeverityWarning, Subject: "BGPPeer router at edge-1", Reason: "UnwantedPrefixes", Message: "says it"},
		}},
	} {
		if got := networkProblems(c.vips, c.sessions); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: the problems are %+v, want %+v", name, got, c.want)
		}
	}
}

// TestRecordOfAddressesIsNotWrittenOver has another leader give the only address away
// while this one is cut off from the API: afterwards it has the other's owner.
func TestRecordOfAddressesIsNotWrittenOver(t *testing.T) {
	r := newRig(t)
	r.create(gatewayClass())
	public := pool()
	public.Spec.Addresses = []string{vip4.String() + "/32"}
	r.create(public)
	p := r.plane("one").awaitReady()
	await(r, public, "the pool is accepted", func(p *v1alpha1.AddressPool) error {
		return conditionIs(p.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	})
	named := func(name string, port int) *gatewayv1.Gateway {
		g := gateway()
		g.Name, g.Spec.Listeners[0].Port = name, gatewayv1.PortNumber(port)
		return g
	}
	mine, theirs := named("mine", 80), named("theirs", 81)
	r.wire.set(true)
	r.create(mine, theirs)
	if err := reread(r, public); err != nil {
		t.Fatal(err)
	}
	record := v1alpha1.Assignment{Address: vip4.String(), Kind: "Gateway", Namespace: "default", Name: "theirs"}
	public.Status.Assigned, public.Status.Assignments = 1, []v1alpha1.Assignment{record}
	if err := r.client.Status().Update(context.Background(), public); err != nil {
		t.Fatal(err)
	}
	r.wire.set(false)
	await(r, mine, "the other one is told", func(g *gatewayv1.Gateway) error {
		if err := conditionIs(g.Status.Conditions, string(gatewayv1.GatewayConditionProgrammed), metav1.ConditionFalse, string(gatewayv1.GatewayReasonAddressNotAssigned)); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(g.Status.Conditions, string(gatewayv1.GatewayConditionProgrammed)); !strings.Contains(c.Message, "no IPv4 address is free") {
			return fmt.Errorf("the message is %q", c.Message)
		}
		return nil
	})
	eventually(t, "the plane follows the record", func() error {
		vips := p.Status(context.Background()).VIPs
		if len(vips) != 1 || vips[0].Owner.Name != "theirs" {
			return fmt.Errorf("the VIPs are %+v", vips)
		}
		return nil
	})
	if err := reread(r, public); err != nil {
		t.Fatal(err)
	}
	if got := public.Status.Assignments; !slices.Equal(got, []v1alpha1.Assignment{record}) {
		t.Errorf("the record is %+v", got)
	}
}

// TestAddressesAreGivenOnceWhileOthersWrite has somebody touch the pool all the time: no
// record is lost, and no address has two owners.
func TestAddressesAreGivenOnceWhileOthersWrite(t *testing.T) {
	r := newRig(t)
	r.create(gatewayClass())
	public := pool()
	public.Spec.Addresses = []string{"192.0.2.80/29"}
	r.create(public)
	p := r.plane("one").awaitReady()
	touched, stop := make(chan int), make(chan struct{})
	go func() {
		n := 0
		for fresh := pool(); ; n++ {
			select {
			case <-stop:
				touched <- n
				return
			case <-time.After(time.Millisecond):
			}
			if reread(r, fresh) == nil {
				fresh.Annotations = map[string]string{"touched": fmt.Sprint(n)}
				_ = r.client.Update(context.Background(), fresh)
			}
		}
	}()
	for i := range 8 {
		g := gateway()
		g.Name, g.Spec.Listeners[0].Port = fmt.Sprintf("g%d", i), gatewayv1.PortNumber(80+i)
		r.create(g)
	}
	await(r, public, "every Gateway has an address", func(pool *v1alpha1.AddressPool) error {
		owners, addresses := map[string]bool{}, map[string]bool{}
		for _, a := range pool.Status.Assignments {
			owners[a.Name], addresses[a.Address] = true, true
		}
		if len(owners) != 8 || len(addresses) != 8 || len(pool.Status.Assignments) != 8 {
			return fmt.Errorf("the record is %+v", pool.Status.Assignments)
		}
		return nil
	})
	close(stop)
	t.Logf("touched %d times, %g conflicts", <-touched, p.metric("fairlead_plane_status_writes_total", map[string]string{"result": "conflict"}))
}

// TestWhatCannotBeEncodedLeavesTheRest published.
func TestWhatCannotBeEncodedLeavesTheRest(t *testing.T) {
	for range 20 { // in whatever order
		n, update := newNetwork(), southbound.Update{Machine: map[string][]delta.Change{}}
		bad, good := model.Peer{Name: "bad", Password: "\xff"}, model.Peer{Name: "good", Password: "x"}
		err := n.apply(translate.Changes{
			VIPs:  map[model.VIPKey]*model.VIP{{Machine: "edge-1", Address: vip4}: {Address: vip4}},
			Peers: map[model.PeerKey]*model.Peer{{Machine: "edge-1", Peer: "bad"}: &bad, {Machine: "edge-1", Peer: "good"}: &good},
		}, &update)
		var names []string
		for _, c := range update.Machine["edge-1"] {
			names = append(names, c.Name)
		}
		slices.Sort(names)
		if want := []string{"bad", "good", "good"}; err == nil || !slices.Equal(names, want) {
			t.Fatalf("published are %v, want %v; %v", names, want, err)
		}
	}
}

func TestReleases(t *testing.T) {
	owned := func(addresses ...string) (s v1alpha1.AddressPoolStatus) {
		for _, a := range addresses {
			s.Assignments = append(s.Assignments, v1alpha1.Assignment{Address: a, Kind: "Gateway", Namespace: "team", Name: "web"})
		}
		return s
	}
	other := owned("192.0.2.1")
	other.Assignments[0].Name = "other"
	for name, c := range map[string]struct {
		shown, next v1alpha1.AddressPoolStatus
		want        bool
	}{
		"the same":      {owned("192.0.2.1"), owned("192.0.2.1"), false},
		"one more":      {owned("192.0.2.1"), owned("192.0.2.1", "192.0.2.2"), false},
		"one less":      {owned("192.0.2.1", "192.0.2.2"), owned("192.0.2.2"), true},
		"another owner": {owned("192.0.2.1"), other, true},
	} {
		if got := releases(c.shown, c.next); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestABadEditEndsNoSession holds that machines keep the settings of a peer while an edit
// cannot be used, also those of a plane that begins meanwhile.
func TestABadEditEndsNoSession(t *testing.T) {
	r := newRig(t)
	r.world()
	router := bgpPeer()
	r.create(router)
	p := r.plane("one").awaitReady()
	r.joined(p, "edge-1")
	holds := func(p *running, med uint32) {
		t.Helper()
		eventually(t, fmt.Sprintf("the machine is told of the peer with MED %d", med), func() error {
			var peer *model.Peer
			if err := p.ask(t.Context(), func(l *loop) { peer = l.network.peers[model.PeerKey{Machine: "edge-1", Peer: "router"}] }); err != nil {
				return err
			}
			if peer == nil || peer.Path.MED == nil || *peer.Path.MED != med || peer.NeedsPassword {
				return fmt.Errorf("it is %+v", peer)
			}
			return nil
		})
	}
	broken := func(reason string) func(*v1alpha1.BGPPeer) error {
		return func(o *v1alpha1.BGPPeer) error {
			if s := o.Status.InForce; s == nil || s.MED == nil || *s.MED != 2 {
				return fmt.Errorf("in force is %+v", s)
			}
			return conditionIs(o.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionFalse, reason)
		}
	}
	med := int64(1)
	edit(r, router, func(o *v1alpha1.BGPPeer) { o.Spec.MED = &med })
	holds(p, 1)

	med = 2
	edit(r, router, func(o *v1alpha1.BGPPeer) { o.Spec.MED = &med })
	holds(p, 2)
	next := int64(3)
	edit(r, router, func(o *v1alpha1.BGPPeer) { o.Spec.PasswordSecret, o.Spec.MED = "none", &next })
	await(r, router, "the condition says what is wrong", broken(v1alpha1.ReasonPasswordMissing))
	holds(p, 2)
	edit(r, router, func(o *v1alpha1.BGPPeer) {
		o.Spec.Machines = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "rack", Operator: "Like", Values: []string{"r"}}}}
	})
	await(r, router, "the condition says what else is wrong", broken(v1alpha1.ReasonInvalid))
	holds(p, 2)

	p.stop()
	p = r.plane("two").awaitReady()
	holds(p, 2)
	edit(r, router, func(o *v1alpha1.BGPPeer) { o.Spec.Machines, o.Spec.PasswordSecret = nil, "" })
	holds(p, 3)
}

package wire

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

var web = model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.TCP, Port: 80}

// complete fails where a field of a struct has its zero value: a journey would not show
// that it is lost.
func complete(t *testing.T, v any, except ...string) {
	t.Helper()
	r := reflect.ValueOf(v)
fields:
	for i := range r.NumField() {
		name := r.Type().Field(i).Name
		for _, e := range except {
			if e == name {
				continue fields
			}
		}
		if r.Field(i).IsZero() {
			t.Errorf("%s.%s has its zero value; give it another in this test", r.Type(), name)
		}
	}
}

func everyCheck() model.HealthCheck {
	return model.HealthCheck{
		Kind: model.CheckUDP, Port: 81, Path: "/p", Host: "h", Interval: time.Second, Timeout: 2 * time.Second, Jitter: 3, Unhealthy: 4, Healthy: 5,
		Codes: [][2]uint16{{200, 204}, {301, 301}}, Service: "s", Send: []byte{0, 1}, Expect: []byte{2}, ServerName: "n", SendProxyProtocol: true, Presumed: true,
	}
}

func TestFrontendGoesThereAndBack(t *testing.T) {
	check := everyCheck()
	complete(t, check)
	f := model.Frontend{
		FrontendKey: web, Owner: model.Object{Kind: "Service", Namespace: "shop", Name: "web"}, Listener: "https-443", Machines: []string{"a", "b"},
		Mode: model.ModeDSRGeneve, DataPlane: model.DataPlaneXDP, Hash: model.HashSource, Affinity: time.Minute,
		Sources: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}, NewFlows: 7, Drain: 30 * time.Second,
		LocalOnly: true, Panic: 50, Check: &check, QUIC: &model.QUICServer{Offset: 1, Length: 8}, Scheduler: "wlc", MaxFlows: 9,
	}
	complete(t, f, "Targets", "Weights", "Drained")
	for _, f := range []model.Frontend{f, {FrontendKey: model.FrontendKey{VIP: netip.MustParseAddr("2001:db8::1"), Transport: model.UDP, Port: 53}, Owner: model.Object{Kind: "GatewayClass", Name: "l4"}}} {
		got, err := FrontendOf(FrontendName(f.FrontendKey), over(t, Frontend(&f, func(id model.ListenerID) string { return string(id) }), &agentv1.Frontend{}))
		if err != nil || !reflect.DeepEqual(*got, f) {
			t.Errorf("came back as %+v, %v; want %+v", got, err, f)
		}
	}
	for name, bad := range map[string]*agentv1.Frontend{
		"192.0.2.1:80":       {},
		"tcp://192.0.2.1:80": {Sources: []string{"10.0.0.0/8", "everybody"}},
	} {
		if got, err := FrontendOf(name, bad); err == nil {
			t.Errorf("%s of %v is read as %+v", name, bad, got)
		}
	}
}

func TestFrontendBackendsGoThereAndBack(t *testing.T) {
	backends := []model.FrontendBackend{
		{Address: netip.MustParseAddrPort("10.0.0.1:8080"), Machine: "a", Weight: 100, HopWeight: 200, State: model.BackendReady, Health: model.Healthy, Backup: true, Standby: 300},
		{Address: netip.MustParseAddrPort("10.0.0.1:8080"), Machine: "b", HopWeight: 100, State: model.BackendDraining, Health: model.HealthUnknown},
		{Address: netip.MustParseAddrPort("[2001:db8::2]:8080"), State: model.BackendUnready, Health: model.Unhealthy},
	}
	complete(t, backends[0], "State")
	got, err := FrontendBackendsOf("n", over(t, FrontendBackends(backends), &agentv1.FrontendBackends{}))
	if err != nil || !reflect.DeepEqual(got, backends) {
		t.Errorf("came back as %+v, %v; want %+v", got, err, backends)
	}
	odd := FrontendBackends(append(backends[2:], backends[0], backends[0]))
	odd.Backends[1].State, odd.Backends[1].HopWeight = "of the future", 1
	got, err = FrontendBackendsOf("n", odd)
	if err != nil || len(got) != 2 || got[0].State != model.BackendUnready || got[0].HopWeight != got[0].Weight {
		t.Errorf("odd backends came back as %+v, %v", got, err)
	}
	for _, bad := range []*agentv1.FrontendBackend{{Address: []byte{1}, Port: 80}, {Address: []byte{1, 2, 3, 4}, Port: 65536}} {
		if _, err := FrontendBackendsOf("n", &agentv1.FrontendBackends{Backends: []*agentv1.FrontendBackend{bad}}); err == nil {
			t.Errorf("%v is read", bad)
		}
	}
}

func TestNodeAndCheckGoThereAndBack(t *testing.T) {
	n := model.Node{Name: "a", Tunnel4: netip.MustParseAddr("10.0.0.1"), Tunnel6: netip.MustParseAddr("2001:db8::1"), Decaps: true}
	complete(t, n)
	for _, n := range []model.Node{n, {Name: "b"}} {
		if got := NodeOf(n.Name, over(t, Node(n), &agentv1.Node{})); *got != n {
			t.Errorf("came back as %+v, want %+v", got, n)
		}
	}
	c := model.Check{ID: "x", Target: netip.MustParseAddrPort("10.0.0.1:80"), HealthCheck: everyCheck(), Prompt: 6, Namespaces: []string{"a", "b"}}
	got, err := CheckOf(c.ID, over(t, Check(c), &agentv1.Check{}))
	if err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("came back as %+v, %v; want %+v", got, err, c)
	}
	for _, bad := range []*agentv1.Check{{}, {Address: []byte{1, 2, 3, 4}}, {How: &agentv1.HealthCheck{}}} {
		if _, err := CheckOf("x", bad); err == nil {
			t.Errorf("%v is read", bad)
		}
	}
}

func TestReportsOfBalancingGoThereAndBack(t *testing.T) {
	dns := model.FrontendKey{VIP: netip.MustParseAddr("2001:db8::1"), Transport: model.UDP, Port: 53}
	states := []model.FrontendObserved{
		{FrontendKey: web, State: model.FrontendBalanced, Mode: model.ModeNAT, DataPlane: model.DataPlaneIPVS, Message: "why", Available: 3, Parting: 4},
		{FrontendKey: dns, State: model.FrontendRefused},
	}
	complete(t, states[0])
	results := []model.CheckResult{{ID: "x", Health: model.Unhealthy, Since: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Message: "why", First: true}, {ID: "y", Health: model.HealthUnknown}}
	complete(t, results[0])
	backend, six := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("[2001:db8::1]:80")
	ejected := []model.Ejection{{Group: "a/b/80", Backend: backend}, {Group: "a/b/80", Backend: six}, {Group: "c/d/80", Backend: backend}}
	figures := []model.FrontendFigures{{
		FrontendKey: web, Packets: 1, Bytes: 2, NewFlows: 3,
		Backends: []model.BackendFigures{{Address: backend, Machine: "a", Packets: 4, Bytes: 5, NewFlows: 6, Flows: 7, Rows: 8, Tunnelled: 3, Owns: true, Owned: 2}},
	}, {FrontendKey: dns}}
	complete(t, figures[0])
	complete(t, figures[0].Backends[0])
	report := over(t, &agentv1.Report{
		Frontends: FrontendStates(states), Checks: CheckResults(results), Ejected: Ejected(ejected), Figures: &agentv1.Figures{Frontends: FrontendFigures(figures)},
	}, &agentv1.Report{})
	if got := FrontendStatesOf(report.GetFrontends()); !reflect.DeepEqual(got, states) {
		t.Errorf("states came back as %+v, want %+v", got, states)
	}
	if got := CheckResultsOf(report.GetChecks()); !reflect.DeepEqual(got, results) {
		t.Errorf("results came back as %+v, want %+v", got, results)
	}
	if got := EjectedOf(append(report.GetEjected(), &agentv1.Ejected{Group: "e/f/80", Backends: []string{"nobody"}})); !reflect.DeepEqual(got, ejected) {
		t.Errorf("the ejected came back as %+v, want %+v", got, ejected)
	}
	if got := FrontendFiguresOf(report.GetFigures().GetFrontends()); !reflect.DeepEqual(got, figures) {
		t.Errorf("figures came back as %+v, want %+v", got, figures)
	}
	if got := CheckResultsOf([]*agentv1.CheckResult{{Name: "x", Health: "splendid"}}); got[0].Health != model.HealthUnknown {
		t.Errorf("health of the future is %q", got[0].Health)
	}
	if got := FrontendStatesOf([]*agentv1.FrontendState{{Name: "x"}}); got != nil {
		t.Errorf("a state of nothing is %+v", got)
	}
}

func TestFlowsGoThereAndBack(t *testing.T) {
	q := model.FlowQuery{Frontend: web, Client: netip.MustParsePrefix("192.0.2.0/24"), Backend: netip.MustParseAddr("10.0.0.1"), Limit: 5}
	complete(t, q)
	for _, q := range []model.FlowQuery{q, {}} {
		w := over(t, FlowQuery(9, q), &agentv1.FlowQuery{})
		if got, err := FlowQueryOf(w); err != nil || got != q || w.GetAsked() != 9 {
			t.Errorf("came back as %+v of question %d, %v; want %+v", got, w.GetAsked(), err, q)
		}
	}
	for _, bad := range []*agentv1.FlowQuery{{Frontend: "x"}, {Client: "x"}} {
		if got, err := FlowQueryOf(bad); err == nil {
			t.Errorf("%v is read as %+v", bad, got)
		}
	}
	flows := []model.Flow{{
		Frontend: web, Client: netip.MustParseAddrPort("198.51.100.1:4000"), Backend: netip.MustParseAddrPort("10.0.0.1:8080"), Machine: "a",
		State: "established", Idle: 3 * time.Second,
	}}
	complete(t, flows[0])
	w := over(t, Flows(9, flows, true), &agentv1.Flows{})
	w.Flows = append(w.Flows, &agentv1.Flow{})
	if got, truncated := FlowsOf(w); !truncated || w.GetAsked() != 9 || !reflect.DeepEqual(got, flows) {
		t.Errorf("came back as %+v, %v; want %+v", got, truncated, flows)
	}
}

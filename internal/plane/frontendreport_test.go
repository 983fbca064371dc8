package plane

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/catalog"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/translate"
)

func TestFrontendWhoseBackendsAllFailIsAProblem(t *testing.T) {
	f := model.FrontendStatus{State: shownBalanced, Owner: model.Object{Kind: "Service", Namespace: "default", Name: "app"}}
	ill, well, out := model.FrontendBackend{Weight: 100, Health: model.Unhealthy}, model.FrontendBackend{Weight: 100, Health: model.Healthy}, model.FrontendBackend{Health: model.Unhealthy}
	unchecked := model.FrontendBackend{Weight: 100, Health: model.HealthUnknown}
	for name, c := range map[string]struct {
		backends []model.FrontendBackend
		want     bool
	}{
		"all fail":         {[]model.FrontendBackend{ill, ill}, true},
		"one of them out":  {[]model.FrontendBackend{ill, out}, true},
		"one is well":      {[]model.FrontendBackend{ill, well}, false},
		"one is unchecked": {[]model.FrontendBackend{ill, unchecked}, false},
		"all are out":      {[]model.FrontendBackend{out, out}, false},
		"none":             {nil, false},
	} {
		p, is := frontendProblem(f, c.backends)
		if is != c.want {
			t.Errorf("%s: %t, want %t", name, is, c.want)
		}
		if is && (p.Reason != "NoHealthyBackends" || p.Severity != model.SeverityWarning || p.Message != "every backend fails its health check, so all are used (Service default/app)") {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// Where checks take every backend out, the condition says what most of them found.
func TestNoBackendsNamesWhatChecksFound(t *testing.T) {
	h := health.New()
	l := &loop{health: h, catalog: catalog.New(catalog.Config{Health: h}), frontends: newFrontends()}
	h.Members([]string{"edge-1"})
	e := &frontendEntry{frontend: &model.Frontend{FrontendKey: web4}}
	checks := map[netip.AddrPort]health.Wanted{}
	var results []model.CheckResult
	for i, found := range []string{"answered 200, want 418", "connection refused", "answered 200, want 418"} {
		at := netip.MustParseAddrPort(fmt.Sprintf("10.1.0.%d:8080", i+1))
		checks[at] = health.Wanted{Check: model.Check{ID: at.String()}}
		results = append(results, model.CheckResult{ID: at.String(), Health: model.Unhealthy, Message: found})
		e.backends = append(e.backends, model.FrontendBackend{Address: at, Health: model.Unhealthy})
	}
	e.backends = append(e.backends, model.FrontendBackend{Address: netip.MustParseAddrPort("10.1.0.9:8080"), State: model.BackendUnready})
	l.frontends.entries[web4] = e
	h.Use(health.User{Frontend: web4}, checks)
	h.Report("edge-1", results, nil, time.Time{})
	const want = "no backend takes new flows of tcp://192.0.2.80:80: 3 of 4 backends are unhealthy, most often: answered 200, want 418"
	s := status.JudgeService(&translate.Status{Service: &corev1.ServiceStatus{}}, progress.Result{State: progress.Programmed}, l.idleText(l.idle([]model.FrontendKey{web4})), nil)
	c := s.Service.Conditions[0]
	if c.Status != metav1.ConditionFalse || c.Reason != status.ReasonNoBackends || c.Message != want {
		t.Errorf("it says %+v, want %q", c, want)
	}
	if text := l.idleText(nil); text != "" {
		t.Errorf("of none it says %q", text)
	}
}

// With externalTrafficPolicy: Local a machine sends nothing to backends of others: where none of those
// that have the VIP has a backend, nobody announces it.
func TestLocalBackendsElsewhere(t *testing.T) {
	l := bareLoop()
	l.health = health.New()
	l.catalog, l.snapshot = catalog.New(catalog.Config{Health: l.health}), snapshot.New()
	for _, name := range []string{"edge-1", "edge-2", "node-1"} {
		l.has(name, false, false)
	}
	f := &model.Frontend{FrontendKey: web4, Machines: []string{"edge-1", "edge-2"}, LocalOnly: true}
	e := &frontendEntry{frontend: f, backends: []model.FrontendBackend{
		{Address: netip.MustParseAddrPort("10.1.0.1:80"), Machine: "node-1", Weight: 100}, {Address: netip.MustParseAddrPort("10.1.0.2:80"), Weight: 100},
	}}
	l.frontends.entries[web4] = e
	idle := func() string { return l.idleText(l.idle([]model.FrontendKey{web4})) }
	if got := idle(); got != "tcp://192.0.2.80:80: "+noneIsLocal {
		t.Errorf("it says %q", got)
	}
	e.backends[1].Machine = "edge-2"
	if got := idle(); got != "" {
		t.Errorf("with one at edge-2 it says %q", got)
	}
	l.plane.serving.Store(1)
	l.peeked["edge-2"] = southbound.MachineState{}
	if got := idle(); got != "tcp://192.0.2.80:80: "+noneIsLocal {
		t.Errorf("where edge-2 has never reported it says %q", got)
	}
	l.has("edge-2", true, false)
	if got := idle(); got != "tcp://192.0.2.80:80: "+noneIsLocal {
		t.Errorf("with edge-2 cordoned it says %q", got)
	}
	l.machines["edge-2"].Cordoned, e.backends[1].Weight = false, 0
	if got := idle(); got != "tcp://192.0.2.80:80: "+noneIsLocal {
		t.Errorf("with a bad one at edge-2 it says %q", got)
	}
	f.LocalOnly, e.backends = false, e.backends[:1]
	if got := idle(); got != "" {
		t.Errorf("with Cluster it says %q", got)
	}
}

// Of frontends without backends each is said what it lacks.
func TestIdleFrontendsAreToldApart(t *testing.T) {
	h := health.New()
	l := &loop{health: h, catalog: catalog.New(catalog.Config{Health: h}), frontends: newFrontends()}
	other := model.FrontendKey{VIP: web4.VIP, Transport: model.TCP, Port: 81}
	l.frontends.entries[web4] = &frontendEntry{frontend: &model.Frontend{FrontendKey: web4, LocalOnly: true}}
	l.frontends.entries[other] = &frontendEntry{frontend: &model.Frontend{FrontendKey: other}}
	const want = "tcp://192.0.2.80:80: " + noneIsLocal + "; no backend takes new flows of tcp://192.0.2.80:81"
	if got := l.idleText([]model.FrontendKey{web4, other}); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// A machine whose data plane has a frontend, and whose figures are not there, may have any number of
// flows.
func TestUncountedMachines(t *testing.T) {
	l := bareLoop()
	l.health = health.New()
	l.catalog = catalog.New(catalog.Config{Health: l.health})
	e := &frontendEntry{frontend: &model.Frontend{FrontendKey: web4}, backends: []model.FrontendBackend{{Address: netip.MustParseAddrPort("10.1.0.1:80")}}}
	l.frontends.entries[web4] = e
	for name, observed := range map[string]model.FrontendObserved{
		"edge-1": {State: model.FrontendBalanced, DataPlane: model.DataPlaneXDP},
		"edge-2": {State: model.FrontendBalanced, DataPlane: model.DataPlaneXDP},
		"edge-3": {State: model.FrontendPending, DataPlane: model.DataPlaneXDP},
		"edge-4": {State: model.FrontendBalanced, Mode: model.ModeLocal},
		"edge-5": {State: model.FrontendBalanced, DataPlane: model.DataPlaneXDP},
		"node-1": {State: model.FrontendDecap, DataPlane: model.DataPlaneXDP},
	} {
		l.has(name, false, false)
		observed.FrontendKey = web4
		l.peeked[name] = southbound.MachineState{LastReport: time.Now(), Lost: name == "edge-5", Frontends: []model.FrontendObserved{observed}}
		e.at = append(e.at, name)
	}
	slices.Sort(e.at)
	rows, _ := l.backendStatuses("", map[string]southbound.Figures{"edge-1": {Frontends: []model.FrontendFigures{{FrontendKey: web4}}}, "node-1": {}})
	if got := fmt.Sprint(rows[0].Uncounted); got != "[edge-2 node-1]" {
		t.Errorf("%s have not told", got)
	}
}

// Many backends that fail cost little more to word than few.
func TestManyFailingBackendsAreCounted(t *testing.T) {
	worded := func(n int) (string, float64) {
		h := health.New()
		l := &loop{health: h, catalog: catalog.New(catalog.Config{Health: h}), frontends: newFrontends()}
		l.health.Members([]string{"edge-1"})
		e := &frontendEntry{frontend: &model.Frontend{FrontendKey: web4}}
		checks := map[netip.AddrPort]health.Wanted{}
		var results []model.CheckResult
		for i := range n {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 8080)
			checks[at] = health.Wanted{Check: model.Check{ID: at.String()}}
			results = append(results, model.CheckResult{ID: at.String(), Health: model.Unhealthy, Message: "connection refused"})
			e.backends = append(e.backends, model.FrontendBackend{Address: at, Health: model.Unhealthy})
		}
		l.frontends.entries[web4] = e
		l.health.Use(health.User{Frontend: web4}, checks)
		l.health.Report("edge-1", results, nil, time.Time{})
		return l.failing(web4), testing.AllocsPerRun(3, func() { l.failing(web4) })
	}
	_, few := worded(failingAsked)
	text, many := worded(5000)
	if text != ": 5000 of 5000 backends are unhealthy, most often: connection refused" {
		t.Errorf("it says %q", text)
	}
	if many > few+10 {
		t.Errorf("%d backends cost %.0f allocations, %d cost %.0f", failingAsked, few, 5000, many)
	}
}

package plane

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/xds"
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
	l := &loop{catalog: newCatalog(xds.Options{}), frontends: newFrontends()}
	h := l.catalog.health
	h.members([]string{"edge-1"})
	e := &frontendEntry{frontend: &model.Frontend{FrontendKey: web4}}
	checks := map[netip.AddrPort]wantedCheck{}
	var results []model.CheckResult
	for i, found := range []string{"answered 200, want 418", "connection refused", "answered 200, want 418"} {
		at := netip.MustParseAddrPort(fmt.Sprintf("10.1.0.%d:8080", i+1))
		checks[at] = wantedCheck{Check: model.Check{ID: at.String()}}
		results = append(results, model.CheckResult{ID: at.String(), Health: model.Unhealthy, Message: found})
		e.backends = append(e.backends, model.FrontendBackend{Address: at, Health: model.Unhealthy})
	}
	e.backends = append(e.backends, model.FrontendBackend{Address: netip.MustParseAddrPort("10.1.0.9:8080"), State: model.BackendUnready})
	l.frontends.entries[web4] = e
	h.use(checkUser{frontend: web4}, checks)
	h.report("edge-1", results, nil)
	const want = "no backend takes new flows of tcp://192.0.2.80:80: 3 of 4 backends are unhealthy, most often: answered 200, want 418"
	c, _ := serviceServed(verdict{State: verdictProgrammed}, l.idleText(l.idle([]model.FrontendKey{web4})), 1, nil)
	if c.Status != metav1.ConditionFalse || c.Reason != ReasonNoBackends || c.Message != want {
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
	l.catalog, l.snapshot = newCatalog(xds.Options{}), snapshot.New()
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
	l := &loop{catalog: newCatalog(xds.Options{}), frontends: newFrontends()}
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
	l.catalog = newCatalog(xds.Options{})
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

// A check that fails for another reason than before is news to those who show the reason. What it
// quotes is not: an answer may be another one each time.
func TestAnotherCauseIsNews(t *testing.T) {
	at := netip.MustParseAddrPort("10.1.0.1:8080")
	h := newHealth()
	h.members([]string{"edge-1"})
	h.use(checkUser{frontend: web4}, map[netip.AddrPort]wantedCheck{at: {Check: model.Check{ID: "c"}}})
	h.use(checkUser{group: "default/app/80"}, map[netip.AddrPort]wantedCheck{at: {Check: model.Check{ID: "c"}}})
	for _, c := range []struct {
		health  model.Health
		message string
		news    bool
	}{
		{model.Unhealthy, "connection refused", false}, // it is unhealthy now, which is counted
		{model.Unhealthy, "connection refused", false},
		{model.Unhealthy, "answered 404, want 200", true},
		{model.Unhealthy, `answered "a", want "z"`, true},
		{model.Unhealthy, `answered "b", want "z"`, false},
		{model.Healthy, "", false},
	} {
		// Another machine is not asked, whatever it says.
		if heard := h.report("edge-9", []model.CheckResult{{ID: "c", Health: model.Unhealthy, Message: c.message + "!"}}, nil); len(heard) > 0 {
			t.Errorf("%s: a machine that is not to check is heard", c.message)
		}
		reworded := h.report("edge-1", []model.CheckResult{{ID: "c", Health: c.health, Message: c.message}}, nil)
		if reworded[web4] != c.news || len(reworded) > 1 {
			t.Errorf("%s: it is news to %v", c.message, reworded)
		}
	}
}

// Many backends that fail cost little more to word than few.
func TestManyFailingBackendsAreCounted(t *testing.T) {
	worded := func(n int) (string, float64) {
		l := &loop{catalog: newCatalog(xds.Options{}), frontends: newFrontends()}
		l.catalog.health.members([]string{"edge-1"})
		e := &frontendEntry{frontend: &model.Frontend{FrontendKey: web4}}
		checks := map[netip.AddrPort]wantedCheck{}
		var results []model.CheckResult
		for i := range n {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 8080)
			checks[at] = wantedCheck{Check: model.Check{ID: at.String()}}
			results = append(results, model.CheckResult{ID: at.String(), Health: model.Unhealthy, Message: "connection refused"})
			e.backends = append(e.backends, model.FrontendBackend{Address: at, Health: model.Unhealthy})
		}
		l.frontends.entries[web4] = e
		l.catalog.health.use(checkUser{frontend: web4}, checks)
		l.catalog.health.report("edge-1", results, nil)
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

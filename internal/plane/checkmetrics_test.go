package plane

import (
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
)

// TestChecksAreCounted follows a check from nobody's answer to a verdict, to another one by
// what proxies see, and away.
func TestChecksAreCounted(t *testing.T) {
	m, err := newMetrics(prometheus.NewRegistry(), newWriteMetrics(), calm{}, calm{})
	if err != nil {
		t.Fatal(err)
	}
	h := health.New()
	l := &loop{plane: &Plane{metrics: m}, health: h}
	at := netip.MustParseAddrPort("10.0.0.1:80")
	check := model.NewCheck(at, model.HealthCheck{Kind: model.CheckTCP})
	user := health.User{Group: "g"}
	says := func(what string, healthy, unhealthy, unknown, turnedWell, turnedIll, ejected float64) {
		t.Helper()
		h.Judge()
		l.countChecks()
		for _, x := range []struct {
			name      string
			got, want float64
		}{
			{"healthy", testutil.ToFloat64(m.checks.WithLabelValues("healthy")), healthy},
			{"unhealthy", testutil.ToFloat64(m.checks.WithLabelValues("unhealthy")), unhealthy},
			{"unknown", testutil.ToFloat64(m.checks.WithLabelValues("unknown")), unknown},
			{"turned healthy", testutil.ToFloat64(m.verdicts.WithLabelValues("healthy")), turnedWell},
			{"turned unhealthy", testutil.ToFloat64(m.verdicts.WithLabelValues("unhealthy")), turnedIll},
			{"ejected", testutil.ToFloat64(m.ejected), ejected},
		} {
			if x.got != x.want {
				t.Errorf("%s: %s is %g, want %g", what, x.name, x.got, x.want)
			}
		}
	}
	h.Members([]string{"a", "b", "c"})
	h.Use(user, map[netip.AddrPort]health.Wanted{at: {Check: check, Owner: "g"}})
	says("nobody has answered", 0, 0, 1, 0, 0, 0)
	well := []model.CheckResult{{ID: check.ID, Health: model.Healthy}}
	for _, name := range []string{"a", "b", "c"} {
		h.Report(name, well, nil, time.Time{})
	}
	says("all find it well", 1, 0, 0, 1, 0, 0)
	h.Report("a", well, []model.Ejection{{Group: "g/web/80", Backend: at}}, time.Time{})
	says("one proxy sees it fail", 1, 0, 0, 1, 0, 1)
	h.Report("b", well, []model.Ejection{{Group: "g/web/80", Backend: at}}, time.Time{})
	says("two do", 0, 1, 0, 1, 1, 1)
	h.Report("a", well, nil, time.Time{})
	h.Report("b", well, nil, time.Time{})
	says("none does", 1, 0, 0, 2, 1, 0)
	h.Use(user, nil)
	says("nobody checks it", 0, 0, 0, 2, 1, 0)
}

// TestPanicIsSaid counts backends that take flows though they are unhealthy.
func TestPanicIsSaid(t *testing.T) {
	backend := func(weight uint32, is model.Health) model.FrontendBackend {
		return model.FrontendBackend{Weight: weight, Health: is}
	}
	for name, c := range map[string]struct {
		percent uint8
		list    []model.FrontendBackend
		ill, of int
	}{
		"no threshold":     {0, []model.FrontendBackend{backend(100, model.Unhealthy)}, 0, 0},
		"all well":         {50, []model.FrontendBackend{backend(100, model.Healthy), backend(100, model.HealthUnknown)}, 0, 2},
		"some out":         {50, []model.FrontendBackend{backend(100, model.Healthy), backend(0, model.Unhealthy)}, 0, 1},
		"all but one, all": {50, []model.FrontendBackend{backend(100, model.Healthy), backend(100, model.Unhealthy), backend(100, model.Unhealthy)}, 2, 3},
	} {
		e := &frontendEntry{frontend: &model.Frontend{Panic: c.percent}, backends: c.list}
		if ill, of := e.panics(); ill != c.ill || of != c.of {
			t.Errorf("%s: %d of %d, want %d of %d", name, ill, of, c.ill, c.of)
		}
	}
}

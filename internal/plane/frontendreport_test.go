package plane

import (
	"testing"

	"fairlead.dev/internal/model"
)

func TestFrontendWhoseBackendsAllFailIsAProblem(t *testing.T) {
	f := model.FrontendStatus{State: frontendBalanced, Owner: model.Object{Kind: "Service", Namespace: "default", Name: "app"}}
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

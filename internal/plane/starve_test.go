package plane

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// batches is how many batches of changes the plane has translated.
func (p *running) batches() uint64 {
	p.t.Helper()
	var m dto.Metric
	if err := p.metrics.translate.Write(&m); err != nil {
		p.t.Fatal(err)
	}
	return m.GetHistogram().GetSampleCount()
}

// writeWithoutPause changes large IngressRoutes until the test ends, faster than a plane can
// translate them: a batch of changes always waits.
func (r *rig) writeWithoutPause(writers int) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	r.t.Cleanup(func() {
		cancel()
		all.Wait()
	})
	r.create(service("large"))
	for i := range writers {
		o := &contourv1beta1.IngressRoute{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("large-%d", i)},
			Spec:       contourv1beta1.IngressRouteSpec{VirtualHost: &contourv1beta1.VirtualHost{Fqdn: fmt.Sprintf("large-%d.example", i)}},
		}
		for j := range 2000 {
			o.Spec.Routes = append(o.Spec.Routes, contourv1beta1.Route{
				Match: fmt.Sprintf("/%04d", j), Services: []contourv1beta1.Service{{Name: "large", Port: 80}},
			})
		}
		r.create(o)
		all.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				o.Spec.Routes[round%len(o.Spec.Routes)].PrefixRewrite = fmt.Sprintf("/%d", round)
				if err := r.client.Update(ctx, o); err != nil && ctx.Err() == nil {
					_ = r.client.Get(ctx, client.ObjectKeyFromObject(o), o) // its status was written between
				}
			}
		})
	}
}

// TestWritersStarveNothing holds that a verdict about a backend reaches the machines, and a
// probe its answer, between batches of changes while these never end.
func TestWritersStarveNothing(t *testing.T) {
	r := newRig(t)
	r.create(checkedApp()...)
	// What the writers do to the API is not looked at here: no lease ends, and no machine is lost.
	p := r.plane("one", func(c *Config) {
		c.TTL, c.Lease = time.Minute, LeaseTimes{Duration: 2 * time.Minute, Renew: time.Minute, Retry: time.Second}
	}).awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	bad := netip.MustParseAddr("10.1.0.1")
	says := func(h model.Health) {
		a.with(func() {
			a.results = nil
			for id := range a.held[agentv1.CheckType] {
				a.results = append(a.results, model.CheckResult{ID: id, Health: h})
			}
		})
	}
	a.await("is to check two backends", func() error {
		if n := len(a.held[agentv1.CheckType]); n != 2 {
			return fmt.Errorf("it checks %d", n)
		}
		return nil
	})
	says(model.Healthy)
	a.await("hears that they are healthy", a.holdsHealth(bad, corev3.HealthStatus_HEALTHY))
	r.writeWithoutPause(2)
	for _, h := range []model.Health{model.Unhealthy, model.Healthy, model.Unhealthy} {
		busy := p.batches()
		eventually(t, "the plane is busy", func() error {
			if n := p.batches() - busy; n < 5 {
				return fmt.Errorf("%d batches", n)
			}
			return nil
		})
		before, began := p.batches(), time.Now()
		says(h)
		a.await("hears of it", a.holdsHealth(bad, map[model.Health]corev3.HealthStatus{
			model.Healthy: corev3.HealthStatus_HEALTHY, model.Unhealthy: corev3.HealthStatus_UNHEALTHY,
		}[h]))
		heard, took := p.batches()-before, time.Since(began)
		before, began = p.batches(), time.Now()
		if err := p.Healthz(t.Context()); err != nil {
			t.Error(err)
		}
		probed := p.batches() - before
		t.Logf("heard after %d batches, %s; a probe answered after %d, %s", heard, took, probed, time.Since(began))
		// Some more come while the agent is told; a loop that starves takes hundreds.
		if heard > 20 || probed > 20 {
			t.Errorf("%s was heard after %d batches of changes, a probe answered after %d", h, heard, probed)
		}
	}
}

package plane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestWeightsAndBackupsOfFrontends holds the whole way of annotations in a plane: flows follow weights in the
// lookup table, a backup has all of them while the checks of every other backend fail, and gives them back.
func TestWeightsAndBackupsOfFrontends(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	edge := r.joined(p, "edge-1")
	poolOf(r, "edge-1")
	endpoints := slice("app", "10.1.0.1", "10.1.0.2", "10.1.0.9")
	endpoints.Annotations = map[string]string{v1alpha1.AnnotationWeights: "10.1.0.2=3,10.1.0.9=2", v1alpha1.AnnotationBackups: "10.1.0.9"}
	r.create(balanced("app"), endpoints, &v1alpha1.LoadBalancerPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"},
		Spec: v1alpha1.LoadBalancerPolicySpec{
			TargetRefs: []gatewayv1.LocalPolicyTargetReferenceWithSectionName{{
				LocalPolicyTargetReference: gatewayv1.LocalPolicyTargetReference{Kind: "Service", Name: "app"},
			}},
			HealthCheck: &v1alpha1.HealthCheck{Type: v1alpha1.CheckTCP},
		},
	})
	edge.connect(p.AgentAddress().String())
	edge.await("is to check three backends", func() error {
		if n := len(edge.held[agentv1.CheckType]); n != 3 {
			return fmt.Errorf("it checks %d", n)
		}
		return nil
	})
	says := func(ill ...string) {
		edge.with(func() {
			edge.results = nil
			for id := range edge.held[agentv1.CheckType] {
				h := model.Healthy
				if slices.ContainsFunc(ill, func(a string) bool { return strings.HasPrefix(id, a+":") }) {
					h = model.Unhealthy
				}
				edge.results = append(edge.results, model.CheckResult{ID: id, Health: h, Message: "refused"})
			}
		})
	}
	// parts are the parts of the lookup table by backend, as many clients find them.
	parts := func() (string, error) {
		found := map[netip.Addr]float64{}
		request := explain.FlowRequest{Frontend: web4}
		world, err := question(t.Context(), p.Plane, func(l *loop) *explain.FlowWorld {
			w := l.flowWorld(request)
			return &w
		})
		if err != nil {
			return "", err
		}
		for port := range uint16(64) {
			request.Client = netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), 40_000+port)
			e := explain.Flow(request, *world)
			if e.Backend == nil {
				return "", errors.New(e.Answer)
			}
			found[e.Backend.Address.Addr()] = e.Backend.Percent
		}
		var words []string
		for _, a := range slices.SortedFunc(maps.Keys(found), netip.Addr.Compare) {
			words = append(words, fmt.Sprintf("%s %.0f%%", a, found[a]))
		}
		return strings.Join(words, ", "), nil
	}
	for _, step := range []struct {
		ill   []string
		told  string
		parts string
	}{
		{nil, "10.1.0.1=100/100 ready, 10.1.0.2=300/300 ready, 10.1.0.9=0/0 draining", "10.1.0.1 25%, 10.1.0.2 75%"},
		{[]string{"10.1.0.2"}, "10.1.0.1=100/100 ready, 10.1.0.2=0/300 draining, 10.1.0.9=0/0 draining", "10.1.0.1 100%"},
		{[]string{"10.1.0.1", "10.1.0.2"}, "10.1.0.1=0/100 draining, 10.1.0.2=0/300 draining, 10.1.0.9=200/200 ready", "10.1.0.9 100%"},
		{[]string{"10.1.0.1"}, "10.1.0.1=0/100 draining, 10.1.0.2=300/300 ready, 10.1.0.9=0/200 draining", "10.1.0.2 100%"},
	} {
		says(step.ill...)
		edge.awaitBackends(web4, step.told)
		eventually(t, "flows go to "+step.parts, func() error {
			got, err := parts()
			if err == nil && got != step.parts {
				err = fmt.Errorf("they go to %s", got)
			}
			return err
		})
	}
	rows, err := p.Backends(context.Background(), "default/app")
	if err != nil || len(rows) != 3 || !rows[2].Backup || rows[2].Standby != 200 || rows[2].Percent != 0 || rows[1].Backup || rows[1].Percent != 100 {
		t.Errorf("%+v, %v", rows, err)
	}
	eventually(t, "it is counted", func() error {
		for state, want := range map[string]float64{"available": 1, "standby": 1, "unavailable": 1} {
			if n := p.metric("fairlead_plane_frontend_backends", map[string]string{"state": state}); n != want {
				return fmt.Errorf("%g backends are %s", n, state)
			}
		}
		return nil
	})
}

package plane

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/catalog"
	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
)

// An explanation follows what is published: backends that come, a route that goes and a
// mistake that is made are in the next one.
func TestExplain(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	a.await("has the route", a.holdsHost("app.example"))

	request, err := explain.NewRequest(explain.Options{URL: "http://App.Example/x"})
	if err != nil {
		t.Fatal(err)
	}
	explained := func(check func(explain.Explanation) error) func() error {
		return func() error {
			e, err := p.Explain(t.Context(), request)
			if err != nil {
				return err
			}
			if err := check(e); err != nil {
				return fmt.Errorf("%w: %+v", err, e)
			}
			return nil
		}
	}
	eventually(t, "the request is explained", explained(func(e explain.Explanation) error {
		if e.Route == nil || e.Route.By.String() != "HTTPRoute default/app spec.rules[0].matches[0]" || e.Answer.Text != "a backend answers" {
			return fmt.Errorf("the route is %+v", e.Route)
		}
		if len(e.Listener.By) != 1 || e.Listener.By[0].String() != "Gateway default/edge spec.listeners[0]" || !slices.Equal(e.Listener.Machines, []string{"edge-1"}) {
			return fmt.Errorf("the listener is %+v", e.Listener)
		}
		if len(e.Host.By) != 1 || e.Host.By[0].String() != "HTTPRoute default/app spec.hostnames[0]" {
			return fmt.Errorf("the host is %+v", e.Host)
		}
		if g := e.Groups; len(g) != 1 || g[0].Ready != 2 || g[0].Backends[0].Percent != 50 || len(g[0].By) != 2 || g[0].By[1].String() != "EndpointSlice default/app-1 endpoints" {
			return fmt.Errorf("the groups are %+v", g)
		}
		if edges := e.Network.Edges; len(edges) != 1 || edges[0].Machine != "edge-1" || len(edges[0].Through) != 2 {
			return fmt.Errorf("the edges are %+v", edges)
		}
		return nil
	}))

	edit(r, slice("app"), func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
	eventually(t, "nobody is behind the route", explained(func(e explain.Explanation) error {
		if o := e.Answer.Outcomes; len(o) != 1 || o[0].Status != 503 || o[0].Percent != 100 {
			return fmt.Errorf("the answer is %+v", e.Answer)
		}
		if !slices.ContainsFunc(e.Problems, problemIs("Service default/app", catalog.ReasonNoBackends)) {
			return fmt.Errorf("the problems are %+v", e.Problems)
		}
		return nil
	}))

	// A route that is refused has no host any more; who names it says why.
	edit(r, httpRoute("app", "", ""), func(h *gatewayv1.HTTPRoute) {
		h.Spec.Rules[0].Matches = []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: ptr(gatewayv1.PathMatchRegularExpression), Value: ptr("/(")}}}
	})
	eventually(t, "the refused route is a problem", explained(func(e explain.Explanation) error {
		if o := e.Answer.Outcomes; len(o) != 1 || o[0].Status != 404 || e.Host.VirtualHost != "" {
			return fmt.Errorf("the answer is %+v", e.Answer)
		}
		if !slices.ContainsFunc(e.Problems, problemIs("HTTPRoute default/app", string(gatewayv1.RouteReasonUnsupportedValue))) {
			return fmt.Errorf("the problems are %+v", e.Problems)
		}
		return nil
	}))
}

// A plane that has read nothing must not say that nothing is there.
func TestExplainBeforeAnythingIsKnown(t *testing.T) {
	r := newRig(t)
	r.wire.set(true)
	p := r.plane("one")
	if _, err := p.Explain(t.Context(), explain.Request{}); err == nil || !strings.Contains(err.Error(), "does not run yet") {
		t.Errorf("%v", err)
	}
	r.wire.set(false)
}

func problemIs(subject, reason string) func(model.Problem) bool {
	return func(p model.Problem) bool { return p.Subject == subject && p.Reason == reason }
}

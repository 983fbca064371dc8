package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
)

// sigmas is how far a share may be from its weight: a right one is further away once
// in two million times.
const sigmas = 5

// TestExamplesServeInTheirWeights applies the examples as they are and counts who
// answers, over both families and both edges.
func TestExamplesServeInTheirWeights(t *testing.T) {
	s := shared(t)
	s.awaitIngress(t, "IngressRoute default/root-news-yahoo-co-jp", "valid", "valid IngressRoute")
	s.awaitIngress(t, "IngressRoute news-team/news-yahoo-co-jp", "valid", "valid IngressRoute")
	s.awaitIngress(t, "IngressRoute team01/team01-app", "valid", "valid IngressRoute")
	s.awaitConditions(t, "GatewayClass fairlead", condition{"Accepted", "True", "Accepted", "…"})
	s.awaitConditions(t, "Gateway default/edge",
		condition{"Accepted", "True", "Accepted", "…"},
		condition{"Programmed", "True", "Programmed", "every machine concerned runs it"})
	s.awaitConditions(t, "HTTPRoute news-team/news",
		condition{"Accepted", "True", "Accepted", "…"}, condition{"ResolvedRefs", "True", "ResolvedRefs", "…"}, programmed)
	var want []string
	for _, m := range s.Lab.Machines(lab.RoleEdge) {
		want = append(want, m.Addr4().String(), m.Addr6().String())
	}
	s.await(t, "the Gateway has the edges' addresses", func(ctx context.Context) error {
		o, err := s.get(ctx, "Gateway default/edge")
		if err != nil {
			return err
		}
		var shown []string
		for _, raw := range o.Status.Addresses {
			var a gatewayv1.GatewayStatusAddress
			if err := json.Unmarshal(raw, &a); err != nil {
				return err
			}
			shown = append(shown, a.Value)
		}
		if !same(shown, want) {
			return fmt.Errorf("they are %v, want %v", shown, want)
		}
		return nil
	})

	for host, weights := range map[string]map[string]float64{
		"news.yahoo.co.jp":       {"os1": 60, "k8s1": 40},
		newsHost:                 {"os1": 60, "k8s1": 40},
		"team01-app.example.com": {"k8s1": 75, "os1": 25},
	} {
		clusters := map[string]int{}
		for _, r := range s.send(t, host, 500) {
			if r.Failed > 0 {
				t.Errorf("%s: %s", host, r.Why())
			}
			for backend, n := range r.Answers {
				clusters[backend[:strings.LastIndex(backend, "-")]] += n
			}
		}
		if wrong := load.Wrong(load.Split(clusters, weights, sigmas)); wrong != "" {
			t.Errorf("%s: %s", host, wrong)
		}
		t.Logf("%s: %v", host, clusters)
	}
}

// send sends n requests to each edge over each family and returns the reports.
func (s *site) send(t *testing.T, host string, n int) []load.Report {
	t.Helper()
	var targets []netip.AddrPort
	for _, m := range s.Lab.Machines(lab.RoleEdge) {
		targets = append(targets, netip.AddrPortFrom(m.Addr4(), 80), netip.AddrPortFrom(m.Addr6(), 80))
	}
	reports, errs := make([]load.Report, len(targets)), make([]error, len(targets))
	var sending sync.WaitGroup
	for i, target := range targets {
		sending.Go(func() {
			reports[i], errs[i] = load.Do(t.Context(), load.Config{
				Address: target.String(), Host: host, Dial: s.Lab.Machine(client.Name).Dial, Requests: n, Concurrency: 2, Now: s.Now,
			})
		})
	}
	sending.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return reports
}

// TestHealthCheckTakesBackendsOutAndBack switches a backend's health page, once with
// the check beside the services and once in a service.
func TestHealthCheckTakesBackendsOutAndBack(t *testing.T) {
	const check = "healthCheck: {path: /status.html, intervalSeconds: 1, unhealthyThresholdCount: 2, healthyThresholdCount: 1}"
	s := shared(t)
	s.namespace(t, "health")
	s.apply(t, service("health", "app", s.cluster("os1")...),
		ingressRoute("health", "beside", "beside.example.com", "{match: /, services: [{name: app, port: 80}], "+check+"}"),
		ingressRoute("health", "within", "within.example.com", "{match: /, services: [{name: app, port: 80, "+check+"}]}"))
	hosts := []string{"beside.example.com", "within.example.com"}
	var flows []*traffic
	for _, host := range hosts {
		s.awaitIngress(t, ref("IngressRoute health/"+strings.TrimSuffix(host, ".example.com")), "valid", "valid IngressRoute")
		s.awaitAnswer(t, request{host: host}, 200, "os1-a")
		s.awaitAnswer(t, request{host: host}, 200, "os1-b")
		flows = append(flows, s.startTraffic(t, host))
	}
	set := func(code int) {
		t.Helper()
		url := fmt.Sprintf("http://%s/control/status?code=%d", s.backends["os1-b"].Address, code)
		resp, err := s.Lab.Machine(client.Name).HTTPClient().Post(url, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", url, resp.Status)
		}
	}
	// Backends take turns, so the latest answers tell.
	until := func(what string, ok func(of []string) bool) {
		t.Helper()
		for _, f := range flows {
			for _, one := range f.flows {
				s.await(t, what+" over "+one.edge, func(context.Context) error {
					if got := one.latest(); !ok(got) {
						return fmt.Errorf("the latest answers are of %v", got)
					}
					return nil
				})
			}
		}
	}
	set(http.StatusServiceUnavailable)
	until("os1-b to get no more requests", func(of []string) bool { return !slices.Contains(of, "os1-b") })
	set(http.StatusOK)
	until("os1-b to get requests again", func(of []string) bool { return slices.Contains(of, "os1-b") })
	for _, f := range flows {
		f.none(t)
	}
}

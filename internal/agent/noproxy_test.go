package agent

import (
	"fmt"
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
)

// An edge without a proxy: routes are no problem, and what routes once were is not kept.
func TestRoutesAreNothingToAnEdgeWithoutAProxy(t *testing.T) {
	t.Parallel()
	g := NewGate()
	g.Unproxied()
	now := time.Unix(1_000_000, 0)
	revision := uint64(0)
	wants := func(changes ...delta.Change) {
		t.Helper()
		if err := g.Target(changes); err != nil {
			t.Fatal(err)
		}
		revision++
		g.Checkpoint(delta.Revision{Epoch: 1, Number: revision})
		for {
			step := g.Step(now)
			if len(step.Changes) == 0 {
				return
			}
			g.Confirm(step.Changes, func(delta.Type, string) delta.State { return delta.State{} }) // nobody follows
		}
	}
	wants(testCluster(t, "c1", "s1", 1), testEndpoints(t, "s1", 1), testScope(t, "scope", "routes"),
		testRoutes(t, "routes", host{name: "h", clusters: []string{"c1"}}), testListener(t, "http", "1"))
	for range 3 {
		now = now.Add(2 * waitGrace)
		wants()
	}
	if p := g.Problems(); len(p) > 0 {
		t.Errorf("it reports %v", p)
	}
	for i := range 1000 { // a tenant renames one host
		wants(testRoutes(t, "routes", host{name: fmt.Sprint("h", i), clusters: []string{"c1"}}))
	}
	if s := g.shards["routes"]; s != nil && len(s.behind) > 2 {
		t.Errorf("it remembers %d virtual hosts, and there is one", len(s.behind))
	}
}

// The same with more hosts than a report has room for: the revision is said all the same.
func TestManyRoutesHideNoRevisionOfAnEdgeWithoutAProxy(t *testing.T) {
	t.Parallel()
	g := NewGate()
	g.Unproxied()
	now := time.Unix(1_000_000, 0)
	var hosts []host
	for i := range maxProblems + 1 {
		hosts = append(hosts, host{name: fmt.Sprint("h", i), clusters: []string{"c1"}})
	}
	if err := g.Target([]delta.Change{testCluster(t, "c1", "s1", 1), testEndpoints(t, "s1", 1), testRoutes(t, "routes", hosts...)}); err != nil {
		t.Fatal(err)
	}
	g.Checkpoint(delta.Revision{Epoch: 1, Number: 1})
	for range 4 {
		step := g.Step(now)
		g.Confirm(step.Changes, func(delta.Type, string) delta.State { return delta.State{} })
		now = now.Add(waitGrace)
	}
	s := &state{gate: g}
	if a := s.applied(); a.GetRevision() != 1 {
		t.Errorf("it claims revision %d, and lists %d problems", a.GetRevision(), len(a.GetProblems()))
	}
}

// A VIP that leads to listeners has their frontends, too, as the plane publishes it: it delays
// nothing where there is no proxy.
func TestListenersDelayNothingWhereThereIsNoProxy(t *testing.T) {
	t.Parallel()
	a := newBalancing(t, &fakePlane{kind: model.DataPlaneXDP})
	a.becomes(proxyNone, 0)
	http := model.FrontendKey{VIP: two, Transport: model.TCP, Port: 80}
	f := frontendOn(http, "edge-1", "edge-2")
	f.Listener = "http-80"
	proxied, balanced := bgpVIP(two, "http-80"), bgpVIP(one)
	proxied.Frontends, balanced.Frontends = []model.FrontendKey{http}, []model.FrontendKey{web}
	a.gives(vipChange(t, proxied), vipChange(t, balanced))
	a.gives(frontendChanges(t, f, proxies(http, "edge-2")...)...)
	a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100))...)
	a.whole()
	a.balancer.apply()
	a.says(one.String())
}

// A mixed VIP waits until the kernel balances its listeners' frontends here, too, though no proxy
// here will serve them.
func TestMixedVIPsWaitForTheirDataPlaneWhereThereIsNoProxy(t *testing.T) {
	t.Parallel()
	a := newBalancing(t, &fakePlane{kind: model.DataPlaneXDP})
	a.becomes(proxyNone, 0)
	http := model.FrontendKey{VIP: one, Transport: model.TCP, Port: 443}
	f := frontendOn(http, "edge-2")
	f.Listener = "http-443"
	a.gives(frontendChanges(t, frontendOn(mail, "edge-1"), ready(pod, "", 100))...)
	a.gives(frontendChanges(t, f, proxies(http, "edge-2")...)...)
	a.whole()
	a.balancer.apply()
	f.Machines = []string{"edge-1", "edge-2"}
	a.gives(frontendChanges(t, f, proxies(http, "edge-2")...)...)
	v := bgpVIP(one, "http-443")
	v.Frontends = []model.FrontendKey{mail, http}
	a.gives(vipChange(t, v))
	a.says("-")
	a.told(one, model.VIPWithheld, http.String()+" is not balanced here yet")
	a.balancer.apply()
	a.says(one.String())
	a.carries(one)
	a.told(one, model.VIPAnnounced, unproxied)
}

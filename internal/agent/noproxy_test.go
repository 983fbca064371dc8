package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
)

// An edge without a proxy: routes are no problem, and what routes once were is not kept.
func TestRoutesAreNothingToAnEdgeWithoutAProxy(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	a := idle(t, Config{Proxy: NoProxy{Edge: true}, Now: func() time.Time { return now }})
	var hosts []gatetest.Host
	for i := range maxProblems + 1 { // more than a report has room for
		hosts = append(hosts, gatetest.Host{Name: fmt.Sprint("h", i), Clusters: []string{"c1"}})
	}
	for _, c := range []delta.Change{
		gatetest.Cluster(t, "c1", "s1", 1), gatetest.Endpoints(t, "s1", 1), gatetest.Scope(t, "scope", "routes"),
		gatetest.Routes(t, "routes", hosts...), gatetest.Listener(t, "http", "1"),
	} {
		if err := a.desired.receive(responseOf(t, at(1, 1), c)); err != nil {
			t.Error(err)
		}
	}
	if err := a.desired.receive(responseOf(t, at(1, 1), checkpointAt(t, at(1, 1)))); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	a.relay.tick()
	if a := a.relay.applied(); a.GetRevision() != 1 || len(a.GetProblems()) > 0 {
		t.Errorf("it claims revision %d, and lists %d problems", a.GetRevision(), len(a.GetProblems()))
	}
	if _, there := a.relay.feed.Get(typeCluster, "c1"); there {
		t.Error("the cluster is kept")
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

// An edge has an Envoy, then none for years, and then one again while no plane is there: what the
// first Envoy served is gone from disk and memory, and the second waits for a plane. What data
// planes balance goes on.
func TestEnvoyComesBack(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	xdp := &fakePlane{kind: model.DataPlaneXDP}
	runs := func(proxy Proxy) (a *Agent, stop func()) {
		xdp = &fakePlane{kind: model.DataPlaneXDP}
		m.config.Proxy, m.config.Balancing.Planes = proxy, []BalancingPlane{{xdp.kind, xdp}}
		return m.start()
	}
	balances := func() bool { return xdp.has().Frontends[web] != nil }
	held := func(text string) (in []string) {
		for _, path := range []string{filepath.Join(m.config.DataDir, stateFile), filepath.Join(m.config.RunDir, "secrets")} {
			if data, err := os.ReadFile(path); err != nil {
				t.Error(err)
			} else if bytes.Contains(data, []byte(text)) {
				in = append(in, path)
			}
		}
		return in
	}
	served := []delta.Change{
		gatetest.Cluster(t, "c1", "s1", 1), gatetest.Endpoints(t, "s1", 1), gatetest.Certificate(t, "key", "old-key"),
		gatetest.Routes(t, "routes", gatetest.Host{Name: "gone.example", Clusters: []string{"c1"}}), gatetest.Scope(t, "scope", "routes"), gatetest.Listener(t, "http", "1"),
	}
	tells := func(c *call, r delta.Revision, changes ...delta.Change) {
		for _, change := range append(changes, checkpointAt(t, r)) {
			c.must(t, responseOf(t, r, change))
		}
	}
	_, stop := runs(steadyProxy{})
	c, _ := p.call()
	tells(c, at(1, 1), append(served, frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100))...)...)
	stop()
	if len(held("gone.example"))+len(held("old-key")) != 2 {
		t.Fatalf("it does not remember what it served: %v, %v", held("gone.example"), held("old-key"))
	}

	a, stop := runs(NoProxy{Edge: true})
	eventually(t, "it goes on as it was remembered", func() bool { return balances() && a.Readyz(t.Context()) == nil })
	c, asked := p.call()
	tells(c, at(1, 5000))
	eventually(t, "the revision is applied", func() bool { return a.Status().Applied == "1/5000" })
	stop()
	if files := append(held("gone.example"), held("old-key")...); len(files) > 0 {
		t.Errorf("without a proxy, what one served is still in %v", files)
	}
	if r := asked[typeFrontend].GetInitialResourceVersions(); len(r) != 1 {
		t.Errorf("it remembered the frontends %v", r)
	}
	p.stop()

	a, stop = runs(steadyProxy{})
	eventually(t, "what data planes balance goes on", balances)
	if err := a.Readyz(t.Context()); err == nil || !strings.Contains(err.Error(), "no state for the proxy yet") {
		t.Errorf("it is ready, though nothing is known of what its proxy should serve: %v", err)
	}
	if s := a.Status(); s.Applied != (delta.Revision{}).String() || s.Accepted != at(1, 5000).String() || s.Withheld == "" {
		t.Errorf("applied %s, accepted %s, withheld %q", s.Applied, s.Accepted, s.Withheld)
	}
	a.relay.mu.Lock()
	if _, given := a.relay.feed.Get(typeCluster, "c1"); given || a.relay.offers() {
		t.Errorf("Envoy is given a state (%v), with the cluster of long ago (%v)", a.relay.offers(), given)
	}
	a.relay.mu.Unlock()
	stop()

	p = newPlane(t, p.authority)
	m.config.Planes = []string{p.address}
	a, stop = runs(steadyProxy{})
	c, asked = p.call()
	for _, typ := range gate.Types {
		if has := asked[typ].GetInitialResourceVersions(); len(has) > 0 {
			t.Errorf("it tells the plane that it has %v", has)
		}
	}
	c.must(t, responseOf(t, at(1, 5001), gatetest.Cluster(t, "c1", "s1", 2)))
	if a.relay.offers() {
		t.Error("Envoy is given half a state")
	}
	tells(c, at(1, 5001), gatetest.Endpoints(t, "s1", 2))
	e := dialRelay(t, m)
	e.ask(typeCluster)
	e.wants(gatetest.Cluster(t, "c1", "s1", 2))
	stop()
	p.stop()

	a, _ = runs(steadyProxy{})
	eventually(t, "with an Envoy's state remembered it needs no plane", func() bool { return a.Readyz(t.Context()) == nil && balances() })
	e = dialRelay(t, m)
	e.ask(typeCluster)
	e.wants(gatetest.Cluster(t, "c1", "s1", 2))
}

// While the disk is full the file is what it was, a whole state with a proxy, and nothing is
// written behind it.
func TestAFullDiskMixesNoStateWithAndWithoutAProxy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), stateFile)
	m, _ := recall(t, path)
	write(t, m, memoryBatch{revision: at(1, 1), target: []delta.Change{gatetest.Cluster(t, "c1", "s1", 1), checkpointAt(t, at(1, 1))}})
	m, before := recall(t, path)
	m.unproxy()
	full(t, path+".new")
	later := checkpointAt(t, at(1, 2))
	later.Resource = withoutProxy(later.Resource)
	if err := m.write([]memoryBatch{{revision: at(1, 2), target: []delta.Change{later}}}); err == nil {
		t.Fatal("the disk is not full")
	}
	if _, r := recall(t, path); r.text() != before.text() {
		t.Errorf("the disk has\n%s\nwant\n%s", r.text(), before.text())
	}
	write(t, m) // there is room again
	if _, r := recall(t, path); r.revision != at(1, 2) || len(r.target) != 1 || r.target[0].Resource.Version != unproxiedVersion {
		t.Errorf("the disk has\n%s", r.text())
	}
}

// A machine that becomes one with backends only waits for nothing: it has no Envoy either.
func TestBackendGoesOnAfterAnEdgeWithoutAProxy(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	m.config.Proxy = NoProxy{Edge: true}
	_, stop := m.start()
	c, _ := p.call()
	c.must(t, responseOf(t, at(1, 1), checkpointAt(t, at(1, 1))))
	stop()
	p.stop()
	m.config.Proxy = NoProxy{}
	a, _ := m.start()
	eventually(t, "it is ready", func() bool { return a.Readyz(t.Context()) == nil && a.Status().Applied == "1/1" })
}

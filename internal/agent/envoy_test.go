package agent

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // in the bootstrap
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestEnvoyServesThroughChanges: clusters, endpoints, routes and the listener change
// under load, and no request fails.
func TestEnvoyServesThroughChanges(t *testing.T) {
	b := newBench(t)
	one, two := b.backend("one"), b.backend("two")
	config := &agentv1.MachineConfig{DrainTime: durationpb.New(50 * time.Millisecond)}
	b.plane(
		delta.Change{Type: typeMachine, Name: "edge-1", Resource: gatetest.Pack(t, "edge-1", config)},
		b.cluster("c0", "s"), b.endpoints("s", one), b.listener(""),
		gatetest.Routes(t, routesName, gatetest.Host{Name: "a", Clusters: []string{"c0"}}, gatetest.Host{Name: "b", Clusters: []string{"c0"}}),
	)
	e := b.startEnvoy()
	b.applies()
	stop := b.load("a", "b")
	for i := 1; i <= 12; i++ {
		name := fmt.Sprint("c", i)
		var options []func(*clusterv3.Cluster)
		if i%4 == 0 {
			options = append(options, checked(200*time.Millisecond))
		}
		// The route is said before the cluster is known, the old cluster goes with it, and
		// both are over the endpoints of the one before.
		b.plane(
			gatetest.Routes(t, routesName, gatetest.Host{Name: "a", Clusters: []string{name}, Salt: i}, gatetest.Host{Name: "b", Clusters: []string{"c0"}, Salt: i / 3}),
			gatetest.Removal(typeCluster, fmt.Sprint("c", i-1)),
		)
		b.plane(b.cluster(name, "s", options...), b.cluster("c0", "s", func(c *clusterv3.Cluster) { c.AltStatName = name }))
		if i%3 == 0 {
			b.plane(b.listener(name), b.endpoints("s", one, two))
		}
		b.applies()
		b.plane(b.endpoints("s", two))
	}
	b.applies()
	b.unharmed(stop)
	b.answers("a", "two")
	eventually(t, "the clusters of old routes to be gone", func() bool {
		return e.Stat(t.Context(), "cluster_manager.active_clusters") == 3 // agent, c0, c12
	})
}

// TestEnvoyRefusesOneHost: of many hosts that change at once Envoy refuses one. It
// keeps its last good form; the others go live.
func TestEnvoyRefusesOneHost(t *testing.T) {
	b := newBench(t)
	b.plane(b.cluster("c", "s"), b.endpoints("s", b.backend("one")), b.listener(""), gatetest.Routes(t, routesName, hosts(0, 10)...))
	b.startEnvoy()
	b.applies()
	stop := b.load("h3", "h4")
	monster := func(salt int) delta.Change {
		rc := &routev3.RouteConfiguration{Name: routesName}
		for _, h := range hosts(salt, 11) {
			v := h.Proto()
			if h.Name == "h3" || h.Name == "h10" { // one that was live, and a new one
				v.Routes[0].Match.PathSpecifier = &routev3.RouteMatch_SafeRegex{
					SafeRegex: &matcherv3.RegexMatcher{Regex: "/(" + strings.Repeat("[a-z0-9]{1,8}", 20) + ")?"},
				}
			}
			rc.VirtualHosts = append(rc.VirtualHosts, v)
		}
		return delta.Change{Type: typeRoute, Name: routesName, Resource: gatetest.Pack(t, routesName, rc)}
	}
	b.plane(monster(1))
	applied := b.applies(routesName+"/h3", routesName+"/h10")
	for _, p := range applied.GetProblems() {
		if p.GetKind() != agentv1.Problem_KIND_REFUSED || !strings.Contains(p.GetMessage(), "program size") {
			t.Errorf("problem: %v", p)
		}
	}
	b.answers("h3", "one")
	b.answers("h9", "one")
	if status, _, err := b.ask("h10"); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("a host without any good form answered %d, %v; want 503", status, err)
	}
	b.plane(gatetest.Routes(t, routesName, hosts(2, 11)...))
	b.applies()
	b.answers("h10", "one")
	b.unharmed(stop)
}

// TestEnvoyRestart: a new Envoy is given everything from what is remembered, and its
// first answers are right.
func TestEnvoyRestart(t *testing.T) {
	b := newBench(t)
	b.plane(
		b.cluster("c", "s"), b.endpoints("s", b.backend("one")), b.listener(""),
		b.cluster("d", "s", checked(time.Second)),
		gatetest.Routes(t, routesName, append(hosts(0, 5), gatetest.Host{Name: "d", Clusters: []string{"d"}})...),
	)
	e := b.startEnvoy()
	b.applies()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	b.startEnvoy()
	var first string
	eventually(t, "a first answer", func() bool {
		status, body, err := b.ask("d")
		first = fmt.Sprint(status, " ", body)
		return err == nil
	})
	t.Logf("first answer %v after the start", time.Since(began))
	if first != "200 one" {
		t.Errorf("the first answer of the new Envoy: %s", first)
	}
	b.answers("h0", "one")
	b.applies()
}

// TestAgentRestart: Envoy serves on while there is no agent, and a new agent with what
// was remembered takes nothing from it.
func TestAgentRestart(t *testing.T) {
	b := newBench(t)
	b.plane(
		b.cluster("c", "s"), b.endpoints("s", b.backend("one")), b.listener(""),
		b.cluster("d", "s", checked(time.Second)),
		gatetest.Routes(t, routesName, append(hosts(0, 5), gatetest.Host{Name: "d", Clusters: []string{"d"}})...),
	)
	e := b.startEnvoy()
	b.applies()
	stop := b.load("h0", "d")
	for range 3 {
		b.stop()
		b.answers("d", "one")
		b.startAgent()
		b.applies()
	}
	b.unharmed(stop)
	b.plane(b.cluster("e", "s"), gatetest.Routes(t, routesName, gatetest.Host{Name: "h0", Clusters: []string{"e"}}))
	b.applies()
	b.answers("h0", "one")
	if n := e.Stat(t.Context(), "cluster_manager.cluster_modified"); n != 0 {
		t.Errorf("%d clusters were sent again", n)
	}
}

// TestEnvoyPortInUse: the problem says which port and what to do, and the listener
// comes to life when the port is free.
func TestEnvoyPortInUse(t *testing.T) {
	b := newBench(t)
	other, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", b.port))
	if err != nil {
		t.Fatal(err)
	}
	b.plane(b.cluster("c", "s"), b.endpoints("s", b.backend("one")), b.listener(""), gatetest.Routes(t, routesName, hosts(0, 1)...))
	b.startEnvoy()
	applied := b.applies(listenerName)
	if p := applied.GetProblems()[0]; !strings.HasPrefix(p.GetMessage(), fmt.Sprintf("port %d is in use", b.port)) {
		t.Errorf("problem: %v", p)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	b.skip(10 * time.Second)
	b.applies()
	eventually(t, "the listener to be open", func() bool {
		_, _, err := b.ask("h0")
		return err == nil
	})
	b.answers("h0", "one")
}

// TestEnvoyClusterThatWarmsSlowly: a cluster whose first health check hangs holds back
// its own host. What is warm goes on, and its routes change. (Other new clusters wait,
// for Envoy answers about clusters only when all of them are warm.)
func TestEnvoyClusterThatWarmsSlowly(t *testing.T) {
	b := newBench(t)
	hole, err := net.Listen("tcp", "127.0.0.1:0") // never answers
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	b.plane(
		b.cluster("c", "s"), b.endpoints("s", b.backend("one")), b.cluster("d", "s2"), b.endpoints("s2", b.backend("two")),
		b.listener(""), gatetest.Routes(t, routesName, hosts(0, 2)...),
	)
	b.startEnvoy()
	b.applies()
	stop := b.load("h0", "h1")
	routes := func(h0 string) delta.Change {
		return gatetest.Routes(t, routesName, gatetest.Host{Name: "h0", Clusters: []string{h0}, Salt: 1}, hosts(0, 2)[1], gatetest.Host{Name: "slow", Clusters: []string{"slow"}})
	}
	b.plane(b.cluster("slow", "hole", checked(time.Hour)), b.endpoints("hole", hole.Addr().(*net.TCPAddr)), routes("c"))
	b.plane(routes("d"))
	eventually(t, "the other host's new route", func() bool {
		_, body, err := b.ask("h0")
		return err == nil && body == "two"
	})
	eventually(t, "the wait to be a problem", func() bool {
		b.relay.tick()
		p := b.relay.applied().GetProblems()
		return len(p) == 1 && p[0].GetName() == routesName+"/slow" && p[0].GetKind() == agentv1.Problem_KIND_WAITING &&
			strings.Contains(p[0].GetMessage(), `"slow"`)
	})
	if names, err := b.Warming(t.Context()); err != nil || len(names) != 1 || names[0] != "slow" {
		t.Errorf("warming: %v, %v", names, err)
	}
	b.unharmed(stop)
	if err := hole.Close(); err != nil { // the check fails at last
		t.Fatal(err)
	}
	b.applies()
}

package agent

import (
	"testing"
	"time"

	"fairlead.dev/internal/delta"
)

// TestListenerOfBytesWaitsForNoRoutes: a proxy that hands TLS on and leads no requests asks
// for no scopes and routes, so nothing may wait for these; with the first listener that
// leads requests it does.
func TestListenerOfBytesWaitsForNoRoutes(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	g := NewGate()
	g.Connected(nil, nil)
	revision := uint64(0)
	target := func(changes ...delta.Change) {
		t.Helper()
		if err := g.Target(changes); err != nil {
			t.Fatal(err)
		}
		revision++
		g.Checkpoint(delta.Revision{Epoch: 1, Number: revision})
	}
	// answer has Envoy accept all that it is given but scopes and routes.
	answer := func() {
		for range 4 {
			var events []delta.Event
			for _, c := range g.Step(now).Changes {
				if c.Resource != nil && c.Type != typeScope && c.Type != typeRoute {
					events = append(events, delta.Event{Type: c.Type, Name: c.Name, Version: c.Resource.Version})
				}
			}
			g.Observe(events)
			g.Warming(g.Seq(), nil)
		}
	}
	settled := func(want uint64) {
		t.Helper()
		if got := g.Settled().Number; got != want {
			t.Errorf("revision %d is settled, want %d", got, want)
		}
	}
	target(testCluster(t, "c1", "s1", 1), testEndpoints(t, "s1", 1), testAuthority(t, "ca"), testCertificate(t, "cert", "1"),
		testScope(t, "scope", "routes"), testRoutes(t, "routes", host{name: "h", clusters: []string{"c1"}}), testTLSListener(t, "tls", "cert", "c1"))
	answer()
	if !g.Routed() {
		t.Error("routes are waited for without anybody who asks for them")
	}
	settled(1)
	target(testListener(t, "http", "1"))
	answer()
	settled(1)
	g.Observe([]delta.Event{
		{Type: typeScope, Name: "scope", Version: g.items[key{typeScope, "scope"}].live.Version},
		{Type: typeRoute, Name: "routes", Version: g.shards["routes"].live.version},
	})
	settled(2)
}

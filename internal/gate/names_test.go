package gate

import (
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
)

// TestGateWaitsForSecrets: what names a secret or a cluster is not given to Envoy before
// these are there, for a while.
func TestGateWaitsForSecrets(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	g := newGate()
	target := func(changes ...delta.Change) {
		t.Helper()
		if err := g.Target(changes); err != nil {
			t.Fatal(err)
		}
	}
	step := func() (out []string) {
		for _, c := range g.step(now).changes {
			out = append(out, c.Name)
		}
		return out
	}
	wants := func(want ...string) {
		t.Helper()
		if got := step(); !slices.Equal(got, want) {
			t.Errorf("Envoy is given %v, want %v", got, want)
		}
	}
	g.connected(nil, nil)
	context := &tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
		ValidationContextType: &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: "ca"}},
	}}
	target(gatetest.Cluster(t, "c1", "s1", 1, func(c *clusterv3.Cluster) {
		c.TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: gatetest.AnyOf(t, context)}}
	}), gatetest.Endpoints(t, "s1", 1), gatetest.TLSListener(t, "l1", "cert", "c1"), gatetest.TLSListener(t, "l2", "never", "never"))
	wants("s1")
	target(gatetest.Authority(t, "ca"), gatetest.Certificate(t, "cert", "1"))
	wants("ca", "cert")
	wants("c1")
	wants() // the listener waits until the cluster is warm
	g.observe([]delta.Event{
		{Type: typeCluster, Name: "c1", Version: g.clusters["c1"].live.Version},
		{Type: typeEndpoint, Name: "s1", Version: g.items[key{typeEndpoint, "s1"}].live.Version},
	})
	g.Warming(g.seq, nil)
	wants("l1")
	wants()
	now = now.Add(waitGrace)
	wants("l2") // it has other names to serve
}

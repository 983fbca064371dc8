package agent

import (
	"os"
	"path/filepath"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // in the file
	"google.golang.org/protobuf/encoding/protojson"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
)

func TestSystemAuthorities(t *testing.T) {
	file := filepath.Join(t.TempDir(), "authorities")
	if _, err := readAuthorities(file); err == nil {
		t.Error("a file that is named and not there must be said")
	}
	if err := os.WriteFile(file, []byte("certificates"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := readAuthorities(file)
	if err != nil {
		t.Fatal(err)
	}

	// The name is what a cluster asks for whose backends have no authorities of their own.
	body, err := os.ReadFile(filepath.Join("..", "xds", "testdata", "cluster_tls.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c clusterv3.Cluster
	if err := protojson.Unmarshal(body, &c); err != nil {
		t.Fatal(err)
	}
	remembered := 0
	a := idle(t, Config{})
	a.desired.remember = func(b memoryBatch) {
		for _, c := range b.target {
			if c.Type == typeSecret {
				remembered++
			}
		}
	}
	a.relay.remember = a.desired.remember
	if err := a.relay.provide(r); err != nil {
		t.Fatal(err)
	}
	cluster := delta.Change{Type: typeCluster, Name: c.GetName(), Resource: gatetest.Pack(t, c.GetName(), &c)}
	if err := a.desired.receive(responseOf(t, at(1, 1), cluster)); err != nil {
		t.Fatal(err)
	}
	if err := a.desired.receive(responseOf(t, at(1, 1), gatetest.Endpoints(t, c.GetEdsClusterConfig().GetServiceName(), 1))); err != nil {
		t.Fatal(err)
	}
	if _, there := a.relay.feed.Get(typeCluster, c.GetName()); !there {
		t.Error("the cluster waits for a secret that the agent does not provide")
	}
	if got, there := a.relay.feed.Get(typeSecret, systemAuthority); !there || got.Version != r.Version {
		t.Errorf("Envoy would be given %v", got)
	}
	if held, _ := a.desired.held(); len(held[typeSecret]) != 0 || remembered != 0 {
		t.Errorf("the plane would be told of %v, and %d are remembered: it would take away what it does not know", held[typeSecret], remembered)
	}
}

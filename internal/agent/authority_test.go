package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // in the file
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"fairlead.dev/internal/delta"
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
	packed, err := anypb.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	info, err := readCluster(&delta.Resource{Name: c.Name, Body: packed})
	if err != nil || !slices.Equal(info.secrets, []string{r.Name}) {
		t.Fatalf("the cluster asks for %q (%v), the agent has %q", info.secrets, err, r.Name)
	}

	remembered := 0
	s := newState(time.Now, func(b memoryBatch) { remembered += len(b.target) }, func() {})
	if err := s.provide(r); err != nil {
		t.Fatal(err)
	}
	if !s.gate.hasSecrets(info.secrets) {
		t.Error("what the agent provides is not there")
	}
	if got, there := s.set.Get(typeSecret, systemAuthority); !there || got.Version != r.Version {
		t.Errorf("Envoy would be given %v", got)
	}
	if held, _ := s.held(); len(held[typeSecret]) != 0 || remembered != 0 {
		t.Errorf("the plane would be told of %v, and %d are remembered: it would take away what it does not know", held[typeSecret], remembered)
	}
}

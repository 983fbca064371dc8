package gate

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3" // in the files
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"    // in the files
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
)

// TestClustersOfEverything reads virtual hosts as the plane writes them.
func TestClustersOfEverything(t *testing.T) {
	for file, want := range map[string][]string{
		"virtual_host.json": {
			"team/app/80", "team/auth/9000", "team/http-auth/80", "team/limit/8081", "team/mirror/80", "team/next/80", "team/rest/80",
		},
		"virtual_host_tree.json": {
			"team/app/80", "team/app1/80", "team/auth/9000", "team/limit/8081", "team/mirror/80", "team/next/80",
		},
	} {
		body, err := os.ReadFile(filepath.Join("..", "xds", "testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		var v routev3.VirtualHost
		if err := protojson.Unmarshal(body, &v); err != nil {
			t.Fatal(err)
		}
		if got := clustersOf(&v); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", file, got, want)
		}
	}
}

// TestClustersWithSecretsAreAskedFor holds that a cluster whose connections need secrets does
// not count as warm before Envoy says so.
func TestClustersWithSecretsAreAskedFor(t *testing.T) {
	c := &clusterv3.Cluster{Name: "a", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}
	read := func() clusterInfo {
		t.Helper()
		body, err := anypb.New(c)
		if err != nil {
			t.Fatal(err)
		}
		info, err := readCluster(&delta.Resource{Name: c.Name, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	if !read().simple {
		t.Error("a cluster without anything needs no question")
	}
	c.TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls"}
	if read().simple {
		t.Error("a cluster with TLS counts as warm without a question")
	}
}

// TestUnreadableEndpointsAreRefused holds that a load assignment that cannot be read is left as it was.
func TestUnreadableEndpointsAreRefused(t *testing.T) {
	t.Parallel()
	s := servingGate(t)
	c := gatetest.Endpoints(t, "s1", 2)
	c.Resource.Body.Value = append([]byte{0xff}, c.Resource.Body.GetValue()...)
	if err := s.Target([]delta.Change{c}); !errors.Is(err, ErrUnreadable) {
		t.Errorf("the gate says %v", err)
	}
	if given := s.step(s.now).changes; len(given) != 0 {
		t.Errorf("Envoy is given %v", given)
	}
}

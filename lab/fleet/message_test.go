package fleet

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

func message(t *testing.T, r *discoveryv3.DeltaDiscoveryResponse) []byte {
	t.Helper()
	b, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestScan(t *testing.T) {
	var w world
	resource := func(name, version string) *discoveryv3.Resource {
		return &discoveryv3.Resource{Name: name, Version: version, Resource: &anypb.Any{TypeUrl: agentv1.RouteType}}
	}
	first := message(t, &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: agentv1.RouteType, Nonce: "n1", Resources: []*discoveryv3.Resource{resource("a", "1"), resource("b", "1")},
	})
	if r, err := scan(first, &w); err != nil || r.kind != agentv1.RouteType || r.nonce != "n1" || r.checkpoint != (delta.Revision{}) {
		t.Fatalf("the first response is %+v (%v)", r, err)
	}
	before := w.shared()
	if _, err := scan(message(t, &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: agentv1.RouteType, Resources: []*discoveryv3.Resource{resource("b", "2")}, RemovedResources: []string{"a"},
	}), &w); err != nil {
		t.Fatal(err)
	}
	if held := w.shared()[agentv1.RouteType]; len(held) != 1 || held["b"] != "2" {
		t.Errorf("after the second response it holds %v", held)
	}
	if held := before[agentv1.RouteType]; len(held) != 2 || held["b"] != "1" {
		t.Errorf("what was claimed before has become %v", held)
	}
	body, err := anypb.New(&agentv1.Checkpoint{Epoch: 3, Revision: 7})
	if err != nil {
		t.Fatal(err)
	}
	r, err := scan(message(t, &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: agentv1.CheckpointType, Resources: []*discoveryv3.Resource{{Name: agentv1.CheckpointName, Version: "v", Resource: body}},
	}), &w)
	if want := (delta.Revision{Epoch: 3, Number: 7}); err != nil || r.checkpoint != want {
		t.Errorf("the checkpoint is %v (%v)", r.checkpoint, err)
	}
	if w.shared()[agentv1.CheckpointType] != nil {
		t.Error("a checkpoint would be claimed, and not sent again")
	}
	if _, err := scan(first[:len(first)-1], &w); err == nil {
		t.Error("a response that is cut short was read")
	}
}

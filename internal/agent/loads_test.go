package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
)

func mustMarshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// What a team writes into a cluster, such as the name of a backend's certificate, makes no measured group.
func TestTextsMeasureNothing(t *testing.T) {
	text := &clusterv3.Cluster{Name: "shop/app/80", AltStatName: "spiffe://shop/" + model.FirstByteMetric}
	measured := &clusterv3.Cluster{Name: "shop/app/80", LrsReportEndpointMetrics: []string{"named_metrics." + model.FirstByteMetric}}
	if isMeasured(mustMarshal(t, text)) || !isMeasured(mustMarshal(t, measured)) {
		t.Error("a text decides whether a group is measured")
	}
}

// A measured group beyond the bound waits until there is room, also one that came before another was gone.
func TestMeasuredGroupsWait(t *testing.T) {
	l := newLoads(func(string) (delta.Resource, bool) { return delta.Resource{}, false }, time.Now)
	see := func(name string, measured bool) {
		c := delta.Change{Type: typeCluster, Name: name, Resource: &delta.Resource{Body: &anypb.Any{}}}
		if measured {
			c.Resource.Body.Value = mustMarshal(t, &clusterv3.Cluster{Name: name, LrsReportEndpointMetrics: []string{"named_metrics." + model.FirstByteMetric}})
		}
		l.see(c)
	}
	group := func(i int) string { return fmt.Sprintf("shop/app-%04d/80", i) }
	for i := range maxMeasured + 2 {
		see(group(i), true)
		see(group(i), true)
	}
	check := func(what string, last ...int) {
		t.Helper()
		got := l.wanted()
		if len(got) != maxMeasured {
			t.Errorf("%s: %d groups", what, len(got))
		}
		for i, name := range last {
			if has := slices.Contains(got, group(name)); has != (i == 0) {
				t.Errorf("%s: group %d is measured: %t", what, name, has)
			}
		}
	}
	check("beyond the bound", 0, maxMeasured, maxMeasured+1)
	see(group(7), false)
	check("one has gone", maxMeasured, maxMeasured+1, 7)
	see(group(maxMeasured+1), false) // it waited
	see(group(8), false)
	if got := l.wanted(); len(got) != maxMeasured-1 {
		t.Errorf("%d groups are measured after all have their turn", len(got))
	}
	see(group(7), true)
	check("it comes again", 7, 8, maxMeasured+1)
}

// Routes that ask for series are taken although as many have asked before, and ask no more.
func TestRoutesThatAskLater(t *testing.T) {
	m := newMeter(nil, time.Now)
	for i := range 3 {
		var routes []model.RouteTraffic
		for j := range maxAsked / 2 {
			routes = append(routes, model.RouteTraffic{Owner: fmt.Sprintf("HTTPRoute/shop/app-%d-%d", i, j)})
		}
		m.note(routes)
		for _, r := range routes {
			if !m.asked[r.Owner] {
				t.Fatalf("%s has no series", r.Owner)
			}
		}
	}
	if len(m.asked) > maxAsked {
		t.Errorf("%d are remembered", len(m.asked))
	}
}

package translate

import (
	"fmt"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

// TestManyRivals has the oldest GRPCRoute keep out all HTTPRoutes by one host, so that the GRPCRoutes
// which are younger than they have another. What it costs grows with the routes, not with their pairs.
func TestManyRivals(t *testing.T) {
	const n = 300
	s := snapshot.New()
	readYAML(t, s, []byte(ourClass+`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: team}
spec: {gatewayClassName: fairlead, listeners: [{name: http, port: 80, protocol: HTTP}]}
`))
	meta := func(name string, age int64) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "team", Name: name, CreationTimestamp: metav1.Unix(1_000_000-age, 0)}
	}
	parents := gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "web"}}}
	grpc := func(name string, age int64, host gatewayv1.Hostname) *gatewayv1.GRPCRoute {
		return &gatewayv1.GRPCRoute{ObjectMeta: meta(name, age), Spec: gatewayv1.GRPCRouteSpec{CommonRouteSpec: parents, Hostnames: []gatewayv1.Hostname{host}}}
	}
	objects := []metav1.Object{grpc("first", 3*n, "x.test")}
	for i := range int64(n) {
		objects = append(objects,
			&gatewayv1.HTTPRoute{ObjectMeta: meta(fmt.Sprintf("http-%d", i), 2*n+i), Spec: gatewayv1.HTTPRouteSpec{CommonRouteSpec: parents, Hostnames: []gatewayv1.Hostname{"a.test", "x.test"}}},
			grpc(fmt.Sprintf("grpc-%d", i), n+i, "a.test"))
	}
	setAll(t, s, objects...)
	tr := full(input.Config{}, s)
	edges := 0
	for _, size := range tr.graph.Sizes() {
		edges += size.Reads
	}
	if edges > 50*2*n {
		t.Errorf("%d routes read %d nodes", 2*n, edges)
	}
	accepted := func(kind snapshot.Kind, name string) bool {
		s := tr.statusOf(model.Object{Kind: string(kind), Namespace: "team", Name: name})
		var parents []gatewayv1.RouteParentStatus
		if kind == snapshot.KindGRPCRoute {
			parents = s.GRPCRoute.Parents
		} else {
			parents = s.HTTPRoute.Parents
		}
		return apimeta.IsStatusConditionTrue(parents[0].Conditions, string(gatewayv1.RouteConditionAccepted))
	}
	for i := range n {
		if accepted(snapshot.KindHTTPRoute, fmt.Sprintf("http-%d", i)) || !accepted(snapshot.KindGRPCRoute, fmt.Sprintf("grpc-%d", i)) {
			t.Fatalf("of the pair %d the wrong one is accepted", i)
		}
	}
	k, err := s.Set(grpc("first", 3*n, "y.test"))
	if err != nil {
		t.Fatal(err)
	}
	tr.Apply(s, []snapshot.Key{k})
	for i := range n {
		if !accepted(snapshot.KindHTTPRoute, fmt.Sprintf("http-%d", i)) || accepted(snapshot.KindGRPCRoute, fmt.Sprintf("grpc-%d", i)) {
			t.Fatalf("once nobody keeps the HTTPRoutes out: of the pair %d the wrong one is accepted", i)
		}
	}
}

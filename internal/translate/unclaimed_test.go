package translate

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

// A class of another controller is that one's business; one that does not exist is
// everybody's.
func TestUnclaimedGateways(t *testing.T) {
	s := snapshot.New()
	class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "elsewhere.example/gateway"}}
	for _, o := range []metav1.Object{
		class,
		&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "served"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "theirs"}},
		&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "lost"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "fairlead"}},
	} {
		setAll(t, s, o)
	}
	problems := unclaimedGateways(s, input.ControllerName)
	if len(problems) != 1 || problems[0].Subject != "Gateway team/lost" || problems[0].Reason != reasonNoClass ||
		!strings.Contains(problems[0].Message, "no GatewayClass fairlead") || !strings.Contains(problems[0].Message, string(input.ControllerName)) {
		t.Errorf("%+v", problems)
	}
	class.Name = "fairlead"
	setAll(t, s, class)
	if problems := unclaimedGateways(s, input.ControllerName); len(problems) != 0 {
		t.Errorf("with the class: %+v", problems)
	}
}

func TestUnclaimedRoutes(t *testing.T) {
	s := snapshot.New()
	route := func(name string, parents ...gatewayv1.ParentReference) *gatewayv1.HTTPRoute {
		return &gatewayv1.HTTPRoute{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
			Spec:       gatewayv1.HTTPRouteSpec{CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: parents}},
		}
	}
	elsewhere, service := gatewayv1.Namespace("infra"), gatewayv1.Kind("Service")
	for _, o := range []metav1.Object{
		&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "edge"}},
		route("served", gatewayv1.ParentReference{Name: "edge", Namespace: &elsewhere}),
		route("half", gatewayv1.ParentReference{Name: "nobody"}, gatewayv1.ParentReference{Name: "edge", Namespace: &elsewhere}),
		route("mesh", gatewayv1.ParentReference{Name: "app", Kind: &service}),
		route("lost", gatewayv1.ParentReference{Name: "edge"}),
		route("alone"),
	} {
		setAll(t, s, o)
	}
	got := map[string]string{}
	for _, p := range unclaimedRoutes(s) {
		if p.Reason != reasonNoGateway {
			t.Errorf("reason is %s", p.Reason)
		}
		got[p.Subject] = p.Message
	}
	if len(got) != 3 || got["HTTPRoute team/half"] != "spec.parentRefs[0]: there is no Gateway team/nobody, so the route is not served there" || !strings.Contains(got["HTTPRoute team/lost"], "spec.parentRefs[0]: there is no Gateway team/edge") ||
		!strings.Contains(got["HTTPRoute team/alone"], "names no Gateway") {
		t.Errorf("%+v", got)
	}
}

// A class in our domain that we do not have is nobody's.
func TestUnclaimedServices(t *testing.T) {
	s := snapshot.New()
	for name, class := range map[string]*string{"ours": new("fairlead.dev/l4"), "theirs": new("example.com/l4"), "mistyped": new("fairlead.dev/L4"), "none": nil} {
		o := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: class},
		}
		setAll(t, s, o)
	}
	problems := unclaimedServices(s)
	if len(problems) != 1 || problems[0].Subject != "Service default/mistyped" || problems[0].Reason != reasonNoServiceClass || !strings.Contains(problems[0].Message, "the class of Fairlead is fairlead.dev/l4") {
		t.Errorf("%+v", problems)
	}
}

// What nobody serves is told in the same order each time.
func TestUnclaimedIsSorted(t *testing.T) {
	s := snapshot.New()
	for _, name := range []string{"b", "c", "a"} {
		for _, o := range []metav1.Object{
			&gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}},
			&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}},
		} {
			setAll(t, s, o)
		}
	}
	problems := Unclaimed(s, input.ControllerName)
	if len(problems) != 6 || !slices.IsSortedFunc(problems, func(a, b model.Problem) int { return strings.Compare(a.Subject, b.Subject) }) {
		t.Errorf("%+v", problems)
	}
}

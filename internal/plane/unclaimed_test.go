package plane

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/xds"
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
		if _, err := s.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	problems := unclaimedGateways(s, translate.ControllerName)
	if len(problems) != 1 || problems[0].Subject != "Gateway team/lost" || problems[0].Reason != reasonNoClass ||
		!strings.Contains(problems[0].Message, "no GatewayClass fairlead") || !strings.Contains(problems[0].Message, string(translate.ControllerName)) {
		t.Errorf("%+v", problems)
	}
	class.Name = "fairlead"
	if _, err := s.Set(class); err != nil {
		t.Fatal(err)
	}
	if problems := unclaimedGateways(s, translate.ControllerName); len(problems) != 0 {
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
		if _, err := s.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	for _, p := range unclaimedRoutes(s) {
		if p.Reason != reasonNoGateway {
			t.Errorf("reason is %s", p.Reason)
		}
		got[p.Subject] = p.Message
	}
	if len(got) != 3 || got["HTTPRoute team/half"] != "spec.parentRefs[0]: there is no Gateway team/nobody, so nobody serves it there" || !strings.Contains(got["HTTPRoute team/lost"], "spec.parentRefs[0]: there is no Gateway team/edge") ||
		!strings.Contains(got["HTTPRoute team/alone"], "names no Gateway") {
		t.Errorf("%+v", got)
	}
}

// A class in our domain that we do not have is nobody's.
func TestUnclaimedServices(t *testing.T) {
	s := snapshot.New()
	for name, class := range map[string]*string{"ours": ptr("fairlead.dev/l4"), "theirs": ptr("example.com/l4"), "mistyped": ptr("fairlead.dev/L4"), "none": nil} {
		o := service(name)
		o.Spec.Type, o.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, class
		if _, err := s.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	problems := unclaimedServices(s)
	if len(problems) != 1 || problems[0].Subject != "Service default/mistyped" || problems[0].Reason != reasonNoServiceClass || !strings.Contains(problems[0].Message, "ours is fairlead.dev/l4") {
		t.Errorf("%+v", problems)
	}
}

// A Service that translation refuses is a problem, one that waits for machines is none yet.
func TestARefusedServiceIsAProblem(t *testing.T) {
	o := model.Object{Kind: "Service", Namespace: "team", Name: "app"}
	for reason, want := range map[string]string{v1alpha1.ReasonUnsupportedProtocol: stateInvalid, v1alpha1.ReasonPortTaken: stateInvalid, v1alpha1.ReasonPending: stateUnserved} {
		status := &translate.Status{Service: &corev1.ServiceStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionServed, Status: metav1.ConditionFalse, Reason: reason, Message: "why"}}}}
		l := &loop{statuses: map[model.Object]*translate.Status{o: status}, tracker: newTracker(newCatalog(xds.Options{}))}
		if state, why, _ := l.objectState(o); state != want || want == stateInvalid && why != reason {
			t.Errorf("%s: it is %s, %s", reason, state, why)
		}
	}
}

// A route of which a part is wrong is served all the same; one that is not accepted is not.
func TestARouteThatIsWrongInPartIsDegraded(t *testing.T) {
	o := model.Object{Kind: "HTTPRoute", Namespace: "team", Name: "app"}
	condition := func(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: status, Reason: reason}
	}
	accepted := condition("Accepted", metav1.ConditionTrue, "Accepted")
	for name, c := range map[string]struct {
		conditions  []metav1.Condition
		verdict     verdictState
		state, says string
	}{
		"a backend is missing":         {[]metav1.Condition{accepted, condition("ResolvedRefs", metav1.ConditionFalse, "BackendNotFound")}, verdictProgrammed, "degraded", "BackendNotFound"},
		"and a machine has to follow":  {[]metav1.Condition{accepted, condition("ResolvedRefs", metav1.ConditionFalse, "BackendNotFound")}, verdictPending, "degraded", "BackendNotFound"},
		"a rule is dropped":            {[]metav1.Condition{accepted, condition("PartiallyInvalid", metav1.ConditionTrue, "UnsupportedValue")}, verdictProgrammed, "degraded", "PartiallyInvalid"},
		"all is well":                  {[]metav1.Condition{accepted, condition("ResolvedRefs", metav1.ConditionTrue, "ResolvedRefs")}, verdictProgrammed, "programmed", "Programmed"},
		"nothing is accepted":          {[]metav1.Condition{condition("Accepted", metav1.ConditionFalse, "UnsupportedValue")}, verdictNone, "invalid", "UnsupportedValue"},
		"nothing of it is programmed":  {[]metav1.Condition{accepted, condition("ResolvedRefs", metav1.ConditionFalse, "BackendNotFound")}, verdictNone, "invalid", "BackendNotFound"},
		"a proxy refused what is left": {[]metav1.Condition{accepted, condition("ResolvedRefs", metav1.ConditionFalse, "BackendNotFound")}, verdictRefused, "invalid", "BackendNotFound"},
	} {
		status := &translate.Status{HTTPRoute: &gatewayv1.HTTPRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{{Conditions: c.conditions}}}}}
		l := &loop{statuses: map[model.Object]*translate.Status{o: status}, tracker: newTracker(newCatalog(xds.Options{}))}
		l.tracker.targets[o] = &target{object: o, verdict: verdict{State: c.verdict}}
		if state, why, _ := l.objectState(o); state != c.state || why != c.says {
			t.Errorf("%s: it is %s, %s; want %s, %s", name, state, why, c.state, c.says)
		}
	}
}

package plane

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
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

package status

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
)

func gatewayWith(addresses []string, conditions ...metav1.Condition) *gatewayv1.Gateway {
	g := &gatewayv1.Gateway{Status: gatewayv1.GatewayStatus{Conditions: conditions}}
	for _, a := range addresses {
		g.Status.Addresses = append(g.Status.Addresses, gatewayv1.GatewayStatusAddress{Value: a})
	}
	return g
}

func shows(of string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: of, Status: status, Reason: reason, Message: "because " + reason}
}

func ingressRoute(status, description string) *contourv1beta1.IngressRoute {
	return &contourv1beta1.IngressRoute{Status: contourv1beta1.Status{CurrentStatus: status, Description: description}}
}

// Events are transitions that somebody waits for, and nothing else.
func TestHappened(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for _, c := range []struct {
		name          string
		before, after client.Object
		want          []happening
	}{
		{"an address", gatewayWith(nil), gatewayWith([]string{"203.0.113.1"}), []happening{{"Normal", "AddressAssigned", "203.0.113.1"}}},
		{"the same address", gatewayWith([]string{"203.0.113.1"}), gatewayWith([]string{"203.0.113.1"}), nil},
		{"no address any more", gatewayWith([]string{"203.0.113.1"}), gatewayWith(nil), []happening{{"Warning", "AddressReleased", "203.0.113.1"}}},
		{"accepted", gatewayWith(nil, shows("Accepted", unknown, "Pending")), gatewayWith(nil, shows("Accepted", yes, "Accepted")), []happening{{"Normal", "Accepted", "because Accepted"}}},
		{"accepted for another reason", gatewayWith(nil, shows("Accepted", yes, "Accepted")), gatewayWith(nil, shows("Accepted", yes, "Other")), nil},
		{"refused", gatewayWith(nil), gatewayWith(nil, shows("Accepted", no, "Invalid")), []happening{{"Warning", "Invalid", "Accepted is false: because Invalid"}}},
		{"refused for another reason", gatewayWith(nil, shows("Accepted", no, "Invalid")), gatewayWith(nil, shows("Accepted", no, "Other")), []happening{{"Warning", "Other", "Accepted is false: because Other"}}},
		{"refused as before", gatewayWith(nil, shows("Accepted", no, "Invalid")), gatewayWith(nil, shows("Accepted", no, "Invalid")), nil},
		{"not programmed yet", gatewayWith(nil), gatewayWith(nil, shows("Programmed", no, "Pending")), nil},
		{"not programmed any more", gatewayWith(nil, shows("Programmed", yes, "Programmed")), gatewayWith(nil, shows("Programmed", no, "Refused")), []happening{{"Warning", "Refused", "Programmed is false: because Refused"}}},
		{"something nobody waits for", gatewayWith(nil), gatewayWith(nil, shows("Special", yes, "Special")), nil},
		{"valid", ingressRoute("", ""), ingressRoute("valid", "valid IngressRoute"), []happening{{"Normal", "Accepted", "valid IngressRoute"}}},
		{"invalid", ingressRoute("valid", ""), ingressRoute("invalid", "spec: no"), []happening{{"Warning", "invalid", "Accepted is false: spec: no"}}},
	} {
		if got := happened(c.before, c.after); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// eventAPI counts Events.
type eventAPI struct {
	client.Client
	scheme  *runtime.Scheme
	mu      sync.Mutex
	created []string
}

func (a *eventAPI) Scheme() *runtime.Scheme { return a.scheme }

func (a *eventAPI) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := o.(*corev1.Event)
	a.created = append(a.created, e.Type+" "+e.InvolvedObject.Name)
	return nil
}

// However much changes at once, Events stay few, and what is right leaves room for what is
// wrong.
func TestEventsAreFew(t *testing.T) {
	a := &eventAPI{scheme: clientscheme.Scheme}
	told := NewTeller(t.Context(), a)
	service := func(n int, ip string) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("s", n)}}
		if ip != "" {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip}}
		}
		return s
	}
	for n := range 5000 {
		told.Tell(service(n, ""), service(n, "203.0.113.1"))
	}
	told.Tell(service(7000, "203.0.113.1"), service(7000, ""))
	defer told.Stop()
	soon(t, "what is wrong is told", func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !slices.Contains(a.created, "Warning s7000") {
			return fmt.Errorf("of %d Events none", len(a.created))
		}
		return nil
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	// The limiter lets some more through while this runs on a slow machine.
	if n := len(a.created); n < eventBurst/2 || n > 5000/2 {
		t.Errorf("%d Events of 5001 changes", n)
	}
}

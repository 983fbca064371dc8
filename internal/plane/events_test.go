package plane

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	told := newTeller(t.Context(), a)
	service := func(n int, ip string) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("s", n)}}
		if ip != "" {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip}}
		}
		return s
	}
	for n := range 5000 {
		told.tell(service(n, ""), service(n, "203.0.113.1"))
	}
	told.tell(service(7000, "203.0.113.1"), service(7000, ""))
	defer told.stop()
	eventually(t, "what is wrong is told", func() error {
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

// The API takes the Events of a route and of its Gateway, once each.
func TestEventsAreWritten(t *testing.T) {
	r := newRig(t)
	g, route := gateway(), httpRoute("app", "app.example", "app")
	r.create(gatewayClass(), g, service("app"), slice("app", "10.1.0.1"), route)
	r.plane("one").awaitReady()
	want := map[string]bool{"Gateway edge Accepted": true, "HTTPRoute app Accepted": true, "HTTPRoute app ResolvedRefs": true}
	eventually(t, "there are Events", func() error {
		var list corev1.EventList
		if err := r.client.List(context.Background(), &list, client.InNamespace("default")); err != nil {
			return err
		}
		found := map[string]bool{}
		for _, e := range list.Items {
			if e.InvolvedObject.UID != g.UID && e.InvolvedObject.UID != route.UID { // of tests before
				continue
			}
			if key := e.InvolvedObject.Kind + " " + e.InvolvedObject.Name + " " + e.Reason; want[key] && e.Source.Component == "fairlead" && e.Type == corev1.EventTypeNormal {
				found[key] = true
			}
		}
		if len(found) != len(want) {
			return fmt.Errorf("found %v of %d Events", found, len(list.Items))
		}
		return nil
	})
}

// forbidding is an API that gives no right to ServiceAccounts.
type forbidding struct {
	client.Client
	asked atomic.Int32
}

func (f *forbidding) Get(_ context.Context, k client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	f.asked.Add(1)
	return apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, k.Name, nil)
}

// Where the plane has no right to ServiceAccounts, Gateways that ask for none cost one
// request, and the others a warning, but no storm.
func TestInfrastructureWithoutRights(t *testing.T) {
	api := &forbidding{}
	var log bytes.Buffer
	i := newInfrastructure(api, slog.New(slog.NewTextHandler(&log, nil)))
	i.enable(t.Context())
	plain, asks := gateway(), gateway()
	asks.Name, asks.Spec.Infrastructure = "asks", &gatewayv1.GatewayInfrastructure{Labels: map[gatewayv1.LabelKey]gatewayv1.LabelValue{"team": "red"}}
	for _, g := range []*gatewayv1.Gateway{plain, asks} {
		i.offer(g)
		if !i.bring(t.Context(), client.ObjectKeyFromObject(g)) {
			t.Errorf("%s is tried again at once", g.Name)
		}
		i.offer(g)
	}
	if text := log.String(); api.asked.Load() != 2 || strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "rbac.infrastructureNamespaces") {
		t.Errorf("%d requests; the log says %s", api.asked.Load(), text)
	}
	if len(i.wanted) != 1 || len(i.done) != 1 {
		t.Errorf("wanted %v, done %v; want one of each", i.wanted, i.done)
	}
}

package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/derive"
)

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

// Where the plane has no right to ServiceAccounts, the log says which value of the chart gives it; and a Gateway that asks
// for nothing wants none.
func TestInfrastructureWithoutRights(t *testing.T) {
	var log bytes.Buffer
	plain, asks := gateway(), gateway()
	asks.Name, asks.Spec.Infrastructure = "asks", &gatewayv1.GatewayInfrastructure{Labels: map[gatewayv1.LabelKey]gatewayv1.LabelValue{"team": "red"}}
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if o := infrastructure(plain, logger); !o.Absent || o.Wanted.GetName() != "edge-fairlead" {
		t.Errorf("a Gateway that asks for nothing wants %v", o)
	}
	o := infrastructure(asks, logger)
	o.Tell(derive.Forbidden, errors.New("no right"))
	if text := log.String(); o.Absent || o.Wanted.GetLabels()["team"] != "red" || strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "rbac.infrastructureNamespaces") {
		t.Errorf("it wants %v; the log says %s", o.Wanted, text)
	}
}

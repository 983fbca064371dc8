package watch

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/metricstest"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
)

// Who asks for a namespace gets what is of it, and nothing of others.
func TestRequestMetricsOfANamespace(t *testing.T) {
	total := func(by, name string) model.TrafficTotal {
		v := model.Volume{Received: 1, Sent: 2, Retries: 3, Resets: 4, Connections: 5, Open: 6, Answers: [model.StatusClasses]uint64{2: 7}}
		v.Seconds.Add(0.03, 7)
		return model.TrafficTotal{By: by, Name: name, Volume: v}
	}
	view := &Viewers{config: Config{Plane: fake{epoch: 1}}}
	view.top = top{now: time.Now, sample: func(context.Context) map[string]southbound.Figures {
		all := southbound.Figures{Totals: []model.TrafficTotal{
			total("namespaces", "shop"), total("namespaces", "bank"), total("listeners", "http-80"), total("upstreams", "east"),
			total("routes", "HTTPRoute/shop/cart"), total("routes", "HTTPRoute/bank/pay"), total("of a later version", "shop"),
		}}
		for _, group := range []model.GroupID{"shop/cart/80", "bank/pay/80~1f"} {
			all.Loads = append(all.Loads, model.GroupLoad{Group: group, Backends: []model.BackendLoad{
				{Address: netip.MustParseAddrPort("10.0.0.1:80"), Requests: 3, Timed: 3, Named: true}, {Address: netip.MustParseAddrPort("10.0.0.2:80"), Requests: 3},
			}})
		}
		return map[string]southbound.Figures{"edge-1": all, "edge-2": all}
	}}
	series := func(namespace string) (names []string, of map[string]int) {
		g, err := view.RequestMetrics(t.Context(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		metricstest.OpenMetrics(t, g)
		families, err := g.Gather()
		if err != nil {
			t.Fatal(err)
		}
		of = map[string]int{}
		for _, f := range families {
			names = append(names, f.GetName())
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					of[l.GetName()+"="+l.GetValue()]++
				}
			}
		}
		return names, of
	}
	names, of := series("shop")
	if want := []string{
		"fairlead_first_byte_seconds_by_backend", "fairlead_machines_left_out", "fairlead_received_bytes_by_namespace_total", "fairlead_request_seconds_by_namespace", "fairlead_request_seconds_by_route",
		"fairlead_requests_by_backend_total", "fairlead_requests_by_namespace_total", "fairlead_requests_by_route_total", "fairlead_requests_in_flight_by_backend", "fairlead_resets_by_namespace_total",
		"fairlead_retries_by_namespace_total", "fairlead_sent_bytes_by_namespace_total", "fairlead_tries_by_backend_total",
	}; !slices.Equal(names, want) {
		t.Errorf("a namespace has\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
	for label, n := range of {
		if strings.Contains(label, "bank") || strings.Contains(label, "http-80") || strings.Contains(label, "east") {
			t.Errorf("namespace shop sees %s, %d times", label, n)
		}
	}
	if of["namespace=shop"] != 12 || of["route=HTTPRoute/shop/cart"] != 4 || of["machine=edge-1"] != 13 || of["group=shop/cart/80"] != 10 || of["backend=10.0.0.2:80"] != 0 {
		t.Errorf("series by label: %v", of)
	}
	if _, of = series(""); of["listener=http-80"] == 0 || of["upstream=east"] == 0 || of["namespace=bank"] != 12 {
		t.Errorf("all series by label: %v", of)
	}
}

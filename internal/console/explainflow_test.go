package console

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
)

func explainedFlow(r explain.FlowRequest) explain.FlowExplanation {
	f := &model.Frontend{FrontendKey: r.Frontend, Owner: model.Object{Kind: "Service", Namespace: "team", Name: "app"}}
	return explain.Flow(r, explain.FlowWorld{
		Balanced: &model.Balanced{Frontend: f, Backends: []model.FrontendBackend{
			{Address: netip.MustParseAddrPort("10.0.0.1:8080"), Machine: "node-1", Weight: 100, HopWeight: 100, Health: model.Healthy},
			{Address: netip.MustParseAddrPort("10.0.0.2:8080"), HopWeight: 100, State: model.BackendDraining},
		}},
		At: []explain.FrontendAt{
			{Machine: "edge-1", FrontendObserved: model.FrontendObserved{State: model.FrontendBalanced, Mode: model.ModeNAT, DataPlane: model.DataPlaneXDP, Available: 1, Message: "10.0.0.2:8080 is on no machine of ours"}},
			{Machine: "edge-2", FrontendObserved: model.FrontendObserved{State: model.FrontendBalanced, Mode: model.ModeNAT, DataPlane: model.DataPlaneXDP, Available: 1, Message: "10.0.0.2:8080 is on no machine of ours"}},
		},
	})
}

// The IngressRoutes that share a VIP have no name.
func TestFlowOfIngressRoutes(t *testing.T) {
	for namespace, want := range map[string]string{"": "by the root IngressRoutes that share an address\n", "team": "by all IngressRoutes of team\n"} {
		var got strings.Builder
		e := v1.FlowExplanation{Frontend: &v1.Frontend{Owner: v1.Object{Kind: "IngressRoute", Namespace: namespace}}}
		if err := WriteFlowExplanation(&got, e); err != nil || !strings.Contains(got.String(), want) {
			t.Errorf("%v, %s", err, got.String())
		}
	}
}

// Services of upstreams are named, with the age of what is in effect.
func TestFlowToADiscoveredService(t *testing.T) {
	r, err := explain.NewFlowRequest("tcp://192.0.2.1:80", "198.51.100.7:40000", "")
	if err != nil {
		t.Fatal(err)
	}
	answered := explain.Flow(r, explain.FlowWorld{
		Balanced: &model.Balanced{Frontend: &model.Frontend{FrontendKey: r.Frontend, Owner: model.Object{Kind: "Service", Namespace: "team", Name: "up01-app"}}},
		Groups:   []explain.Group{{Upstream: &explain.Discovered{Upstream: "up01", Object: "Service team/app", Age: 3 * time.Second}}},
	})
	text, err := json.Marshal(answered)
	if err != nil {
		t.Fatal(err)
	}
	var e v1.FlowExplanation
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := WriteFlowExplanation(&got, e); err != nil || !strings.Contains(got.String(), "Service team/app of Upstream up01, listed 3s ago") {
		t.Errorf("%v, %s", err, got.String())
	}
}

func TestExplainFlowOverHTTP(t *testing.T) {
	fails := false
	server := httptest.NewServer(Handler(Config{
		Health: health{}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		ExplainFlow: func(_ context.Context, r explain.FlowRequest) (explain.FlowExplanation, error) {
			if fails {
				return explain.FlowExplanation{}, errors.New("not all read yet")
			}
			return explainedFlow(r), nil
		},
	}))
	defer server.Close()
	client := Client{HTTP: server.Client(), URL: server.URL}
	r, err := explain.NewFlowRequest("tcp://192.0.2.1:80", "198.51.100.7:40000", "")
	if err != nil {
		t.Fatal(err)
	}
	e, err := client.ExplainFlow(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := WriteFlowExplanation(&got, e); err != nil {
		t.Fatal(err)
	}
	want := `tcp://192.0.2.1:80, from 198.51.100.7:40000

-> frontend tcp://192.0.2.1:80
            by Service team/app
            edge-1,edge-2: balanced, mode NAT by XDP (10.0.0.2:8080 is on no machine of ours)

-> row      3848 of 4096, by hash 8e6275e5b0484f08 of client address and port, VIP and port, protocol
            1. 10.0.0.1:8080 on machine node-1: ready, weight 100, 100.0% of the rows, healthy
               first of the row: takes the flow if it is new

-> answer   a new flow goes to 10.0.0.1:8080 on machine node-1
`
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
	for _, query := range []string{"", "?url=tcp://192.0.2.1:80", "?url=http://a.test&from=198.51.100.7:1"} {
		if _, err := client.Get(t.Context(), v1.ExplainFlowPath+query); err == nil || !strings.Contains(err.Error(), "400") {
			t.Errorf("%q: %v, want 400", query, err)
		}
	}
	fails = true
	if _, err := client.ExplainFlow(t.Context(), r); err == nil || !strings.Contains(err.Error(), "not all read yet") {
		t.Errorf("a plane that cannot tell: %v", err)
	}
}

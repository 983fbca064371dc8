package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
)

func explaining(t *testing.T, f func(context.Context, explain.Request) (explain.Explanation, error)) Client {
	t.Helper()
	server := httptest.NewServer(Handler(Config{Health: health{}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Explain: f}))
	t.Cleanup(server.Close)
	return Client{URL: server.URL, HTTP: server.Client()}
}

// explanation has something in every step.
func explanation(r explain.Request) explain.Explanation {
	route := model.Object{Kind: "HTTPRoute", Namespace: "team", Name: "app"}
	forward := func(name string, m model.Match, shares ...model.WeightedGroup) model.Route {
		return model.Route{Name: "HTTPRoute/team/app/" + name, Owner: route, Match: m, Forward: &model.Forward{Backends: shares, Path: &model.PathRewrite{Kind: model.RewritePrefix, Value: "/v1"}}}
	}
	segments := func(p string) model.Match {
		return model.Match{Path: model.PathMatch{Kind: model.PathSegments, Value: p}}
	}
	host := model.VirtualHost{HostKey: model.HostKey{Listener: "http-80", Host: "*.test"}, Routes: []model.Route{
		forward("rules/0/matches/0", segments("/other")),
		forward("rules/1/matches/0", segments("/api"), model.WeightedGroup{Group: "team/app/80", Weight: 2}, model.WeightedGroup{Weight: 1}),
		forward("rules/2/matches/0", segments("/")),
	}}
	vip := model.VIPStatus{
		Assignment: model.Assignment{
			Address: netip.MustParseAddr("192.0.2.80"), Pool: "public", Mode: model.AnnounceBGP, Owner: model.Object{Kind: "Gateway", Namespace: "default", Name: "edge"},
			Listeners: []model.ListenerID{"http-80"}, Machines: []string{"edge-1", "edge-2"},
		},
		State: "announced", At: []model.VIPAt{
			{Machine: "edge-1", VIPObserved: model.VIPObserved{State: model.VIPAnnounced}},
			{Machine: "edge-2", VIPObserved: model.VIPObserved{State: model.VIPWithheld, Message: "the machine is cordoned"}},
		},
	}
	return explain.Explain(r, explain.World{
		Listeners: []model.Listener{{ID: "http-80", Port: 80, Protocol: model.ProtocolHTTP}},
		VirtualHost: func(k model.HostKey) *model.VirtualHost {
			if k == host.HostKey {
				return &host
			}
			return nil
		},
		Group: func(id model.GroupID) *model.BackendGroup { return &model.BackendGroup{ID: id, Set: model.SetID(id)} },
		Set: func(id model.SetID) *model.BackendSet {
			return &model.BackendSet{ID: id, Backends: []model.Backend{
				{Address: netip.MustParseAddrPort("10.1.0.1:80"), Weight: 3, Zone: "a"}, {Address: netip.MustParseAddrPort("10.1.0.9:80"), Backup: true}, {Address: netip.MustParseAddrPort("[fd00::1]:80"), State: model.BackendDraining},
			}}
		},
		Serving: func(model.ListenerID) []string { return []string{"edge-1", "edge-2"} },
		ListenerBy: func(model.ListenerID) []explain.Source {
			return []explain.Source{{Object: vip.Owner, Field: "spec.listeners[0]"}}
		},
		Where: func(o model.Object, field string) string {
			return map[string]string{"spec.rules[1].matches[0]": "app.yaml:12"}[field]
		},
		VIPs:     []model.VIPStatus{vip},
		Machines: []model.MachineStatus{{Name: "edge-1", Connected: true, Proxy: model.ProxyStatus{State: "ready"}, Applied: 3, Wanted: 4}},
		Problems: []model.Problem{{Severity: model.SeverityError, Subject: route.String(), Reason: "BackendNotFound", Message: "Service team/b not found"}},
	})
}

func TestExplainOverHTTP(t *testing.T) {
	client := explaining(t, func(_ context.Context, r explain.Request) (explain.Explanation, error) { return explanation(r), nil })
	o := explain.Options{URL: "http://a.test/api?x=y&z=%20", Method: "PUT", Headers: []string{"X-A: b=c&d", "Host: b.test"}, VIP: "192.0.2.80", From: "fd00::7"}
	got, err := client.Explain(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := explain.NewRequest(o)
	if err != nil {
		t.Fatal(err)
	}
	if want := as[v1.Explanation](t, explanation(r)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}

	for query, says := range map[string]string{
		"":                             "url: must be given",
		"?url=a.test":                  "it has no scheme",
		"?url=http://a.test/&from=me":  `from "me"`,
		"?url=http://a.test/&header=x": `header "x"`,
		"?url=http://a.test/&vips=x":   `parameter "vips" is unknown`,
		"?url=http://a/&url=http://b/": "url is given 2 times",
		"?url=http://a/&method=%zz":    "the query: invalid URL escape",
	} {
		body, err := client.Get(t.Context(), v1.ExplainPath+query)
		if err == nil || !strings.Contains(err.Error(), "400 Bad Request") || !strings.Contains(string(body), says) {
			t.Errorf("%s: %v, %s", query, err, body)
		}
	}
	response, err := client.HTTP.Post(client.URL+v1.ExplainPath+"?url=http://a.test/", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 405 {
		t.Errorf("POST: %s", response.Status)
	}

	failing := explaining(t, func(context.Context, explain.Request) (explain.Explanation, error) {
		return explain.Explanation{}, errors.New("not all read yet")
	})
	if _, err := failing.Explain(t.Context(), o); err == nil || !strings.Contains(err.Error(), "503 Service Unavailable: not all read yet") {
		t.Errorf("a plane that cannot tell: %v", err)
	}
}

// What a listener, a host and a share have in common with many resources is told of a few, with
// the number of the others.
func TestExplanationCountsWhatItLeavesOut(t *testing.T) {
	var all []explain.Source
	for i := range 9 {
		all = append(all, explain.Source{Object: model.Object{Kind: "IngressRoute", Namespace: "team", Name: "root-" + string(rune('a'+i))}})
	}
	e := explain.Explain(explain.Request{Scheme: "http", Host: "a.test", Port: 80, Path: "/", Method: "GET"}, explain.World{
		Listeners:   []model.Listener{{ID: "http-80", Port: 80}},
		VirtualHost: func(k model.HostKey) *model.VirtualHost { return &model.VirtualHost{HostKey: k} },
		ListenerBy:  func(model.ListenerID) []explain.Source { return slices.Clone(all) },
		HostBy:      func(model.HostKey) []explain.Source { return slices.Clone(all[:4]) },
		Serving:     func(model.ListenerID) []string { return nil },
	})
	var got strings.Builder
	if err := WriteExplanation(&got, as[v1.Explanation](t, e)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"by IngressRoute team/root-c\n            and by 6 more\n",
		"by IngressRoute team/root-c\n            and by 1 more\n",
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, got.String())
		}
	}
}

func TestWriteExplanation(t *testing.T) {
	r, err := explain.NewRequest(explain.Options{URL: "http://a.test/./api/x", Headers: []string{"X-A: b"}, From: "203.0.113.7"})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := WriteExplanation(&got, as[v1.Explanation](t, explanation(r))); err != nil {
		t.Fatal(err)
	}
	want := `GET http://a.test/./api/x, x-a: b, from 203.0.113.7

-> VIP      192.0.2.80, BGP of AddressPool public spec.addresses, announced
            by Gateway default/edge
            announced by edge-1
            not by edge-2: the machine is cordoned

-> edge     edge-1: it alone announces the address
            edge-1 at 192.0.2.80: it does not run the last change yet

-> listener http-80, port 80, HTTP, at edge-1,edge-2
            by Gateway default/edge spec.listeners[0]

-> host     *.test, for a.test: there is no a.test
            the path is routed as /api/x

-> route    path /api and below
            by HTTPRoute team/app spec.rules[1].matches[0] (app.yaml:12)
            not HTTPRoute team/app spec.rules[0].matches[0]: the path is neither /other nor below it
            would take it too: HTTPRoute team/app spec.rules[2].matches[0]
            backends see the path /v1/x
            no timeout but 5m0s of silence, 2 retries of failed and broken connections

-> backends 66.7% to team/app/80, weight 2
            weights by HTTPRoute team/app spec.rules[1].backendRefs
            by Service team/app spec.ports
            10.1.0.1:80 ready, weight 3, 66.7%, zone a
            10.1.0.9:80 ready, backup, 0%
            [fd00::1]:80 draining, 0%

-> backends 33.3% to a broken reference, weight 1

-> answer   a backend answers 66.7%; the proxy answers 500 to 33.3%: the reference to the backend is broken

Problems (1)
  error  HTTPRoute team/app: BackendNotFound
         Service team/b not found
`
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
}

// TestWriteConnections: where connections go on to backends, and no requests, there is no route.
func TestWriteConnections(t *testing.T) {
	e := v1.Explanation{TLS: &v1.TLSStep{ServerName: "db.test", Host: "db.test", TCP: true}, Groups: []v1.GroupStep{{Group: "team/db/5432", Weight: 1, Percent: 100}}}
	var got strings.Builder
	if err := WriteExplanation(&got, e); err != nil {
		t.Fatal(err)
	}
	if want := "100% to team/db/5432, weight 1"; !strings.Contains(got.String(), want) {
		t.Errorf("it does not say %q:\n%s", want, got.String())
	}
}

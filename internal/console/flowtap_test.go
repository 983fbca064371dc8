package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

func TestFlowTap(t *testing.T) {
	asked := make(chan model.FlowTapQuery, 1)
	server := httptest.NewServer(flowTapHandler(func(ctx context.Context, q model.FlowTapQuery, show func(model.FlowTapEvent) error) error {
		if q.Of == "shop/none" {
			return None("no frontend matches")
		}
		asked <- q
		if err := show(model.FlowTapEvent{Machines: []model.FlowTapMachine{{Machine: "edge-1", Notes: []string{"XDP: all"}}}, Dropped: 3}); err != nil {
			return err
		}
		for {
			e := model.FlowEvent{Machine: "edge-1", Kind: model.FlowMove, Reason: model.FlowGone, Client: netip.MustParseAddrPort("198.51.100.7:1")}
			if err := show(model.FlowTapEvent{Event: &e}); err != nil || ctx.Err() != nil {
				return err
			}
		}
	}))
	defer server.Close()
	client := Client{URL: server.URL, HTTP: http.DefaultClient}
	events, dropped, notes := 0, uint64(0), ""
	q := FlowTapQuestion{Of: "shop/db", Namespace: "shop", Client: "198.51.100.0/24", Backend: "[2001:db8::1]", Limit: 2}
	err := client.TapFlows(t.Context(), q, func(e v1.FlowTapEvent) error {
		dropped += e.Dropped
		for _, m := range e.Machines {
			notes += m.Notes[0]
		}
		if e.Event != nil {
			if events++; !strings.Contains(FlowText(*e.Event), "one that is not known any more") {
				t.Error(FlowText(*e.Event))
			}
		}
		return nil
	})
	if err != nil || events != 2 || dropped != 3 || notes != "XDP: all" {
		t.Errorf("%d events, %d dropped, %q, %v", events, dropped, notes, err)
	}
	want := model.FlowTapQuery{Of: "shop/db", Namespace: "shop", Client: netip.MustParsePrefix("198.51.100.0/24"), Backend: netip.MustParseAddr("2001:db8::1")}
	if got := <-asked; got != want {
		t.Errorf("asked %+v", got)
	}
	never := func(v1.FlowTapEvent) error { t.Error("something is shown"); return nil }
	if err := client.TapFlows(t.Context(), FlowTapQuestion{Of: "shop/none"}, never); err == nil || !strings.Contains(err.Error(), "no frontend matches") {
		t.Error(err)
	}
	for _, q := range []FlowTapQuestion{{Client: "x"}, {Backend: "10.0.0.0/8"}, {Limit: -1}, {Of: strings.Repeat("a", 600)}} {
		if _, err := q.Parse(); err == nil {
			t.Errorf("%+v is a question", q)
		}
	}
}

// The right to see flows as they begin and end is no other right, however the question is asked.
func TestFlowTapIsARightOfItsOwn(t *testing.T) {
	for uri, want := range map[string]Right{
		"/v1/tap/flows": {Verb: "tap", Resource: "flows"},
		"/v1/tap/flows?namespace=shop&watch=true": {Verb: "tap", Resource: "flows", Namespace: "shop"},
	} {
		if q, err := About(httptest.NewRequest(http.MethodGet, uri, nil)); err != nil || q != want {
			t.Errorf("%s: %+v, %v", uri, q, err)
		}
	}
}

// What machines and resources say moves no cursor and is one line.
func TestFlowTapIsPlainText(t *testing.T) {
	evil := "x\x1b[2J\u202e\n\u009by"
	text := FlowText(v1.FlowEvent{Machine: evil, Owner: evil, Kind: evil, Reason: evil, BackendMachine: evil, Backend: netip.MustParseAddrPort("10.0.0.1:1")})
	if strings.ContainsAny(text, "\x1b\u202e\n\u009b") {
		t.Errorf("%q", text)
	}
}

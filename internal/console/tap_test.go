package console

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

func TestTap(t *testing.T) {
	asked := make(chan model.TapFilter, 1)
	server := httptest.NewServer(tapHandler(func(ctx context.Context, f model.TapFilter, show func(model.TapEvent) error) error {
		if f.Host == "full.test" {
			return errors.New("32 taps are open already")
		}
		asked <- f
		if err := show(model.TapEvent{Machines: []model.TapMachine{{Machine: "edge-1", Percent: 100}}, Dropped: 3}); err != nil {
			return err
		}
		for {
			if err := show(model.TapEvent{Record: &model.TapRecord{Machine: "edge-1", Path: "/a\n\ndata: x", Status: 200}}); err != nil || ctx.Err() != nil {
				return err
			}
		}
	}))
	defer server.Close()
	client := Client{URL: server.URL, HTTP: http.DefaultClient}
	records, dropped := 0, uint64(0)
	q := TapQuestion{Kind: "HTTPRoute", Namespace: "shop", Name: "cart", Host: "A.test", Path: "/x", Status: "5xx", Header: "X-Version: two", Latency: time.Second, Limit: 2}
	err := client.Tap(t.Context(), q, func(e v1.TapEvent) error {
		dropped += e.Dropped
		if e.Record != nil {
			if records++; e.Record.Path != "/a\n\ndata: x" {
				t.Errorf("record: %+v", e.Record)
			}
		}
		return nil
	})
	if err != nil || records != 2 || dropped != 3 {
		t.Errorf("%d records, %d dropped, %v", records, dropped, err)
	}
	want := model.TapFilter{Kind: "HTTPRoute", Namespace: "shop", Name: "cart", Host: "a.test", Path: "/x", StatusFrom: 500, StatusTo: 599, Header: "x-version", Value: "two", SlowerThan: time.Second}
	if f := <-asked; f != want {
		t.Errorf("filter: %+v", f)
	}
	never := func(v1.TapEvent) error { t.Error("something is shown"); return nil }
	for host, text := range map[string]string{"full.test": "32 taps are open already"} {
		if err := client.Tap(t.Context(), TapQuestion{Host: host}, never); err == nil || !strings.Contains(err.Error(), text) {
			t.Error(err)
		}
	}
	for _, q := range []TapQuestion{{Status: "6xx"}, {Status: "404-200"}, {Header: "authorization"}, {Header: "x-of-nobody"}, {Limit: -1}, {Path: strings.Repeat("a", 600)}} {
		if _, err := q.Filter(); err == nil {
			t.Errorf("%+v is a question", q)
		}
	}
}

// The right to see single requests is no other right, however the question is asked.
func TestTapIsARightOfItsOwn(t *testing.T) {
	for uri, want := range map[string]Right{
		"/v1/tap":                           {Verb: "tap", Resource: "requests"},
		"/v1/tap?namespace=shop&watch=true": {Verb: "tap", Resource: "requests", Namespace: "shop"},
	} {
		if q, err := About(httptest.NewRequest(http.MethodGet, uri, nil)); err != nil || q != want {
			t.Errorf("%s: %+v, %v", uri, q, err)
		}
	}
}

// A request of which nothing could be read is told as such.
func TestTapText(t *testing.T) {
	r := v1.TapRecord{Machine: "edge-1", Method: "GET", Host: "a.test", Path: "/b", Status: 200, Client: "192.0.2.1:5"}
	for want, change := range map[string]func(*v1.TapRecord){
		" edge-1 200 GET a.test/b in 0s, (no route), from 192.0.2.1:5":            func(*v1.TapRecord) {},
		" edge-1 200 (other method) a.test/b in 0s, (no route), from 192.0.2.1:5": func(r *v1.TapRecord) { r.Method = "" },
		" edge-1 400 (no readable request) in 0s (http1.codec_error), (no route), from 192.0.2.1:5": func(r *v1.TapRecord) {
			r.Method, r.Host, r.Path, r.Status, r.Details = "", "", "", 400, "http1.codec_error"
		},
	} {
		r := r
		change(&r)
		if got := TapText(r); !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What clients send moves no cursor and is one line.
func TestTapIsPlainText(t *testing.T) {
	evil := "x\x1b[2J\u202e\n\u009by"
	text := TapText(v1.TapRecord{
		Machine: evil, Owner: evil, Rule: evil, Service: evil, Backend: evil, Client: evil, Method: evil, Host: evil, Path: evil, Details: evil,
	})
	if strings.ContainsAny(text+PlainText(evil), "\x1b\u202e\n\u009b") {
		t.Errorf("%q", text)
	}
}

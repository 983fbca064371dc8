package traffic

import (
	"math"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// TestTimesOfSampledRequests: times are those of the last seconds, within 5 %, of routes and of hosts that are no pattern.
func TestTimesOfSampledRequests(t *testing.T) {
	var times Times
	for i := range 1000 {
		times.Add(start, &model.TapRecord{Route: shop, Host: "A.test:8080", Seconds: float64(i+1) / 1000})
	}
	before := Sample{At: start, Requests: map[string][]model.RequestFigures{"edge": {counted("http", "a.test", shop, 1, 0), counted("http", "b.test", news, 1, 0)}}}
	after := Sample{At: start.Add(time.Second), Requests: map[string][]model.RequestFigures{"edge": {counted("http", "a.test", shop, 3, 0), counted("http", "b.test", news, 9, 0)}}}
	for _, by := range []By{Routes, Hosts} {
		got := Rates(before, after, Query{By: by, Sort: ByTime}, &times)
		if r := got.Rows[0]; len(got.Rows) != 2 || r.Timed != 1000 || math.Abs(r.P50/0.5-1) > 0.05 || math.Abs(r.P99/0.99-1) > 0.05 {
			t.Errorf("%s: %+v", by, got.Rows)
		}
		if got.Rows[1].Timed != 0 {
			t.Errorf("%s: a route without samples has times: %+v", by, got.Rows[1])
		}
		after.At = start.Add(time.Minute)
		if got := Rates(before, after, Query{By: by}, &times); got.Rows[0].Timed+got.Rows[1].Timed != 0 {
			t.Errorf("%s: a minute later there are times: %+v", by, got.Rows)
		}
		after.At = start.Add(time.Second)
	}
	for i := range 2 * mostTimed {
		times.Add(start, &model.TapRecord{Route: "HTTPRoute/team/" + time.Duration(i).String() + "/rules/0", Seconds: 1})
	}
	for _, p := range times.parts {
		if len(p.names) > mostTimed {
			t.Errorf("%d names are kept", len(p.names))
		}
	}
}

// TestTotalsAndFlows: namespaces and upstreams have the times and bytes of totals, frontends and backends what data planes count.
func TestTotalsAndFlows(t *testing.T) {
	volume := func(n uint64) model.Volume {
		v := model.Volume{Received: 100 * n, Sent: 1000 * n, Answers: [model.StatusClasses]uint64{2: n}}
		v.Seconds.Add(0.2, n)
		return v
	}
	frontend := func(flows uint64) []model.FrontendFigures {
		key, err := model.ParseFrontend("tcp://192.0.2.1:443")
		if err != nil {
			t.Fatal(err)
		}
		return []model.FrontendFigures{{FrontendKey: key, NewFlows: flows, Bytes: 10 * flows, Backends: []model.BackendFigures{{NewFlows: flows, Bytes: 10 * flows}}}}
	}
	sample := func(at time.Time, n uint64) Sample {
		return Sample{
			At: at, Requests: map[string][]model.RequestFigures{"edge": {counted("http", "a.test", shop, n, 0)}},
			Totals: map[string][]model.TrafficTotal{"edge": {
				{By: "namespaces", Name: "team01", Volume: volume(n)}, {By: "listeners", Name: "http", Volume: volume(n)}, {By: "upstreams", Name: "east", Volume: volume(n)},
			}},
			Frontends: map[string][]model.FrontendFigures{"edge": frontend(n)},
		}
	}
	before, after := sample(start, 10), sample(start.Add(2*time.Second), 30)
	for _, by := range []By{Namespaces, Listeners, Upstreams} {
		got := Rates(before, after, Query{By: by}, nil)
		if len(got.Rows) != 1 {
			t.Fatalf("%s: %+v", by, got.Rows)
		}
		if r := got.Rows[0]; r.Rate != 10 || r.Rates[2] != 10 || r.Requests != 30 || r.Timed != 20 || r.P99 < 0.18 || r.P99 > 0.22 || r.Received != 1000 || r.Sent != 10_000 {
			t.Errorf("%s: %+v", by, r)
		}
	}
	if got := Rates(before, after, Query{By: Listeners, Namespace: "team01"}, nil); got.Rows[0].Timed != 0 || got.Rows[0].Sent != 0 {
		t.Errorf("who asks for a namespace is told of others: %+v", got.Rows)
	}
	for _, by := range []By{Frontends, Backends} {
		if got := Rates(before, after, Query{By: by}, nil); len(got.Rows) != 1 || got.Rows[0].Rate != 10 || got.Rows[0].Received != 100 || got.Rows[0].Requests != 30 {
			t.Errorf("%s: %+v", by, got.Rows)
		}
	}
	// Another proxy and another data plane count from zero.
	if got := Rates(after, sample(start.Add(4*time.Second), 4), Query{By: Upstreams}, nil); got.Rows[0].Rate != 2 {
		t.Errorf("after a restart: %+v", got.Rows)
	}
	if got := Rates(after, sample(start.Add(4*time.Second), 4), Query{By: Frontends}, nil); got.Rows[0].Rate != 2 {
		t.Errorf("after a restart: %+v", got.Rows)
	}
}

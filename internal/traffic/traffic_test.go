package traffic

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

func counted(listener, host, route string, ok, failed uint64) model.RequestFigures {
	return model.RequestFigures{Listener: model.ListenerID(listener), Host: host, Route: route, Classes: [model.StatusClasses]uint64{2: ok, 5: failed}}
}

const (
	shop = "HTTPRoute/team01/shop/rules/0/matches/0"
	cart = "HTTPRoute/team01/shop/rules/1/matches/0"
	news = "IngressRoute/team02/news/routes/0"
)

var start = time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)

func TestRates(t *testing.T) {
	before := Sample{At: start, Requests: map[string][]model.RequestFigures{
		"edge-1": {counted("http", "a.test", shop, 100, 10), counted("http", "b.test", news, 50, 0)},
		"edge-2": {counted("http", "a.test", shop, 1000, 0)},
		"gone":   {counted("http", "a.test", shop, 1, 1)},
	}}
	after := Sample{At: start.Add(2 * time.Second), Requests: map[string][]model.RequestFigures{
		"edge-1": {counted("http", "a.test", shop, 120, 14), counted("http", "a.test", cart, 6, 0), counted("http", "b.test", news, 50, 0), counted("http", "", "", 4, 0)},
		"edge-2": {counted("http", "a.test", shop, 30, 0)}, // its proxy began again
		"new":    {counted("http", "a.test", shop, 7, 7)},
	}}
	rates := func(ok, failed float64) [model.StatusClasses]float64 {
		return [model.StatusClasses]float64{2: ok, 5: failed}
	}
	for _, c := range []struct {
		name string
		q    Query
		want []model.TopRow
	}{
		{"routes", Query{By: Routes}, []model.TopRow{
			{Name: "HTTPRoute/team01/shop", Rate: 30, Rates: rates(28, 2), Requests: 170},
			{Name: None, Rate: 2, Rates: rates(2, 0), Requests: 4},
			{Name: "IngressRoute/team02/news", Requests: 50},
		}},
		{"hosts", Query{By: Hosts, Sort: ByName, Limit: 2}, []model.TopRow{
			{Name: None, Rate: 2, Rates: rates(2, 0), Requests: 4},
			{Name: "a.test", Rate: 30, Rates: rates(28, 2), Requests: 170},
		}},
		{"a namespace", Query{By: Namespaces, Namespace: "team02"}, []model.TopRow{{Name: "team02", Requests: 50}}},
		{"errors", Query{By: Listeners, Sort: ByErrors}, []model.TopRow{{Name: "http", Rate: 32, Rates: rates(30, 2), Requests: 224}}},
	} {
		got := Rates(before, after, c.q, nil)
		if got.Seconds != 2 || !reflect.DeepEqual(got.Machines, []string{"edge-1", "edge-2"}) || !reflect.DeepEqual(got.Rows, c.want) {
			t.Errorf("%s: got %+v\nwant %+v", c.name, got, c.want)
		}
	}
	if got := Rates(before, after, Query{By: Hosts, Limit: 1}, nil); got.Total != 3 || got.Rate != 32 || len(got.Rows) != 1 {
		t.Errorf("limited: %+v", got)
	}
	if got := Rates(after, after, Query{By: Routes}, nil); got.Rows[0].Rate != 0 {
		t.Errorf("of no time: %+v", got.Rows[0])
	}
}

func TestTotalsNeverShrink(t *testing.T) {
	totals := NewTotals(Hosts, 2)
	take := func(want map[string]uint64, figures ...model.RequestFigures) {
		t.Helper()
		totals.Take(figures)
		got := map[string]uint64{}
		totals.All(func(name string, class model.StatusClass, n uint64) { got[name+" "+class.String()] = n })
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	a, b, c := counted("http", "a.test", shop, 5, 1), counted("http", "b.test", shop, 3, 0), counted("http", "c.test", shop, 2, 0)
	take(map[string]uint64{"a.test 2xx": 5, "a.test 5xx": 1}, a)
	take(map[string]uint64{"a.test 2xx": 5, "a.test 5xx": 1, "b.test 2xx": 3, "other 2xx": 2}, a, b, c)
	take(map[string]uint64{"a.test 2xx": 5, "a.test 5xx": 1, "b.test 2xx": 3, "other 2xx": 2}, a, b, c)
	a.Classes[2] = 1 // another proxy
	take(map[string]uint64{"a.test 2xx": 6, "a.test 5xx": 2, "b.test 2xx": 3, "other 2xx": 2}, a)
	b.Classes[2] = 4
	take(map[string]uint64{"a.test 2xx": 6, "a.test 5xx": 2, "b.test 2xx": 7, "other 2xx": 2}, a, b)
}

func TestParse(t *testing.T) {
	for _, by := range All {
		if got, err := Parse(string(by)); got != by || err != nil {
			t.Errorf("%s: %s, %v", by, got, err)
		}
	}
	if _, err := Parse("route"); err == nil {
		t.Error("route is a group")
	}
}

// What one sample of 20,000 routes at three machines costs to compare, and to sort.
func BenchmarkRates(b *testing.B) {
	sample := func(n uint64) Sample {
		s := Sample{At: start.Add(time.Duration(n) * time.Second), Requests: map[string][]model.RequestFigures{}} //nolint:gosec // small
		for _, machine := range []string{"edge-1", "edge-2", "edge-3"} {
			for i := range 20_000 {
				s.Requests[machine] = append(s.Requests[machine], model.RequestFigures{
					Listener: "http-80", Host: fmt.Sprintf("app-%05d.example.com", i), Route: fmt.Sprintf("HTTPRoute/team-%d/app-%05d/rules/0/matches/0", i%500, i),
					Group: model.GroupID(fmt.Sprintf("team-%d/app-%05d/80", i%500, i)), Classes: [model.StatusClasses]uint64{2: n * uint64(i)}, //nolint:gosec // small
				})
			}
		}
		return s
	}
	before, after := sample(1), sample(2)
	b.ReportAllocs()
	for b.Loop() {
		if top := Rates(before, after, Query{By: Routes}, nil); top.Total != 20_000 {
			b.Fatal(top.Total)
		}
	}
}

// The name of a route begins with the key of its owner, by which its series are named.
func TestOwnerKey(t *testing.T) {
	o := model.Object{Kind: "HTTPRoute", Namespace: "team", Name: "app"}
	if got := OwnerKey(o.Key() + "/rules/0/matches/1"); got != o.Key() || got != "HTTPRoute/team/app" {
		t.Errorf("the owner is %q, want %q", got, o.Key())
	}
	for _, name := range []string{"", "HTTPRoute", "HTTPRoute/team"} {
		if got := OwnerKey(name); got != "" {
			t.Errorf("%q has owner %q", name, got)
		}
	}
}

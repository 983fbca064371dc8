package traffic

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// Backends beyond the bounds are counted, and places of backends that go are others'.
func TestLoadsAreBounded(t *testing.T) {
	a, b, c, d := at("10.0.0.1:80"), at("10.0.0.2:80"), at("10.0.0.3:80"), at("10.0.0.4:80")
	l := NewLoads(3, 3, 2)
	l.Keep("g", []netip.AddrPort{a, b, c, d})
	report := func() {
		var list []model.BackendLoad
		for _, address := range []netip.AddrPort{a, b, c, d} {
			list = append(list, model.BackendLoad{Address: address, Requests: 2, Succeeded: 1, InFlight: 1, Timed: 1, Micros: 10})
		}
		l.Add(start, "g", list)
	}
	report()
	report()
	l.Add(start, "unknown", []model.BackendLoad{{Address: a, Requests: 9}})
	one := func(address netip.AddrPort, n uint64, named bool) model.BackendLoad {
		return model.BackendLoad{Address: address, Requests: 2 * n, Succeeded: n, InFlight: 1, Timed: n, Micros: 10 * n, Named: named}
	}
	want := []model.GroupLoad{{Group: "g", Age: time.Second, Backends: []model.BackendLoad{one(a, 2, true), one(b, 2, true), one(c, 2, false)}}}
	if got := l.All(start.Add(time.Second)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if other, n := l.Other(); n != 1 || other != (model.BackendLoad{Requests: 4, Succeeded: 2, InFlight: 1, Timed: 2, Micros: 20}) {
		t.Errorf("other: %d, %+v", n, other)
	}
	l.Keep("g", []netip.AddrPort{b, c, d})
	report()
	l.Add(start, "g", []model.BackendLoad{{Address: b, Requests: 1}}) // nothing in flight elsewhere
	got := l.All(start)[0].Backends
	if len(got) != 3 || !got[1].Named || got[2].Named || got[2].Requests != 2 || got[2].InFlight != 0 || got[0].Requests != 7 {
		t.Errorf("after one has gone: %+v", got)
	}
	if other, n := l.Other(); n != 1 || other.Requests != 6 {
		t.Errorf("other shrinks: %d, %+v", n, other)
	}
	l.Forget("g")
	if got := l.All(start); len(got) != 0 {
		t.Errorf("after the group has gone: %+v", got)
	}
}

// A namespace with very many backends leaves others room, and where there is none, a group is read again once there is.
func TestNamespacesShareBackends(t *testing.T) {
	l := NewLoads(4, 2, 4)
	many := []netip.AddrPort{at("10.0.0.1:80"), at("10.0.0.2:80"), at("10.0.0.3:80")}
	kept := func(group model.GroupID) int { return len(l.groups[group].backends) }
	if !l.Keep("evil/app/80", many) || !l.Keep("evil/other/80", many) || kept("evil/app/80")+kept("evil/other/80") != 2 {
		t.Errorf("a namespace has %d and %d backends, want 2 in all", kept("evil/app/80"), kept("evil/other/80"))
	}
	if !l.Keep("shop/app/80", many) || kept("shop/app/80") != 2 {
		t.Errorf("another namespace has %d, want 2", kept("shop/app/80"))
	}
	if l.Keep("news/app/80", many) || kept("news/app/80") != 0 {
		t.Errorf("a third one has %d, want none before there is room", kept("news/app/80"))
	}
	l.Forget("evil/app/80")
	if !l.Keep("news/app/80", many) || kept("news/app/80") != 2 {
		t.Errorf("then it has %d, want 2", kept("news/app/80"))
	}
}

// A namespace with many backends leaves others series of their own.
func TestNamespacesShareSeriesOfBackends(t *testing.T) {
	l := NewLoads(100, 100, 4)
	report := func(group model.GroupID, from, n int) {
		var backends []netip.AddrPort
		var loads []model.BackendLoad
		for i := range n {
			address := at(fmt.Sprintf("10.0.0.%d:80", from+i))
			backends = append(backends, address)
			loads = append(loads, model.BackendLoad{Address: address, Requests: 1})
		}
		l.Keep(group, backends)
		l.Add(start, group, loads)
	}
	named := func() map[model.GroupID]int {
		count := map[model.GroupID]int{}
		for _, g := range l.All(start) {
			for _, b := range g.Backends {
				if b.Named {
					count[g.Group]++
				}
			}
		}
		return count
	}
	for _, step := range []struct {
		do   func()
		want map[model.GroupID]int
	}{
		{func() { report("many/a/80", 1, 3); report("many/b/80", 11, 30) }, map[model.GroupID]int{"many/a/80": 3, "many/b/80": 1}},
		{func() { report("few/a/80", 51, 1) }, map[model.GroupID]int{"many/a/80": 3, "few/a/80": 1}},
		{func() { report("few/a/80", 51, 2); report("many/b/80", 11, 30) }, map[model.GroupID]int{"many/a/80": 2, "few/a/80": 2}},
		{func() { l.Forget("few/a/80"); report("many/b/80", 11, 30) }, map[model.GroupID]int{"many/a/80": 2, "many/b/80": 2}},
	} {
		step.do()
		if got := named(); !reflect.DeepEqual(got, step.want) {
			t.Errorf("got %v, want %v", got, step.want)
		}
	}
	if _, n := l.Other(); n != 29 {
		t.Errorf("%d are in other", n)
	}
}

// Rates of backends are those of all machines, of one namespace where that is asked for.
func TestRatesOfLoads(t *testing.T) {
	a, b := at("10.0.0.1:80"), at("[2001:db8::1]:80")
	sample := func(when time.Time, n uint64) Sample {
		loads := []model.GroupLoad{
			{Group: "team/app/80", Backends: []model.BackendLoad{{Address: a, Requests: 10 * n, Succeeded: 8 * n, Failed: n, InFlight: 1, Timed: 9 * n, Micros: 90_000 * n}}},
			{Group: "other/app/80~1f", Backends: []model.BackendLoad{{Address: b, Requests: 4 * n, Succeeded: 4 * n}}},
		}
		return Sample{
			At: when, Requests: map[string][]model.RequestFigures{"edge-1": nil, "edge-2": nil},
			Loads: map[string][]model.GroupLoad{"edge-1": loads, "edge-2": loads[:1]},
		}
	}
	before, after := sample(start, 1), sample(start.Add(2*time.Second), 3)
	rows := []model.TopRow{
		{Name: "10.0.0.1:80 of team/app/80", Rate: 20, Rates: [model.StatusClasses]float64{2: 16, 5: 2}, Requests: 60, InFlight: 2, FirstByte: 0.01},
		{Name: "[2001:db8::1]:80 of other/app/80~1f", Rate: 4, Rates: [model.StatusClasses]float64{2: 4}, Requests: 12},
	}
	if got := Rates(before, after, Query{By: Backends}, nil).Rows; !reflect.DeepEqual(got, rows) {
		t.Errorf("got %+v, want %+v", got, rows)
	}
	if got := Rates(before, after, Query{By: Backends, Namespace: "team", Sort: ByTime}, nil).Rows; !reflect.DeepEqual(got, rows[:1]) {
		t.Errorf("of a namespace: %+v", got)
	}
	// Another agent counts from zero.
	if got := Rates(after, sample(start.Add(4*time.Second), 1), Query{By: Backends}, nil).Rows; got[0].Rate != 10 {
		t.Errorf("after a restart: %+v", got)
	}
}

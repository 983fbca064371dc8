package traffic

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"fairlead.dev/internal/model"
)

// Sample is what the proxies of machines have counted until a time.
type Sample struct {
	At       time.Time
	Requests map[string][]model.RequestFigures // by machine, each sorted
	// Totals and Frontends are those of the same machines.
	Totals    map[string][]model.TrafficTotal
	Frontends map[string][]model.FrontendFigures
	Loads     map[string][]model.GroupLoad
}

// Query is what somebody wants to see.
type Query struct {
	By        By
	Namespace string // of the owner of the route; empty: all
	Sort      Sort
	Limit     int // rows; 0: all
}

// shared says that rows are of what namespaces share, and one of them asks: times and bytes of a listener or a host are of all.
func (q Query) shared() bool { return q.Namespace != "" && (q.By == Listeners || q.By == Hosts) }

// Sort is the order of rows. Names decide between equal ones.
type Sort string

// Sorts are the orders there are.
var Sorts = []Sort{ByRate, ByErrors, ByTime, ByName}

// The orders.
const (
	ByRate   Sort = "rate"    // requests a second, the most first
	ByErrors Sort = "errors"  // answers 5xx a second, the most first
	ByTime   Sort = "latency" // the 99th percentile, the largest first
	ByName   Sort = "name"
)

// Rates compares two samples. Machines that are in one of them only are left out: their counters say nothing about the time
// between. A proxy that began meanwhile has smaller counters; what it has counted is since then. Times are those of sampled requests,
// where there are no better ones; they may be nil.
func Rates(before, after Sample, q Query, times *Times) model.Top {
	top := model.Top{Seconds: after.At.Sub(before.At).Seconds(), Machines: []string{}, Rows: []model.TopRow{}}
	c := comparison{query: q, seconds: top.Seconds, rows: map[string]*model.TopRow{}, times: map[string]*model.Histogram{}}
	for _, machine := range slices.Sorted(maps.Keys(after.Requests)) {
		was, both := before.Requests[machine]
		if !both {
			continue
		}
		top.Machines = append(top.Machines, machine)
		switch q.By {
		case Frontends, Backends:
			if q.Namespace == "" { // a frontend is of none
				c.flows(before.Frontends[machine], after.Frontends[machine])
			}
			if q.By == Backends {
				c.loads(before.Loads[machine], after.Loads[machine])
			}
		case Upstreams:
			c.totals(before.Totals[machine], after.Totals[machine], true)
		case Routes, Hosts, Namespaces, Listeners:
			c.requests(was, after.Requests[machine])
			if !q.shared() {
				c.totals(before.Totals[machine], after.Totals[machine], false)
			}
		}
	}
	for name, r := range c.rows {
		seconds := c.times[name]
		if seconds == nil && !q.shared() {
			seconds = times.of(q.By, name, after.At)
		}
		if seconds != nil && seconds.Count() > 0 {
			r.P50, r.P99, r.Timed = seconds.Quantile(0.5), seconds.Quantile(0.99), seconds.Count()
		}
		top.Rate += r.Rate
		top.Rows = append(top.Rows, *r)
	}
	slices.SortFunc(top.Rows, func(a, b model.TopRow) int { return q.Sort.compare(a, b) })
	top.Total = len(top.Rows)
	if q.Limit > 0 && len(top.Rows) > q.Limit {
		top.Rows = top.Rows[:q.Limit]
	}
	return top
}

// comparison adds up what machines have counted between two samples.
type comparison struct {
	query   Query
	seconds float64
	rows    map[string]*model.TopRow
	times   map[string]*model.Histogram
	waits   map[string]wait // of backends
}

func (c *comparison) row(name string) *model.TopRow {
	if c.rows[name] == nil {
		c.rows[name] = &model.TopRow{Name: name}
	}
	return c.rows[name]
}

// requests adds the requests of a machine. Both lists are sorted.
func (c *comparison) requests(was, now []model.RequestFigures) {
	for i := range now {
		f := &now[i]
		for len(was) > 0 && was[0].Compare(*f) < 0 {
			was = was[1:]
		}
		old := [model.StatusClasses]uint64{}
		if len(was) > 0 && was[0].Key() == f.Key() {
			old = was[0].Classes
		}
		if _, namespace, _ := Owner(f.Route); c.query.Namespace != "" && namespace != c.query.Namespace {
			continue
		}
		count(c.row(c.query.By.name(f)), f, old, c.seconds)
	}
}

// totals adds times and bytes of a machine's totals, and answers where nothing else counts them.
func (c *comparison) totals(was, now []model.TrafficTotal, answers bool) {
	old := map[string]*model.Volume{}
	for i := range was {
		if was[i].By == string(c.query.By) {
			old[was[i].Name] = &was[i].Volume
		}
	}
	for i := range now {
		t := &now[i]
		if t.By != string(c.query.By) || c.rows[t.Name] == nil && !answers {
			continue
		}
		more := t.Volume
		if before := old[t.Name]; before != nil {
			if less, grown := t.Less(*before); grown {
				more = less
			}
		}
		r := c.row(t.Name)
		if c.times[t.Name] == nil {
			c.times[t.Name] = &model.Histogram{}
		}
		c.times[t.Name].Merge(more.Seconds)
		if c.seconds <= 0 {
			continue
		}
		r.Received += float64(more.Received) / c.seconds
		r.Sent += float64(more.Sent) / c.seconds
		if !answers {
			continue
		}
		for class, n := range more.Answers {
			r.Requests += t.Answers[class]
			r.Rates[class] += float64(n) / c.seconds
			r.Rate += float64(n) / c.seconds
		}
	}
}

// flows adds new flows and bytes of a machine's frontends, or of their backends.
func (c *comparison) flows(was, now []model.FrontendFigures) {
	type counters struct{ flows, bytes uint64 }
	of := func(list []model.FrontendFigures, each func(name string, n counters)) {
		for _, f := range list {
			if c.query.By == Frontends {
				each(f.String(), counters{f.NewFlows, f.Bytes})
				continue
			}
			for _, b := range f.Backends {
				each(b.Address.String()+" of "+f.String(), counters{b.NewFlows, b.Bytes})
			}
		}
	}
	old := map[string]counters{}
	of(was, func(name string, n counters) { old[name] = n })
	of(now, func(name string, n counters) {
		before := old[name]
		if n.flows < before.flows || n.bytes < before.bytes { // another data plane counts
			before = counters{}
		}
		r := c.row(name)
		r.Requests += n.flows
		if c.seconds > 0 {
			r.Rate += float64(n.flows-before.flows) / c.seconds
			r.Received += float64(n.bytes-before.bytes) / c.seconds
		}
	})
}

// count adds a counter, and how much it has grown a second, to a row.
func count(r *model.TopRow, f *model.RequestFigures, old [model.StatusClasses]uint64, seconds float64) {
	for class, n := range f.Classes {
		r.Requests += n
		if n < old[class] { // another proxy has begun to count
			old = [model.StatusClasses]uint64{}
		}
	}
	for class, n := range f.Classes {
		if rate := float64(n-old[class]) / seconds; seconds > 0 {
			r.Rates[class] += rate
			r.Rate += rate
		}
	}
}

func (s Sort) compare(a, b model.TopRow) int {
	byName := cmp.Compare(a.Name, b.Name)
	switch s {
	case ByName:
		return byName
	case ByTime:
		return cmp.Or(cmp.Compare(b.P99, a.P99), cmp.Compare(b.FirstByte, a.FirstByte), cmp.Compare(b.Rate, a.Rate), byName)
	case ByRate:
	case ByErrors:
		return cmp.Or(cmp.Compare(b.Rates[5], a.Rates[5]), cmp.Compare(b.Rate, a.Rate), byName)
	}
	return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Requests, a.Requests), byName)
}

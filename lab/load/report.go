package load

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what came of a load.
type Report struct {
	Started time.Time
	Elapsed time.Duration
	// Requests that were counted: OK and Failed together.
	Requests, OK, Failed int
	// Failures by kind. Their counts add up to Failed.
	Failures map[Kind]Failure
	// Answers counts the good answers by the name that they bear.
	Answers map[string]int
	// Statuses counts the answers by HTTP status.
	Statuses map[int]int
	// Connections that were made.
	Connections int
	// Latency of the good answers.
	Latency Latency

	events []event // by start
}

// Failure is one kind of failure.
type Failure struct {
	Count int `json:"count"`
	// First is the earliest one's text, FirstAt when it started, counted from the
	// start of the load.
	First   string        `json:"first"`
	FirstAt time.Duration `json:"-"`
}

// Latency holds exact percentiles.
type Latency struct {
	P50, P90, P99, P999, Max time.Duration
}

// event is one request: when it started, how long it took, how it ended.
type event struct {
	at, took time.Duration
	failed   bool
}

// collector gathers one client's results.
type collector struct {
	connections int
	events      []event
	failures    map[Kind]Failure
	answers     map[string]int
	statuses    map[int]int
}

func newCollector() *collector {
	return &collector{failures: map[Kind]Failure{}, answers: map[string]int{}, statuses: map[int]int{}}
}

func (c *collector) add(started time.Time, r Result) {
	at := r.Start.Sub(started)
	c.events = append(c.events, event{at: at, took: r.Latency, failed: r.Kind != ""})
	if r.Status != 0 {
		c.statuses[r.Status]++
	}
	if r.Kind == "" {
		c.answers[r.Name]++
		return
	}
	f, seen := c.failures[r.Kind]
	if !seen {
		f.First, f.FirstAt = fmt.Sprint(r.Err), at
	}
	f.Count++
	c.failures[r.Kind] = f
}

func summarise(started, ended time.Time, collected []*collector) Report {
	r := Report{
		Started: started, Elapsed: ended.Sub(started),
		Failures: map[Kind]Failure{}, Answers: map[string]int{}, Statuses: map[int]int{},
	}
	for _, c := range collected {
		r.absorb(c.failures, c.answers, c.statuses)
		r.Connections += c.connections
		r.events = append(r.events, c.events...)
	}
	r.finish()
	return r
}

func (r *Report) absorb(failures map[Kind]Failure, answers map[string]int, statuses map[int]int) {
	for kind, f := range failures {
		have, seen := r.Failures[kind]
		if !seen || f.FirstAt < have.FirstAt {
			have.First, have.FirstAt = f.First, f.FirstAt
		}
		have.Count += f.Count
		r.Failures[kind] = have
	}
	for name, n := range answers {
		r.Answers[name] += n
	}
	for status, n := range statuses {
		r.Statuses[status] += n
	}
}

// finish computes what follows from the events.
func (r *Report) finish() {
	slices.SortStableFunc(r.events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	var good []time.Duration
	for _, e := range r.events {
		if !e.failed {
			good = append(good, e.took)
		}
	}
	slices.Sort(good)
	r.Requests, r.OK = len(r.events), len(good)
	r.Failed = r.Requests - r.OK
	if n := len(good); n > 0 {
		at := func(permille int) time.Duration { return good[min(n*permille/1000, n-1)] }
		r.Latency = Latency{P50: at(500), P90: at(900), P99: at(990), P999: at(999), Max: good[n-1]}
	}
}

// Merge adds up reports of loads that ran side by side. Times count from the
// earliest start.
func Merge(reports ...Report) Report {
	sum := Report{Failures: map[Kind]Failure{}, Answers: map[string]int{}, Statuses: map[int]int{}}
	if len(reports) == 0 {
		return sum
	}
	sum.Started = slices.MinFunc(reports, func(a, b Report) int { return a.Started.Compare(b.Started) }).Started
	for _, r := range reports {
		shift := r.Started.Sub(sum.Started)
		sum.Elapsed = max(sum.Elapsed, shift+r.Elapsed)
		sum.Connections += r.Connections
		failures := maps.Clone(r.Failures)
		for kind, f := range failures {
			f.FirstAt += shift
			failures[kind] = f
		}
		sum.absorb(failures, r.Answers, r.Statuses)
		for _, e := range r.events {
			e.at += shift
			sum.events = append(sum.events, e)
		}
	}
	sum.finish()
	return sum
}

// Rate is how many requests were answered well per second.
func (r Report) Rate() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.OK) / r.Elapsed.Seconds()
}

// Back says how long after an event the service was whole again: until the start
// of the first request that was answered well and after which none that started
// later failed. It is 0 when none failed that started after the event or was
// under way then, and false when the load ended before the service was back.
func (r Report) Back(event time.Time) (time.Duration, bool) {
	at := event.Sub(r.Started)
	last := -1
	for i, e := range r.events {
		if e.failed && e.at+e.took >= at {
			last = i
		}
	}
	if last < 0 {
		return 0, true
	}
	for _, e := range r.events[last+1:] {
		if !e.failed && e.at > r.events[last].at {
			return max(e.at-at, 0), true
		}
	}
	return 0, false
}

// Slot is a stretch of time of a load.
type Slot struct {
	OK     int `json:"ok"`
	Failed int `json:"failed"`
}

// Timeline counts requests by the slot of the given width in which they started.
func (r Report) Timeline(width time.Duration) []Slot {
	if len(r.events) == 0 || width <= 0 {
		return nil
	}
	slots := make([]Slot, max(r.events[len(r.events)-1].at, 0)/width+1)
	for _, e := range r.events {
		s := &slots[max(e.at, 0)/width]
		if e.failed {
			s.Failed++
		} else {
			s.OK++
		}
	}
	return slots
}

// String says it in one line: "10000 requests, 0 failed, 5120/s, p50 0.3 ms, p99 1.2 ms".
func (r Report) String() string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%d requests, %d failed", r.Requests, r.Failed)
	if r.Failed > 0 {
		_, _ = fmt.Fprintf(&b, " (%s)", r.Why())
	}
	_, _ = fmt.Fprintf(&b, ", %.0f/s, p50 %.1f ms, p99 %.1f ms", r.Rate(), milliseconds(r.Latency.P50), milliseconds(r.Latency.P99))
	return b.String()
}

// Why names the failures: `connect 12: dial tcp ...: connection refused; 5xx 3: 503 ...`.
// It is empty without failures.
func (r Report) Why() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(r.Failures)) {
		f := r.Failures[kind]
		parts = append(parts, fmt.Sprintf("%s %d: %s", kind, f.Count, f.First))
	}
	return strings.Join(parts, "; ")
}

// MarshalJSON writes numbers in the units that their names say.
func (r Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{
		"started": r.Started.UTC(), "elapsed_s": r.Elapsed.Seconds(),
		"requests": r.Requests, "ok": r.OK, "failed": r.Failed, "requests_per_s": r.Rate(),
		"failures": r.Failures, "answers": r.Answers, "statuses": r.Statuses, "connections": r.Connections,
		"latency_ms": map[string]float64{
			"p50": milliseconds(r.Latency.P50), "p90": milliseconds(r.Latency.P90), "p99": milliseconds(r.Latency.P99),
			"p999": milliseconds(r.Latency.P999), "max": milliseconds(r.Latency.Max),
		},
	})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

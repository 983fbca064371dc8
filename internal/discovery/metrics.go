package discovery

import (
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/mirror"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
)

const (
	metricNamespace = "fairlead"
	metricSubsystem = "discovery"
)

// States of upstreams, labels of a metric.
const (
	stateCurrent     = "current"
	stateNotCurrent  = "not_current"
	stateUnreachable = "unreachable"
	stateNotTried    = "not_tried"
	stateRefused     = "not_accepted"
)

// Queue is the writer of discovered objects, as far as metrics read it.
type Queue interface {
	Pending() int
	Applied() uint64
}

// metrics are those of discovery. Labels name upstreams, which operators create, and fixed sets.
type metrics struct {
	changes   *prometheus.CounterVec // upstream
	decided   prometheus.Histogram
	published prometheus.Histogram
	inForce   prometheus.Histogram
	known     *known
}

// known is the state of all upstreams at the last tick; a scrape reads it.
type known struct {
	now atomic.Pointer[[]measured]

	upstreams, services, endpoints, refused, contact, sweep, requests, seconds, bytes, throttled *prometheus.Desc
}

// measured is one upstream at the last tick.
type measured struct {
	name     string
	state    string
	mirror   mirror.State
	counters *cloud.Counters
}

func newMetrics() *metrics {
	way := prometheus.ExponentialBuckets(0.001, 2, 16) // 1 ms to 33 s
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: metricNamespace, Subsystem: metricSubsystem, Name: name, Help: help, Buckets: way})
	}
	return &metrics{
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "changes_total", Help: "Changed and removed services that sources have seen, by upstream; complete lists are not counted.",
		}, []string{"upstream"}),
		decided:   histogram("decided_seconds", "Time from when a source sees a changed service until the change is in effect in the plane."),
		published: histogram("published_seconds", "Time from when a source sees a changed service until the plane publishes the change to machines."),
		inForce:   histogram("in_force_seconds", "Time from when a source sees a changed service until every connected machine that it concerns carries it out."),
		known:     newKnown(),
	}
}

// Register registers the metrics. queue is the Writer as they read it. A registry takes one Discovery.
func (d *Discovery) Register(r prometheus.Registerer, queue Queue) error {
	m := d.meter
	for _, c := range []prometheus.Collector{
		m.changes, m.decided, m.published, m.inForce, m.known,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "writes_queued", Help: "Discovered objects that wait to be written.",
		}, func() float64 { return float64(queue.Pending()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "writes_total", Help: "Discovered objects that were brought about in the API.",
		}, func() float64 { return float64(queue.Applied()) }),
	} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register the metrics of discovery: %w", err)
		}
	}
	return nil
}

// measure notes for the metrics how all upstreams are.
func (s *state) measure() {
	var all []measured
	if s.leads {
		for name := range s.upstreams {
			all = append(all, s.measureOf(name))
		}
	}
	s.meter.known.now.Store(&all)
}

func (s *state) measureOf(name string) measured {
	m, _ := s.mirror.State(name, 0)
	state := stateCurrent
	switch {
	case s.reports[name] != nil && s.reports[name].accepted != nil:
		state = stateRefused
	case !m.Failing.IsZero():
		state = stateUnreachable
	case m.LastContact.IsZero():
		state = stateNotTried
	case current(name, m).Status != metav1.ConditionTrue:
		state = stateNotCurrent
	}
	return measured{name, state, m, s.counters[name]}
}

func newKnown() *known {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(metricNamespace, metricSubsystem, name), help, labels, nil)
	}
	return &known{
		upstreams: desc("upstreams", "Upstreams by state.", "state"),
		services:  desc("services", "Services of an upstream: seen there, replicated here, and held here although the upstream does not list them.", "upstream", "state"),
		endpoints: desc("endpoints", "Endpoints of an upstream's services, by the same states.", "upstream", "state"),
		refused:   desc("refused", "Services and parts of services that are left out, by reason.", "upstream", "reason"),
		contact:   desc("last_contact_timestamp_seconds", "When an upstream last answered, in Unix time.", "upstream"),
		sweep:     desc("last_sweep_timestamp_seconds", "When a complete list of an upstream was last read, in Unix time.", "upstream"),
		requests:  desc("requests_total", "Requests to an upstream's API, by the class of the answer.", "upstream", "code"),
		seconds:   desc("request_seconds_total", "Time until answers of an upstream's API began, in sum.", "upstream"),
		bytes:     desc("received_bytes_total", "Bytes of the answers of an upstream's API, after decompression.", "upstream"),
		throttled: desc("throttled_requests_total", "Requests that waited because an upstream's API had asked for fewer.", "upstream"),
	}
}

// Describe implements prometheus.Collector.
func (k *known) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{k.upstreams, k.services, k.endpoints, k.refused, k.contact, k.sweep, k.requests, k.seconds, k.bytes, k.throttled} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (k *known) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	states := map[string]int{stateCurrent: 0, stateNotCurrent: 0, stateUnreachable: 0, stateNotTried: 0, stateRefused: 0}
	if all := k.now.Load(); all != nil {
		for _, u := range *all {
			states[u.state]++
			for state, n := range map[string]mirror.Counts{"seen": u.mirror.Seen, "replicated": u.mirror.Replicated, "held": u.mirror.Held} {
				gauge(k.services, float64(n.Services), u.name, state)
				gauge(k.endpoints, float64(n.Endpoints), u.name, state)
			}
			for reason, n := range u.mirror.RefusedBy {
				gauge(k.refused, float64(n), u.name, string(reason))
			}
			if at := u.mirror.LastContact; !at.IsZero() {
				gauge(k.contact, float64(at.UnixMilli())/1000, u.name)
			}
			if at := u.mirror.LastSweep; !at.IsZero() {
				gauge(k.sweep, float64(at.UnixMilli())/1000, u.name)
			}
			if c := u.counters; c != nil {
				for class := range c.Requests {
					counter(k.requests, float64(c.Requests[class].Load()), u.name, model.StatusClass(class).String())
				}
				counter(k.seconds, float64(c.Nanoseconds.Load())/1e9, u.name)
				counter(k.bytes, float64(c.Bytes.Load()), u.name)
				counter(k.throttled, float64(c.Throttled.Load()), u.name)
			}
		}
	}
	for state, n := range states {
		gauge(k.upstreams, float64(n), state)
	}
}

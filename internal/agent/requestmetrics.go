package agent

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/traffic"
)

// requestCollector tells what the proxies have counted when it is asked.
type requestCollector struct {
	meter *meter
	// By label: a namespace, host, listener, upstream or route.
	requests, seconds, received, sent, retries, resets map[traffic.By]*prometheus.Desc

	open, taken, left, reads, current *prometheus.Desc
}

// labels are those of the names.
var labels = map[traffic.By]string{
	traffic.Namespaces: "namespace", traffic.Hosts: "host", traffic.Listeners: "listener", traffic.Upstreams: "upstream", traffic.Routes: "route",
}

func newRequestCollector(m *meter) *requestCollector {
	some := func(name, help, more string, of ...traffic.By) map[traffic.By]*prometheus.Desc {
		list := map[traffic.By]*prometheus.Desc{}
		for _, by := range of {
			variable := []string{labels[by]}
			if more != "" {
				variable = append(variable, more)
			}
			list[by] = prometheus.NewDesc("fairlead_"+strings.Replace(name, "|", "_by_"+labels[by], 1), help+labels[by]+".", variable, nil)
		}
		return list
	}
	const namespace, upstream, listener, route, host = traffic.Namespaces, traffic.Upstreams, traffic.Listeners, traffic.Routes, traffic.Hosts
	return &requestCollector{
		meter:    m,
		requests: some("requests|_total", "Requests by the class of the status and by ", "class", namespace, host, listener, upstream, route),
		seconds:  some("request_seconds|", "Duration of requests by ", "", namespace, listener, upstream, route),
		received: some("received_bytes|_total", "Bytes from clients by ", "", namespace, listener, upstream),
		sent:     some("sent_bytes|_total", "Bytes to clients by ", "", namespace, listener, upstream),
		retries:  some("retries|_total", "Requests that were sent once more, by ", "", namespace, upstream),
		resets:   some("resets|_total", "Requests that one side has reset, by ", "", namespace, listener, upstream),
		open:     prometheus.NewDesc("fairlead_connections_by_listener", "Open connections of clients by listener.", []string{"listener"}, nil),
		taken:    prometheus.NewDesc("fairlead_connections_by_listener_total", "Connections of clients by listener.", []string{"listener"}, nil),
		left: prometheus.NewDesc("fairlead_agent_names_left_out",
			"Names that are in \"other\", because others came first.", []string{"by"}, nil),
		reads: prometheus.NewDesc("fairlead_agent_proxy_reads_total",
			"Questions to the proxy for what it has counted, by result.", []string{"result"}, nil),
		current: prometheus.NewDesc("fairlead_agent_proxy_read_current",
			"1 while the proxy has answered the last question for what it has counted; else the metrics of requests are older.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *requestCollector) Describe(to chan<- *prometheus.Desc) {
	for _, some := range []map[traffic.By]*prometheus.Desc{c.requests, c.seconds, c.received, c.sent, c.retries, c.resets} {
		for _, desc := range some {
			to <- desc
		}
	}
	for _, desc := range []*prometheus.Desc{c.open, c.taken, c.left, c.reads, c.current} {
		to <- desc
	}
}

// Collect implements prometheus.Collector. Without an answer of the proxy the totals are those of the last one.
func (c *requestCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	c.meter.read(ctx)
	count := func(desc *prometheus.Desc, n uint64, values ...string) {
		if desc != nil {
			to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), values...)
		}
	}
	for by, desc := range c.requests {
		if by == traffic.Upstreams {
			continue // Envoy's counters of groups
		}
		c.meter.eachRequests(by, func(name string, class model.StatusClass, n uint64) { count(desc, n, name, class.String()) })
	}
	for by, label := range labels {
		if by == traffic.Hosts {
			continue
		}
		list, left := c.meter.sums(by)
		to <- prometheus.MustNewConstMetric(c.left, prometheus.GaugeValue, float64(left), label)
		for _, t := range list {
			to <- &durations{c.seconds[by], t.name, t.volume.Seconds}
			count(c.received[by], t.volume.Received, t.name)
			count(c.sent[by], t.volume.Sent, t.name)
			count(c.retries[by], t.volume.Retries, t.name)
			count(c.resets[by], t.volume.Resets, t.name)
			switch by {
			case traffic.Upstreams:
				for class, n := range t.volume.Answers {
					if n > 0 {
						count(c.requests[by], n, t.name, model.StatusClass(class).String())
					}
				}
			case traffic.Listeners:
				count(c.taken, t.volume.Connections, t.name)
				to <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, float64(t.volume.Open), t.name)
			case traffic.Namespaces, traffic.Routes, traffic.Hosts:
			}
		}
	}
	answered, unanswered, current := c.meter.reads()
	count(c.reads, answered, "answered")
	count(c.reads, unanswered, "unanswered")
	to <- prometheus.MustNewConstMetric(c.current, prometheus.GaugeValue, map[bool]float64{true: 1}[current])
}

// durations is a histogram, classic and native in one.
type durations struct {
	desc  *prometheus.Desc
	name  string
	value model.Histogram
}

// Desc implements prometheus.Metric.
func (d *durations) Desc() *prometheus.Desc { return d.desc }

// Write implements prometheus.Metric.
func (d *durations) Write(into *dto.Metric) error {
	into.Label = prometheus.MakeLabelPairs(d.desc, []string{d.name})
	into.Histogram = nativeHistogram(d.value)
	return nil
}

// nativeHistogram words a histogram for Prometheus: which of its two forms is sent is up to who asks.
func nativeHistogram(h model.Histogram) *dto.Histogram {
	out := &dto.Histogram{
		SampleCount: new(h.Count()), SampleSum: new(float64(h.Micros) / 1e6),
		Schema: new(int32(4)), ZeroThreshold: new(0.0), ZeroCount: new(uint64(0)),
	}
	for i, n := range traffic.Classic(h) {
		out.Bucket = append(out.Bucket, &dto.Bucket{UpperBound: new(traffic.Limits[i]), CumulativeCount: new(n)})
	}
	next, last := int32(0), int64(0)
	for i, b := range h.Buckets {
		if i == 0 || b.Index != next {
			out.PositiveSpan = append(out.PositiveSpan, &dto.BucketSpan{Offset: new(b.Index - next), Length: new(uint32(0))})
		}
		*out.PositiveSpan[len(out.PositiveSpan)-1].Length++
		out.PositiveDelta = append(out.PositiveDelta, int64(b.Count)-last)
		next, last = b.Index+1, int64(b.Count)
	}
	if len(out.PositiveSpan) == 0 {
		out.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(0))}} // else it would be no native one
	}
	return out
}

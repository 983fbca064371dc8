package agent

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/traffic"
	"fairlead.dev/internal/traffic/exposition"
)

// requestCollector tells what the proxies have counted when it is asked.
type requestCollector struct {
	meter *meter

	left, reads, current *prometheus.Desc
}

func newRequestCollector(m *meter) *requestCollector {
	return &requestCollector{
		meter: m,
		left: prometheus.NewDesc("fairlead_agent_names_left_out",
			"Names that are in \"other\", because there are too many.", []string{"by"}, nil),
		reads: prometheus.NewDesc("fairlead_agent_proxy_reads_total",
			"Questions to the proxy for what it has counted, by result.", []string{"result"}, nil),
		current: prometheus.NewDesc("fairlead_agent_proxy_read_current",
			"1 while the proxy has answered the last question for what it has counted; else the metrics of requests are older.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *requestCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range append(exposition.Own.All(), c.left, c.reads, c.current) {
		to <- desc
	}
}

// Collect implements prometheus.Collector. Without an answer of the proxy the totals are those of the last one.
func (c *requestCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	c.meter.read(ctx)
	for _, by := range []traffic.By{traffic.Namespaces, traffic.Hosts, traffic.Listeners, traffic.Routes} {
		c.meter.eachRequests(by, func(name string, class model.StatusClass, n uint64) {
			to <- prometheus.MustNewConstMetric(exposition.Own.Requests[by], prometheus.CounterValue, float64(n), name, class.String())
		})
	}
	for _, by := range []traffic.By{traffic.Namespaces, traffic.Upstreams, traffic.Listeners, traffic.Routes, traffic.Hosts} {
		list, left := c.meter.sums(by)
		to <- prometheus.MustNewConstMetric(c.left, prometheus.GaugeValue, float64(left), exposition.Labels[by])
		for _, t := range list {
			exposition.Own.VolumeWith(to, t, c.meter.exemplars.of(by, t.Name))
		}
	}
	answered, unanswered, current := c.meter.reads()
	to <- prometheus.MustNewConstMetric(c.reads, prometheus.CounterValue, float64(answered), "answered")
	to <- prometheus.MustNewConstMetric(c.reads, prometheus.CounterValue, float64(unanswered), "unanswered")
	to <- prometheus.MustNewConstMetric(c.current, prometheus.GaugeValue, map[bool]float64{true: 1}[current])
}

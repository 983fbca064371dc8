package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/traffic"
	"fairlead.dev/internal/traffic/exposition"
)

// loadCollector tells what proxies have counted of the backends of measured groups.
type loadCollector struct {
	relay         *relay
	left, reports *prometheus.Desc
}

func newLoadCollector(r *relay) *loadCollector {
	return &loadCollector{
		relay:   r,
		left:    prometheus.NewDesc("fairlead_agent_backends_left_out", "Backends of measured groups that are in \"other\", because there are too many.", nil, nil),
		reports: prometheus.NewDesc("fairlead_agent_load_reports_total", "Reports of the proxy of measured groups, each of one group.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *loadCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range append(exposition.OwnLoads.All(), c.left, c.reports) {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *loadCollector) Collect(to chan<- prometheus.Metric) {
	for _, g := range c.relay.loads.all() {
		for _, b := range g.Backends {
			if b.Named {
				exposition.OwnLoads.Tell(to, b, string(g.Group), b.Address.String())
			}
		}
	}
	sum, backends, reports := c.relay.loads.others()
	if backends > 0 || sum.Requests > 0 {
		exposition.OwnLoads.Tell(to, sum, traffic.Other, traffic.Other)
	}
	to <- prometheus.MustNewConstMetric(c.left, prometheus.GaugeValue, float64(backends))
	to <- prometheus.MustNewConstMetric(c.reports, prometheus.CounterValue, float64(reports))
}

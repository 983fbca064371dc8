package agent

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/model"
)

// checkCollector counts checks when it is asked: those that there are, and what came of
// what was asked.
type checkCollector struct {
	checks *checks

	health, underWay, ended, seconds *prometheus.Desc
}

func newCheckCollector(k *checks) *checkCollector {
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("fairlead_agent_"+name, help, labels, nil)
	}
	return &checkCollector{
		checks:   k,
		health:   of("checks", "Backends that this machine checks, by its own result.", "health"),
		underWay: of("check_probes_under_way", "Probes under way."),
		ended:    of("check_probes_total", "Finished probes, by kind of check and result: good, or the kind of failure.", "kind", "result"),
		seconds:  of("check_probe_seconds", "Duration of probes, by kind of check.", "kind"),
	}
}

// Describe implements prometheus.Collector.
func (c *checkCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.health, c.underWay, c.ended, c.seconds} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *checkCollector) Collect(to chan<- prometheus.Metric) {
	if c.checks.drivers.Checker == nil {
		return
	}
	counts := map[model.Health]int{}
	for _, r := range c.checks.drivers.Checker.Results() {
		counts[r.Health]++
	}
	for _, h := range []model.Health{model.Healthy, model.Unhealthy, model.HealthUnknown} {
		to <- prometheus.MustNewConstMetric(c.health, prometheus.GaugeValue, float64(counts[h]), string(h))
	}
	counter, is := c.checks.drivers.Checker.(CheckCounter)
	if !is {
		return
	}
	list, underWay := counter.Figures()
	to <- prometheus.MustNewConstMetric(c.underWay, prometheus.GaugeValue, float64(underWay))
	for _, f := range list {
		kind := cmp.Or(string(f.Kind), "HTTP")
		var sum uint64
		for result, n := range f.Ended {
			sum += n
			to <- prometheus.MustNewConstMetric(c.ended, prometheus.CounterValue, float64(n), kind, result)
		}
		to <- prometheus.MustNewConstHistogram(c.seconds, sum, f.Seconds, f.Within, kind)
	}
}

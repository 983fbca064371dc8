package watch

import (
	"context"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/traffic"
	"fairlead.dev/internal/traffic/exposition"
)

// mostTotals bounds the names of all machines of which RequestMetrics tells: each has some 20 series. Those of a machine are told all
// or not at all.
const mostTotals = 5_000

// RequestMetrics are the metrics of requests of all machines, or of one namespace, by the last answers of the proxies.
func (v *Viewers) RequestMetrics(ctx context.Context, namespace string) (prometheus.Gatherer, error) {
	if err := served(v.config.Plane); err != nil {
		return nil, err
	}
	r, figures := prometheus.NewRegistry(), v.top.latest(ctx)
	for _, c := range []prometheus.Collector{&fleetCollector{figures, namespace}, v.frontendsOf(ctx, namespace, figures)} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// latest are the last answers of machines. If they are older than topGap, machines are asked.
func (t *top) latest(ctx context.Context) map[string]southbound.Figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now().Sub(t.last.At) >= topGap {
		t.take(ctx)
	}
	return t.figures
}

// fleetCollector tells the totals of machines.
type fleetCollector struct {
	figures   map[string]southbound.Figures
	namespace string // empty: all
}

// Describe implements prometheus.Collector: names depend on what there is.
func (*fleetCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *fleetCollector) Collect(to chan<- prometheus.Metric) {
	told, left := 0, 0
	for _, machine := range slices.Sorted(maps.Keys(c.figures)) {
		totals := slices.DeleteFunc(slices.Clone(c.figures[machine].Totals), func(t model.TrafficTotal) bool { return !c.wanted(t) })
		if told += len(totals); told > mostTotals {
			told, left = mostTotals, left+1
			continue
		}
		for _, t := range totals {
			exposition.Total(to, t, machine)
		}
		c.loads(to, machine)
	}
	to <- prometheus.MustNewConstMetric(machinesLeftOut, prometheus.GaugeValue, float64(left))
}

// loads tells what a machine has counted of backends. Those without metrics of their own at the machine have none here.
func (c *fleetCollector) loads(to chan<- prometheus.Metric, machine string) {
	told := 0
	for _, g := range c.figures[machine].Loads {
		if c.namespace != "" && g.Group.Namespace() != c.namespace {
			continue
		}
		for _, b := range g.Backends {
			if b.Named && told < model.MaxNamedBackends {
				told++
				exposition.FleetLoads.Tell(to, b, machine, string(g.Group), b.Address.String())
			}
		}
	}
}

// wanted says whether a total is shown to who asks for a namespace.
func (c *fleetCollector) wanted(t model.TrafficTotal) bool {
	if c.namespace == "" {
		return true
	}
	switch traffic.By(t.By) {
	case traffic.Namespaces:
		return t.Name == c.namespace
	case traffic.Routes:
		_, namespace, _ := traffic.Owner(t.Name)
		return namespace == c.namespace
	case traffic.Hosts, traffic.Listeners, traffic.Upstreams:
	}
	return false // others share it
}

var machinesLeftOut = prometheus.NewDesc("fairlead_machines_left_out", "Machines whose series are left out, because those of others are many.", nil, nil)

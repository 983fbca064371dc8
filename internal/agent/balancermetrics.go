package agent

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/model"
)

const (
	// maxFrontendLabels bounds the frontends that have metrics of their own; the others
	// are counted together.
	maxFrontendLabels = 1_000
	otherFrontends    = "other"
)

// balancingCollector counts frontends, packets and drops when it is asked.
type balancingCollector struct {
	balancer *balancer

	frontends, available, packets, bytes, flows, open, drops, maps, cut *prometheus.Desc
}

func newBalancingCollector(b *balancer) *balancingCollector {
	of := func(name, help, label string) *prometheus.Desc {
		return prometheus.NewDesc("fairlead_lb_"+name, help, []string{label}, nil)
	}
	return &balancingCollector{
		balancer:  b,
		frontends: of("frontends", "Frontends at this machine, by state.", "state"),
		available: of("available_backends", "Backends that accept new flows of a frontend.", "frontend"),
		packets:   of("packets_total", "Balanced packets from clients, by frontend; frontends beyond 1,000 are counted as one.", "frontend"),
		bytes:     of("bytes_total", "Balanced bytes from clients, by frontend.", "frontend"),
		flows:     of("new_flows_total", "New flows, by frontend.", "frontend"),
		open:      of("flows", "Flows in the flow tables, by frontend.", "frontend"),
		drops:     of("dropped_packets_total", "Dropped packets, by reason.", "reason"),
		maps:      of("map_bytes", "Kernel memory of a data plane's maps.", "data_plane"),
		cut:       prometheus.NewDesc("fairlead_lb_cut_connections_total", "Connections to the proxy that were cut at the end of the drain time after the machine had lost their VIP.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *balancingCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.frontends, c.available, c.packets, c.bytes, c.flows, c.open, c.drops, c.maps, c.cut} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *balancingCollector) Collect(to chan<- prometheus.Metric) {
	observed := c.balancer.observed()
	states, labels := map[model.FrontendState]int{}, map[model.FrontendKey]bool{}
	for _, o := range observed {
		states[o.State]++
		if o.State == model.FrontendDecap || len(labels) >= maxFrontendLabels {
			continue
		}
		labels[o.FrontendKey] = true
		to <- prometheus.MustNewConstMetric(c.available, prometheus.GaugeValue, float64(o.Available), o.String())
	}
	for _, s := range []model.FrontendState{model.FrontendBalanced, model.FrontendDecap, model.FrontendPending, model.FrontendRefused} {
		to <- prometheus.MustNewConstMetric(c.frontends, prometheus.GaugeValue, float64(states[s]), string(s))
	}
	frontends, short, drops, err := c.balancer.figures()
	if err != nil {
		c.balancer.log.Debug("some figures of load balancing cannot be read", "error", err)
	}
	open := map[string]uint64{}
	for _, f := range frontends { // where flows were not counted to their end, none are told
		label := otherFrontends
		if labels[f.FrontendKey] {
			label = f.String()
		}
		for _, b := range f.Backends {
			open[label] += b.Flows
		}
	}
	for label, n := range open {
		to <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, float64(n), label)
	}
	frontends = append(frontends, short...) // their packets are whole all the same
	counts := map[string]model.FrontendFigures{}
	for _, f := range frontends {
		label := otherFrontends
		if labels[f.FrontendKey] {
			label = f.String()
		}
		sum := counts[label]
		sum.Packets, sum.Bytes, sum.NewFlows = sum.Packets+f.Packets, sum.Bytes+f.Bytes, sum.NewFlows+f.NewFlows
		counts[label] = sum
	}
	for label, f := range counts {
		to <- prometheus.MustNewConstMetric(c.packets, prometheus.CounterValue, float64(f.Packets), label)
		to <- prometheus.MustNewConstMetric(c.bytes, prometheus.CounterValue, float64(f.Bytes), label)
		to <- prometheus.MustNewConstMetric(c.flows, prometheus.CounterValue, float64(f.NewFlows), label)
	}
	for reason := range maps.Keys(drops) {
		to <- prometheus.MustNewConstMetric(c.drops, prometheus.CounterValue, float64(drops[reason]), reason)
	}
	to <- prometheus.MustNewConstMetric(c.cut, prometheus.CounterValue, float64(c.balancer.cut.Load()))
	for _, plane := range c.balancer.drivers.Planes {
		if w, weighs := plane.DataPlane.(Weigher); weighs {
			to <- prometheus.MustNewConstMetric(c.maps, prometheus.GaugeValue, float64(w.MapBytes()), string(plane.Kind))
		}
	}
}

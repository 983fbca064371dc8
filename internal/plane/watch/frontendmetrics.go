package watch

import (
	"context"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
)

// mostFrontendNames bounds the frontends that have series of their own; the others are one, of the name otherFrontends.
const (
	mostFrontendNames = 1_000
	otherFrontends    = "other"
)

// frontendCollector tells what the data planes of machines have counted.
type frontendCollector struct {
	figures map[string]southbound.Figures
	// wanted are the frontends to tell of; nil: all, and dropped packets, which are of no frontend.
	wanted map[model.FrontendKey]bool
}

// frontendsOf are what the data planes of machines have counted of the frontends of a namespace, or of all.
func (v *Viewers) frontendsOf(ctx context.Context, namespace string, figures map[string]southbound.Figures) *frontendCollector {
	c := &frontendCollector{figures: figures}
	if namespace == "" {
		return c
	}
	c.wanted = map[model.FrontendKey]bool{}
	if !slices.ContainsFunc(slices.Collect(maps.Values(figures)), func(f southbound.Figures) bool { return len(f.Frontends) > 0 }) {
		return c
	}
	own, err := v.config.Loop.Frontends(ctx, func(f *model.Frontend) bool { return f.Owner.Namespace == namespace })
	if err != nil { // whose they are is not known: they are told to nobody
		return c
	}
	for _, f := range own {
		c.wanted[f.FrontendKey] = true
	}
	return c
}

// Describe implements prometheus.Collector: names depend on what there is.
func (*frontendCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *frontendCollector) Collect(to chan<- prometheus.Metric) {
	named := map[model.FrontendKey]bool{}
	for _, machine := range slices.Sorted(maps.Keys(c.figures)) {
		sums := map[string]model.FrontendFigures{}
		flows := map[string]uint64{}
		for _, f := range c.figures[machine].Frontends {
			if c.wanted != nil && !c.wanted[f.FrontendKey] {
				continue
			}
			if !named[f.FrontendKey] && len(named) < mostFrontendNames {
				named[f.FrontendKey] = true
			}
			name := otherFrontends
			if named[f.FrontendKey] {
				name = f.String()
			}
			sum := sums[name]
			sum.Packets, sum.Bytes, sum.NewFlows = sum.Packets+f.Packets, sum.Bytes+f.Bytes, sum.NewFlows+f.NewFlows
			sums[name] = sum
			for _, b := range f.Backends {
				flows[name] += b.Flows
			}
		}
		for name, sum := range sums {
			to <- prometheus.MustNewConstMetric(fleetPackets, prometheus.CounterValue, float64(sum.Packets), name, machine)
			to <- prometheus.MustNewConstMetric(fleetBytes, prometheus.CounterValue, float64(sum.Bytes), name, machine)
			to <- prometheus.MustNewConstMetric(fleetNewFlows, prometheus.CounterValue, float64(sum.NewFlows), name, machine)
			to <- prometheus.MustNewConstMetric(fleetFlows, prometheus.GaugeValue, float64(flows[name]), name, machine)
		}
		if c.wanted != nil {
			continue
		}
		for reason, n := range c.figures[machine].Drops {
			to <- prometheus.MustNewConstMetric(fleetDrops, prometheus.CounterValue, float64(n), reason, machine)
		}
	}
}

// The metrics of agents, with the machine.
var (
	fleetPackets  = fleetDesc("packets_total", "Balanced packets from clients, by frontend.", "frontend")
	fleetBytes    = fleetDesc("bytes_total", "Balanced bytes from clients, by frontend.", "frontend")
	fleetNewFlows = fleetDesc("new_flows_total", "New flows, by frontend.", "frontend")
	fleetFlows    = fleetDesc("flows", "Flows in the flow tables, by frontend.", "frontend")
	fleetDrops    = fleetDesc("dropped_packets_total", "Dropped packets, by reason.", "reason")
)

func fleetDesc(name, help, label string) *prometheus.Desc {
	return prometheus.NewDesc("fairlead_lb_"+name, help, []string{label, "machine"}, nil)
}

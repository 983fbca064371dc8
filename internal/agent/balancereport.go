package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// maxFlows bounds an answer about flows: a report holds at most a few megabytes.
	maxFlows     = 20_000
	defaultFlows = 1_000
	// maxFrontendLabels bounds the frontends that have metrics of their own; the others
	// are counted together.
	maxFrontendLabels = 1_000
	otherFrontends    = "other"
)

// tunnelEnd is a data plane's answer to Tunneler.Tunnel; the zero value of one that has no
// tunnels.
type tunnelEnd struct {
	mtu     uint32
	message string
	ok      bool
}

// ask notes what data planes say of the machine's end of tunnels and of its interfaces, and
// returns whether that differs from before. Only run's goroutine calls it.
func (b *balancer) ask() (differs bool) {
	for i, plane := range b.parts.Planes {
		var t tunnelEnd
		var list []model.InterfaceObserved
		if tunneler, tunnels := plane.DataPlane.(Tunneler); tunnels {
			t.mtu, t.message, t.ok = tunneler.Tunnel()
		}
		if a, attached := plane.DataPlane.(Attached); attached {
			list = a.Interfaces()
		}
		b.mu.Lock()
		d := &b.drives[i]
		differs = differs || d.tunnel != t || !slices.Equal(d.interfaces, list)
		d.tunnel, d.interfaces = t, list
		b.mu.Unlock()
	}
	return differs
}

// tunnel is how the machine takes packets out of tunnels, nil if it does not, and whether that
// is unknown yet. The data planes are asked again afterwards.
func (b *balancer) tunnel() (t *agentv1.Tunnel, unknown bool) {
	select {
	case <-b.known:
	default:
		return nil, true
	}
	defer poke(b.asks)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.drives {
		if t := b.drives[i].tunnel; t.ok {
			return &agentv1.Tunnel{Mtu: t.mtu, Message: cut(t.message, maxMessage)}, false
		}
	}
	return nil, false
}

// interfaces are those at which data planes have programs, or could have.
func (b *balancer) interfaces() []model.InterfaceObserved {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []model.InterfaceObserved{}
	for i := range b.drives {
		list = append(list, b.drives[i].interfaces...)
	}
	return list
}

// figures are what the data planes have counted; short are those whose flows may lack.
func (b *balancer) figures() (frontends, short []model.FrontendFigures, drops map[string]uint64, err error) {
	drops = map[string]uint64{}
	var errs []error
	for _, plane := range b.parts.Planes {
		counts, counting := plane.DataPlane.(Inspector)
		if !counting {
			continue
		}
		some, dropped, err := counts.Figures()
		if err != nil {
			errs = append(errs, fmt.Errorf("figures of data plane %s: %w", plane.Kind, err))
			short = append(short, some...)
		} else {
			frontends = append(frontends, some...)
		}
		for reason, n := range dropped {
			drops[reason] += n
		}
	}
	if err := b.bound(frontends); err != nil {
		b.log.Debug("flows of this machine's proxy are counted that may have ended", "error", err)
	}
	return frontends, short, drops, errors.Join(errs...)
}

// bound takes off the flows of this machine's proxy that its sockets do not have any more, where
// it is to get no new one: whoever drains it waits for the last. A flow table has one that ended
// unseen until it is silent long enough, and as the only machine with a VIP this one needs no data
// plane that would see.
func (b *balancer) bound(frontends []model.FrontendFigures) error {
	if b.parts.Connections == nil {
		return nil
	}
	var left []*model.BackendFigures
	var keys []model.FrontendKey
	b.mu.Lock()
	for i := range frontends {
		key := frontends[i].FrontendKey
		if f := b.frontends[key]; f == nil || f.Listener == "" || key.Transport != model.TCP || !b.rests(b.backends[key]) {
			continue
		}
		for j := range frontends[i].Backends {
			if f := &frontends[i].Backends[j]; f.Machine == b.machine && f.Address.Addr() == key.VIP && f.Flows-f.Tunnelled+f.Owned > 0 {
				left, keys = append(left, f), append(keys, key)
			}
		}
	}
	b.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	counts, err := b.parts.Connections(keys...)
	if err != nil {
		return err
	}
	for i, f := range left {
		open := uint64(counts[keys[i]])
		f.Owned, f.Flows = min(f.Owned, open), f.Tunnelled+min(f.Flows-f.Tunnelled, open)
	}
	return nil
}

// rests says that this machine's proxy is among backends and is to get no new flow.
func (b *balancer) rests(list []model.FrontendBackend) bool {
	return slices.ContainsFunc(list, func(x model.FrontendBackend) bool { return x.Machine == b.machine && x.Weight == 0 })
}

// flows are those that a query selects, bounded.
func (b *balancer) flows(q model.FlowQuery) (flows []model.Flow, truncated bool, err error) {
	if q.Limit <= 0 {
		q.Limit = defaultFlows
	}
	q.Limit = min(q.Limit, maxFlows)
	limit := q.Limit
	var errs []error
	for _, plane := range b.parts.Planes {
		inspects, inspecting := plane.DataPlane.(Inspector)
		if !inspecting {
			continue
		}
		if q.Limit = limit - len(flows); q.Limit == 0 {
			return flows, true, errors.Join(errs...)
		}
		some, more, err := inspects.Flows(q)
		if err != nil {
			errs = append(errs, fmt.Errorf("flows of data plane %s: %w", plane.Kind, err))
			continue
		}
		flows, truncated = append(flows, some...), truncated || more
	}
	return flows, truncated, errors.Join(errs...)
}

// answer answers the plane's question about flows. What cannot be read selects nothing.
func (b *balancer) answer(asked *agentv1.FlowQuery) *agentv1.Flows {
	q, err := wire.FlowQueryOf(asked)
	if err != nil {
		b.log.Warn("a question about flows cannot be read", "error", err)
		return wire.Flows(asked.GetAsked(), nil, false)
	}
	flows, truncated, err := b.flows(q)
	if err != nil {
		b.log.Warn("not all flows are known", "error", err)
	}
	return wire.Flows(asked.GetAsked(), flows, truncated)
}

// balancingCollector counts frontends, packets and drops when it is asked.
type balancingCollector struct {
	balancer *balancer

	frontends, available, packets, bytes, flows, drops, maps, cut *prometheus.Desc
}

func newBalancingCollector(b *balancer) *balancingCollector {
	of := func(name, help, label string) *prometheus.Desc {
		return prometheus.NewDesc("fairlead_lb_"+name, help, []string{label}, nil)
	}
	return &balancingCollector{
		balancer:  b,
		frontends: of("frontends", "Frontends at this machine, by what it does about them.", "state"),
		available: of("available_backends", "Backends that new flows of a frontend may go to.", "frontend"),
		packets:   of("packets_total", "Packets of clients that were balanced, by frontend; those beyond 1,000 frontends as one.", "frontend"),
		bytes:     of("bytes_total", "Bytes of clients that were balanced.", "frontend"),
		flows:     of("new_flows_total", "Flows that began.", "frontend"),
		drops:     of("dropped_packets_total", "Packets that were dropped, by reason.", "reason"),
		maps:      of("map_bytes", "Memory of the kernel that a data plane's maps hold.", "data_plane"),
		cut:       prometheus.NewDesc("fairlead_lb_cut_connections_total", "Connections to the proxy that outlived the drain time after the machine had lost their VIP.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *balancingCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.frontends, c.available, c.packets, c.bytes, c.flows, c.drops, c.maps, c.cut} {
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
		c.balancer.log.Debug("not all figures are known", "error", err)
	}
	frontends = append(frontends, short...) // what is counted here is no number of flows
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
	for _, plane := range c.balancer.parts.Planes {
		if w, weighs := plane.DataPlane.(Weigher); weighs {
			to <- prometheus.MustNewConstMetric(c.maps, prometheus.GaugeValue, float64(w.MapBytes()), string(plane.Kind))
		}
	}
}

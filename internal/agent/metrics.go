package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/gate"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// counters are what the agent counts. Every label has a fixed set of values.
type counters struct {
	connected  prometheus.Gauge
	renewals   *prometheus.CounterVec
	remembered prometheus.Gauge
	mends      *prometheus.CounterVec
}

func newCounters() *counters {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "fairlead", Subsystem: "agent", Name: name, Help: help})
	}
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "fairlead", Subsystem: "agent", Name: name, Help: help}, []string{label})
	}
	n := &counters{
		connected:  gauge("plane_connected", "1 while the agent is connected to a plane."),
		remembered: gauge("remembered_bytes", "Size of the stored state on disk."),
		renewals:   counter("renewals_total", "Renewals of the machine's certificate, by result.", "result"),
		mends:      counter("proxy_mends_total", "Repairs of resources that the proxy accepted but did not use, by step.", "step"),
	}
	for _, step := range []gate.MendStep{gate.MendResend, gate.MendReconnect, gate.MendReplace} {
		n.mends.WithLabelValues(step.String())
	}
	for _, result := range []string{"renewed", "failed"} {
		n.renewals.WithLabelValues(result)
	}
	return n
}

func (n *counters) mended(step string) { n.mends.WithLabelValues(step).Inc() }

// register has counters, and what is computed when it is asked for, shown.
func (a *Agent) register(n *counters) error {
	computed := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "fairlead", Subsystem: "agent", Name: name, Help: help}, f)
	}
	number := func(is bool) float64 {
		if is {
			return 1
		}
		return 0
	}
	collectors := []prometheus.Collector{
		n.connected, n.remembered, n.renewals, n.mends,
		computed("accepted_revision", "Largest revision that a plane has sent.", func() float64 {
			return float64(a.desired.latest().revision.Number)
		}),
		computed("applied_revision", "Largest revision that the proxy runs, except for resources listed as problems.", func() float64 {
			return float64(a.relay.revisionApplied().Number)
		}),
		computed("remembering", "1 while the state can be stored; 0, for example, with a full disk.", func() float64 {
			return number(a.keeper.healthy() == nil)
		}),
		computed("epoch", "Epoch of the accepted revision.", func() float64 {
			return float64(a.desired.latest().revision.Epoch)
		}),
		computed("proxy_starts", "Starts of the proxy since the agent started.", func() float64 {
			return float64(a.config.Proxy.Status().Starts)
		}),
		computed("proxy_ready", "1 while the proxy is ready.", func() float64 {
			return number(a.config.Proxy.Status().State == proxyReady)
		}),
		computed("proxy_resident_bytes", "Resident memory of the proxy.", func() float64 {
			return float64(a.config.Proxy.Status().RSSBytes)
		}),
		computed("remember_failing", "1 while the state cannot be written to disk.", func() float64 {
			return number(a.keeper.healthy() != nil)
		}),
		computed("certificate_expiry_timestamp_seconds", "Expiry of the machine's certificate, in Unix time; 0 without one.", func() float64 {
			if id := a.membership.current(); id != nil {
				return float64(id.NotAfter().Unix())
			}
			return 0
		}),
		&problemCollector{a.relay, prometheus.NewDesc("fairlead_agent_problems",
			"Resources that the proxy does not run as the plane requires, by kind.", []string{"kind"}, nil)},
		newNetworkCollector(a.announcer),
		newBalancingCollector(a.balancer),
		newCheckCollector(a.checks),
		newLoadCollector(a.relay),
	}
	if a.meter != nil {
		collectors = append(collectors, newRequestCollector(a.meter))
	}
	for _, c := range collectors {
		if err := a.config.Registerer.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// problemCollector counts problems when it is asked.
type problemCollector struct {
	relay *relay
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *problemCollector) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c *problemCollector) Collect(to chan<- prometheus.Metric) {
	counts := map[agentv1.Problem_Kind]int{}
	for _, p := range c.relay.applied().GetProblems() {
		counts[p.GetKind()]++
	}
	for kind, label := range map[agentv1.Problem_Kind]string{agentv1.Problem_KIND_REFUSED: "refused", agentv1.Problem_KIND_WAITING: "waiting"} {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(counts[kind]), label)
	}
}

// networkCollector counts VIPs and sessions when it is asked. Peers are as many as there
// are BGPPeers.
type networkCollector struct {
	announcer *announcer

	established, flaps, panics, advertised, received, vips *prometheus.Desc
}

func newNetworkCollector(a *announcer) *networkCollector {
	of := func(name, help, label string) *prometheus.Desc {
		return prometheus.NewDesc("fairlead_agent_"+name, help, []string{label}, nil)
	}
	return &networkCollector{
		announcer:   a,
		established: of("bgp_session_established", "1 while the session with a BGP peer is established.", "peer"),
		flaps:       of("bgp_session_flaps_total", "Losses of an established session since the agent started.", "peer"),
		panics:      of("bgp_session_panics_total", "Bugs of the agent that ended the session with a BGP peer, or its BFD, since the agent started.", "peer"),
		advertised:  of("bgp_advertised_prefixes", "Prefixes sent to a BGP peer.", "peer"),
		received:    of("bgp_received_prefixes", "Prefixes received from a BGP peer; none is used.", "peer"),
		vips:        of("vips", "VIPs that the machine may announce, by state.", "state"),
	}
}

// Describe implements prometheus.Collector.
func (c *networkCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.established, c.flaps, c.panics, c.advertised, c.received, c.vips} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *networkCollector) Collect(to chan<- prometheus.Metric) {
	for _, s := range c.announcer.sessions() {
		up := 0.0
		if s.State == model.SessionEstablished {
			up = 1
		}
		to <- prometheus.MustNewConstMetric(c.established, prometheus.GaugeValue, up, s.Peer)
		to <- prometheus.MustNewConstMetric(c.flaps, prometheus.CounterValue, float64(s.Flaps), s.Peer)
		to <- prometheus.MustNewConstMetric(c.panics, prometheus.CounterValue, float64(s.Panics), s.Peer)
		to <- prometheus.MustNewConstMetric(c.advertised, prometheus.GaugeValue, float64(len(s.Advertised)), s.Peer)
		to <- prometheus.MustNewConstMetric(c.received, prometheus.GaugeValue, float64(s.Received), s.Peer)
	}
	counts := map[model.VIPState]int{}
	for _, v := range c.announcer.observed() {
		counts[v.State]++
	}
	for _, state := range []model.VIPState{model.VIPAnnounced, model.VIPStandby, model.VIPWithheld} {
		to <- prometheus.MustNewConstMetric(c.vips, prometheus.GaugeValue, float64(counts[state]), string(state))
	}
}

package console

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/share"
)

// kind is one of answers that have slots of their own.
type kind string

const (
	kindAnswers     kind = "answers"
	kindFlowAnswers kind = "flow_answers" // machines are asked
	kindStreams     kind = "streams"
	kindTaps        kind = "taps"
	kindTop         kind = "top" // most of the time they wait for the next sample
)

// text says what there are so many of.
func (k kind) text() string {
	switch k {
	case kindAnswers:
		return "answers under way"
	case kindFlowAnswers:
		return "answers about flows under way"
	case kindStreams:
		return "streams open"
	case kindTaps:
		return "taps open, of requests and flows"
	case kindTop:
		return "viewers of top"
	}
	return string(k)
}

// advice says what a user can do who has the most.
func (k kind) advice() string {
	if k == kindStreams || k == kindTaps || k == kindTop {
		return "close one"
	}
	return "ask fewer questions at once"
}

// Meter counts what a console refuses, and what is open. Nil is one that does not.
type Meter struct {
	refused *prometheus.CounterVec // kind, limit
	opened  *prometheus.GaugeVec   // kind
}

// NewMeter registers the metrics.
func NewMeter(r prometheus.Registerer) (*Meter, error) {
	const namespace, subsystem = "fairlead", "read"
	m := &Meter{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "refused_total", Help: "Questions without a slot, by kind and by whose limit was reached.",
		}, []string{"kind", "limit"}),
		opened: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "open", Help: "Open streams and taps.",
		}, []string{"kind"}),
	}
	for _, k := range []kind{kindAnswers, kindFlowAnswers, kindStreams, kindTaps, kindTop} {
		m.refused.WithLabelValues(string(k), limitOf(share.OfUser))
		m.refused.WithLabelValues(string(k), limitOf(share.OfAll))
	}
	for _, k := range []kind{kindStreams, kindTaps, kindTop} {
		m.opened.WithLabelValues(string(k))
	}
	for _, c := range []prometheus.Collector{m.refused, m.opened} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of the read API: %w", err)
		}
	}
	return m, nil
}

func limitOf(l share.Limit) string {
	if l == share.OfUser {
		return "user"
	}
	return "all"
}

func (m *Meter) refuse(k kind, reached share.Limit) {
	if m != nil {
		m.refused.WithLabelValues(string(k), limitOf(reached)).Inc()
	}
}

// open counts one that is open until close is called.
func (m *Meter) open(k kind) (closed func()) {
	if m == nil {
		return func() {}
	}
	g := m.opened.WithLabelValues(string(k))
	g.Inc()
	return g.Dec
}

package access

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Kinds of questions to the API, and results.
const (
	kindAuthorities = "authorities"
	kindTokens      = "tokens"
	kindRights      = "rights"

	resultAnswered = "answered"
	resultFailed   = "failed"
	resultBusy     = "busy"
)

// Meter counts what the API is asked. Its zero value is no Meter.
type Meter struct {
	asked   *prometheus.CounterVec // kind, result
	refused prometheus.Counter
}

// NewMeter registers the metrics; nil: nobody reads them.
func NewMeter(r prometheus.Registerer) (*Meter, error) {
	m := &Meter{
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "fairlead", Subsystem: "access", Name: "questions_total",
			Help: "Questions to the Kubernetes API about readers, by kind and result.",
		}, []string{"kind", "result"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "fairlead", Subsystem: "access", Name: "unknown_tokens_refused_total",
			Help: "Unknown tokens that the Kubernetes API was not asked about, because there were too many.",
		}),
	}
	for _, kind := range []string{kindAuthorities, kindTokens, kindRights} {
		for _, result := range []string{resultAnswered, resultFailed, resultBusy} {
			m.asked.WithLabelValues(kind, result)
		}
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.asked, m.refused} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of access: %w", err)
		}
	}
	return m, nil
}

// told counts how the API has answered questions of a kind.
func (m *Meter) told(kind string) func(error) {
	return func(err error) {
		result := resultAnswered
		switch {
		case errors.Is(err, errBusy):
			result = resultBusy
		case err != nil:
			result = resultFailed
		}
		m.asked.WithLabelValues(kind, result).Inc()
	}
}

package exposition

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Exemplar is a request that a histogram counts, and its trace.
type Exemplar struct {
	Trace   string // 32 hex digits
	Seconds float64
	At      time.Time
}

// withExemplars is a histogram with exemplars, at most one for each classic bucket. Only OpenMetrics and the protocol buffers of
// Prometheus have them.
func withExemplars(m prometheus.Metric, list []Exemplar) prometheus.Metric {
	if len(list) == 0 {
		return m
	}
	exemplars := make([]prometheus.Exemplar, 0, len(list))
	for _, e := range list {
		exemplars = append(exemplars, prometheus.Exemplar{Labels: prometheus.Labels{"trace_id": e.Trace}, Value: e.Seconds, Timestamp: e.At})
	}
	return prometheus.MustNewMetricWithExemplars(m, exemplars...)
}

package access

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

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

// results of answers, by status; that of all others is resultError.
var results = map[int]string{
	http.StatusOK: "ok", http.StatusBadRequest: "invalid", http.StatusUnauthorized: "unknown", http.StatusForbidden: "denied",
	http.StatusNotFound: "none", http.StatusGone: "none", http.StatusMisdirectedRequest: "standby", http.StatusTooManyRequests: "refused", http.StatusServiceUnavailable: "unavailable",
}

const resultError = "error"

// Meter counts what is answered, and what the API is asked for it. Its zero value is no Meter.
type Meter struct {
	answers *prometheus.CounterVec // result
	seconds prometheus.Histogram
	asked   *prometheus.CounterVec // kind, result
	refused prometheus.Counter
}

// NewMeter registers the metrics; nil: nobody reads them.
func NewMeter(r prometheus.Registerer) (*Meter, error) {
	m := &Meter{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "fairlead", Subsystem: "access", Name: "answers_total", Help: "Answers of the read API by result; streams when they end.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "fairlead", Subsystem: "access", Name: "answer_seconds", Help: "Time of answers of the read API, without streams.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8), // 1 ms to 16 s
		}),
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
	for _, result := range results {
		m.answers.WithLabelValues(result)
	}
	m.answers.WithLabelValues(resultError)
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.answers, m.seconds, m.asked, m.refused} {
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

// answered counts answers, and times those that are no streams.
func (m *Meter) answered(now func() time.Time, answer func(http.ResponseWriter, *http.Request) (stream bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, s := now(), &statusWriter{ResponseWriter: w}
		stream := answer(s, r)
		m.answers.WithLabelValues(cmp.Or(results[cmp.Or(s.status, http.StatusOK)], resultError)).Inc()
		if !stream {
			m.seconds.Observe(now().Sub(began).Seconds())
		}
	})
}

// statusWriter remembers the status of an answer; 0: 200, if there is one.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (s *statusWriter) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

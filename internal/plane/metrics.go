package plane

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/snapshot"
)

const (
	metricNamespace = "fairlead"
	metricSubsystem = "plane"
)

// metrics are the plane's own. Every label has a small, fixed set of values, but for those
// that name a Secret with a certificate or an AddressPool, of which a bounded number has series.
type metrics struct {
	leading      prometheus.Gauge
	epoch        prometheus.Gauge
	revision     prometheus.Gauge
	changes      prometheus.Counter
	translate    prometheus.Histogram
	publish      prometheus.Histogram
	answer       prometheus.Histogram
	resources    *prometheus.CounterVec // type
	machines     *prometheus.GaugeVec   // state
	objects      *prometheus.GaugeVec   // kind, state
	vips         *prometheus.GaugeVec   // state
	frontends    *prometheus.GaugeVec   // state
	backends     *prometheus.GaugeVec   // state
	panicking    prometheus.Gauge
	checks       *prometheus.GaugeVec // health
	notChecked   prometheus.Gauge
	verdicts     *prometheus.CounterVec // health
	ejected      prometheus.Gauge
	sessions     *prometheus.GaugeVec // state
	certificates *prometheus.GaugeVec // state
	nextExpiry   prometheus.Gauge
	expiry       *prometheus.GaugeVec // namespace, name
	expiriesLeft prometheus.Gauge
	stapled      prometheus.Gauge
	writes       *writeMetrics
	writesQueued prometheus.GaugeFunc
	writesAsked  prometheus.GaugeFunc
	applied      prometheus.Histogram
	sourceFaults prometheus.GaugeFunc
	traces       *prometheus.CounterVec // result
	// poolAddresses are those of the first AddressPools by name, and of the others together.
	poolAddresses *prometheus.GaugeVec // pool, family, state
}

// human are the buckets of times that people notice: 5 ms to 41 s.
var human = prometheus.ExponentialBuckets(0.005, 2, 14)

// writeMetrics are those of status writes.
type writeMetrics struct {
	count *prometheus.CounterVec // kind, result
	wait  prometheus.Histogram
	time  prometheus.Histogram
}

var _ status.Meter = (*writeMetrics)(nil)

func newWriteMetrics() *writeMetrics {
	return &writeMetrics{
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "status_writes_total", Help: "Status writes by kind and result.",
		}, []string{"kind", "result"}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "status_wait_seconds", Help: "Time that a due status waited to be written.", Buckets: human,
		}),
		time: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "status_write_seconds", Help: "Time that the API took to write a status, including conflicts.", Buckets: human,
		}),
	}
}

// Count implements status.Meter.
func (m *writeMetrics) Count(kind string, o status.Outcome) {
	m.count.WithLabelValues(kind, string(o)).Inc()
}

// Time implements status.Meter.
func (m *writeMetrics) Time(waited, took time.Duration) {
	m.wait.Observe(waited.Seconds())
	m.time.Observe(took.Seconds())
}

// statusQueue is the status writer, as far as metrics read it.
type statusQueue interface {
	Pending() int
	UnderWay() int
}

// kindTrouble has the kinds that the API does not answer for.
type kindTrouble interface {
	Trouble() map[snapshot.Kind]string
}

// newMetrics registers the metrics. A registry takes one plane.
func newMetrics(r prometheus.Registerer, writes *writeMetrics, queue statusQueue, source kindTrouble) (*metrics, error) {
	seconds := prometheus.ExponentialBuckets(0.00005, 4, 10) // 50 us to 13 s
	m := &metrics{
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "leading", Help: "1 while this plane leads and serves agents.",
		}),
		epoch: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "epoch", Help: "Epoch of this plane's last leadership.",
		}),
		revision: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "revision", Help: "Last revision published within the epoch.",
		}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "changes_total", Help: "Changed objects received from the API.",
		}),
		translate: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "translate_seconds", Help: "Time to translate a batch of changes.", Buckets: seconds,
		}),
		publish: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "publish_seconds", Help: "Time to build and publish the resources of a batch.", Buckets: seconds,
		}),
		answer: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "answer_seconds", Help: "Time for which answers to consoles occupy the plane's loop.", Buckets: seconds,
		}),
		resources: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "resources_built_total", Help: "Resources built for machines, by type.",
		}, []string{"type"}),
		machines: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "machines", Help: "Machines by state.",
		}, []string{"state"}),
		objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "objects", Help: "Objects with a status, by kind and state.",
		}, []string{"kind", "state"}),
		vips: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "vips", Help: "Assigned VIPs by state.",
		}, []string{"state"}),
		frontends: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "frontends", Help: "Frontends by state.",
		}, []string{"state"}),
		backends: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "frontend_backends", Help: "Backends of all frontends, by whether they accept new flows.",
		}, []string{"state"}),
		panicking: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "frontends_panicking",
			Help: "Frontends below their panic threshold, for which all backends count as healthy.",
		}),
		checks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "checks", Help: "Checks of backends, by the verdict of their checkers.",
		}, []string{"health"}),
		notChecked: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "checks_left_out",
			Help: "Default checks that no machine runs, because there are too many.",
		}),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "check_verdicts_total", Help: "Changed verdicts, by the new verdict.",
		}, []string{"health"}),
		ejected: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "ejected_backends", Help: "Backends that a proxy has ejected because requests to them fail.",
		}),
		sessions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "bgp_sessions", Help: "BGP sessions of connected machines by state.",
		}, []string{"state"}),
		certificates: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "certificates", Help: "Certificates in use, by state.",
		}, []string{"state"}),
		nextExpiry: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "certificate_next_expiry_timestamp_seconds",
			Help: "Expiry of the certificate in use that expires first, in Unix time; 0 while there is none.",
		}),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "certificate_expiry_timestamp_seconds",
			Help: "Expiry of the 200 certificates in use that expire first, in Unix time, by Secret.",
		}, []string{"namespace", "name"}),
		expiriesLeft: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "certificates_left_out",
			Help: "Certificates in use that expire later than those with an expiry of their own.",
		}),
		stapled: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "certificates_stapled", Help: "Certificates in use with an OCSP response.",
		}),
		writes: writes,
		writesQueued: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "status_writes_queued", Help: "Statuses that wait to be written.",
		}, func() float64 { return float64(queue.Pending()) }),
		writesAsked: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "status_writes_under_way", Help: "Status writes that the API has not answered yet.",
		}, func() float64 { return float64(queue.UnderWay()) }),
		applied: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "applied_seconds",
			Help: "Time from the publication of a revision until a machine that it concerns reports that it runs the revision; each report counts its oldest revision.", Buckets: human,
		}),
		sourceFaults: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "source_kinds_failing", Help: "Kinds for which the API does not answer at the moment.",
		}, func() float64 { return float64(len(source.Trouble())) }),
		traces: newTraceCounts(),
		poolAddresses: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "pool_addresses", Help: "Addresses of AddressPools, by family and state.",
		}, []string{"pool", "family", "state"}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.leading, m.epoch, m.revision, m.changes, m.translate, m.publish, m.answer,
		m.resources, m.machines, m.objects, m.vips, m.frontends, m.backends, m.panicking, m.checks, m.notChecked, m.verdicts, m.ejected, m.sessions, m.certificates, m.nextExpiry, m.expiry, m.expiriesLeft, m.stapled, m.writes.count, m.writesQueued, m.writesAsked, m.writes.wait, m.writes.time, m.applied, m.sourceFaults, m.traces, m.poolAddresses,
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

package exposition

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/model"
)

// LoadDescs are the metrics of backends.
type LoadDescs struct{ requests, tries, inFlight, firstByte *prometheus.Desc }

// OwnLoads are the metrics at a machine, and those of FleetLoads have the machine as another label, before all else.
var (
	OwnLoads   = describeLoads()
	FleetLoads = describeLoads("machine")
)

func describeLoads(before ...string) LoadDescs {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		labels := append(append([]string{}, before...), "group", "backend")
		return prometheus.NewDesc("fairlead_"+name, help, append(labels, more...), nil)
	}
	return LoadDescs{
		requests: desc("requests_by_backend_total", "Requests that a backend of a measured group has ended: ok, or error (5xx, or no answer).", "class"),
		tries:    desc("tries_by_backend_total", "Requests sent to a backend of a measured group."),
		inFlight: desc("requests_in_flight_by_backend", "Requests that a backend of a measured group has not ended."),
		firstByte: desc("first_byte_seconds_by_backend",
			"Time from the first byte of a request to that of the answer, of a backend of a measured group."),
	}
}

// All are all of them.
func (d LoadDescs) All() []*prometheus.Desc {
	return []*prometheus.Desc{d.requests, d.tries, d.inFlight, d.firstByte}
}

// Tell tells what has been counted of a backend. labels are the group and the backend, after the machine where there is one.
func (d LoadDescs) Tell(to chan<- prometheus.Metric, b model.BackendLoad, labels ...string) {
	class := func(name string) []string { return append(append([]string{}, labels...), name) }
	to <- prometheus.MustNewConstMetric(d.requests, prometheus.CounterValue, float64(b.Succeeded), class("ok")...)
	to <- prometheus.MustNewConstMetric(d.requests, prometheus.CounterValue, float64(b.Failed), class("error")...)
	to <- prometheus.MustNewConstMetric(d.tries, prometheus.CounterValue, float64(b.Requests), labels...)
	to <- prometheus.MustNewConstMetric(d.inFlight, prometheus.GaugeValue, float64(b.InFlight), labels...)
	to <- prometheus.MustNewConstSummary(d.firstByte, b.Timed, float64(b.Micros)/1e6, nil, labels...)
}

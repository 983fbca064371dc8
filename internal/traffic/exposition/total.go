package exposition

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/traffic"
)

// Labels are those of names.
var Labels = map[traffic.By]string{
	traffic.Namespaces: "namespace", traffic.Hosts: "host", traffic.Listeners: "listener", traffic.Upstreams: "upstream", traffic.Routes: "route",
}

// Descs are the metrics of names.
type Descs struct {
	Requests, Seconds, Received, Sent, Retries, Resets map[traffic.By]*prometheus.Desc

	Open, Taken *prometheus.Desc // of listeners
}

// Own are the metrics at a machine, and those of Fleet have the machine as another label, before all else.
var (
	Own   = describe()
	Fleet = describe("machine")
)

func describe(before ...string) Descs {
	some := func(name, help, more string, of ...traffic.By) map[traffic.By]*prometheus.Desc {
		list := map[traffic.By]*prometheus.Desc{}
		for _, by := range of {
			variable := append(append([]string{}, before...), Labels[by])
			if more != "" {
				variable = append(variable, more)
			}
			list[by] = prometheus.NewDesc("fairlead_"+strings.Replace(name, "|", "_by_"+Labels[by], 1), help+Labels[by]+".", variable, nil)
		}
		return list
	}
	const namespace, upstream, listener, route, host = traffic.Namespaces, traffic.Upstreams, traffic.Listeners, traffic.Routes, traffic.Hosts
	return Descs{
		Requests: some("requests|_total", "Requests by the class of the status and by ", "class", namespace, host, listener, upstream, route),
		Seconds:  some("request_seconds|", "Duration of requests by ", "", namespace, host, listener, upstream, route),
		Received: some("received_bytes|_total", "Bytes from clients by ", "", namespace, listener, upstream),
		Sent:     some("sent_bytes|_total", "Bytes to clients by ", "", namespace, listener, upstream),
		Retries:  some("retries|_total", "Requests that were sent once more, by ", "", namespace, upstream),
		Resets:   some("resets|_total", "Requests that one side has reset, by ", "", namespace, listener, upstream),
		Open:     prometheus.NewDesc("fairlead_open_connections_by_listener", "Open connections of clients by listener.", append(append([]string{}, before...), "listener"), nil),
		Taken:    prometheus.NewDesc("fairlead_connections_by_listener_total", "Connections of clients by listener.", append(append([]string{}, before...), "listener"), nil),
	}
}

// All are all of them.
func (d Descs) All() []*prometheus.Desc {
	list := []*prometheus.Desc{d.Open, d.Taken}
	for _, some := range []map[traffic.By]*prometheus.Desc{d.Requests, d.Seconds, d.Received, d.Sent, d.Retries, d.Resets} {
		for _, desc := range some {
			list = append(list, desc)
		}
	}
	return list
}

// Total tells a total of a machine.
func Total(to chan<- prometheus.Metric, t model.TrafficTotal, machine string) {
	d, by := Fleet, traffic.By(t.By)
	if Labels[by] == "" || d.Seconds[by] == nil {
		return
	}
	d.Volume(to, t, machine)
	if by != traffic.Upstreams { // Volume has told those
		d.Answers(to, t, machine)
	}
}

// Answers tells the requests of a total, by class.
func (d Descs) Answers(to chan<- prometheus.Metric, t model.TrafficTotal, before ...string) {
	for class, n := range t.Answers {
		if n > 0 {
			to <- prometheus.MustNewConstMetric(d.Requests[traffic.By(t.By)], prometheus.CounterValue, float64(n),
				append(append([]string{}, before...), t.Name, model.StatusClass(class).String())...)
		}
	}
}

// Volume tells all else of a total; of an upstream its answers, too.
func (d Descs) Volume(to chan<- prometheus.Metric, t model.TrafficTotal, before ...string) {
	d.VolumeWith(to, t, nil, before...)
}

// VolumeWith is Volume with exemplars of the durations.
func (d Descs) VolumeWith(to chan<- prometheus.Metric, t model.TrafficTotal, exemplars []Exemplar, before ...string) {
	by := traffic.By(t.By)
	values := append(append([]string{}, before...), t.Name)
	count := func(desc *prometheus.Desc, n uint64) {
		if desc != nil {
			to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), values...)
		}
	}
	to <- withExemplars(Histogram(d.Seconds[by], t.Seconds, values...), exemplars)
	count(d.Received[by], t.Received)
	count(d.Sent[by], t.Sent)
	count(d.Retries[by], t.Retries)
	count(d.Resets[by], t.Resets)
	switch by {
	case traffic.Upstreams:
		d.Answers(to, t, before...)
	case traffic.Listeners:
		count(d.Taken, t.Connections)
		to <- prometheus.MustNewConstMetric(d.Open, prometheus.GaugeValue, float64(t.Open), values...)
	case traffic.Namespaces, traffic.Routes, traffic.Hosts:
	}
}

// Package exposition makes metrics of Prometheus of what is counted of traffic.
package exposition

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/traffic"
)

// durations is a histogram, classic and native in one.
type durations struct {
	desc   *prometheus.Desc
	value  model.Histogram
	labels []string
}

// Histogram is a metric with the durations of h.
func Histogram(desc *prometheus.Desc, h model.Histogram, labels ...string) prometheus.Metric {
	return &durations{desc, h, labels}
}

// Desc implements prometheus.Metric.
func (d *durations) Desc() *prometheus.Desc { return d.desc }

// Write implements prometheus.Metric.
func (d *durations) Write(into *dto.Metric) error {
	into.Label = prometheus.MakeLabelPairs(d.desc, d.labels)
	into.Histogram = words(d.value)
	return nil
}

// words are what Prometheus is told of a histogram: which of its two forms is sent is up to who asks.
func words(h model.Histogram) *dto.Histogram {
	out := &dto.Histogram{
		SampleCount: new(h.Count()), SampleSum: new(float64(h.Micros) / 1e6),
		Schema: new(int32(4)), ZeroThreshold: new(0.0), ZeroCount: new(uint64(0)),
	}
	for i, n := range traffic.Classic(h) {
		out.Bucket = append(out.Bucket, &dto.Bucket{UpperBound: new(traffic.Limits[i]), CumulativeCount: new(n)})
	}
	next, last := int32(0), int64(0)
	for i, b := range h.Buckets {
		if i == 0 || b.Index != next {
			out.PositiveSpan = append(out.PositiveSpan, &dto.BucketSpan{Offset: new(b.Index - next), Length: new(uint32(0))})
		}
		*out.PositiveSpan[len(out.PositiveSpan)-1].Length++
		out.PositiveDelta = append(out.PositiveDelta, int64(b.Count)-last)
		next, last = b.Index+1, int64(b.Count)
	}
	if len(out.PositiveSpan) == 0 {
		out.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(0))}} // else it would be no native one
	}
	return out
}

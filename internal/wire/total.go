package wire

import (
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// Totals word what a machine's proxies have counted, by names.
func Totals(totals []model.TrafficTotal) []*agentv1.Total {
	out := make([]*agentv1.Total, 0, len(totals))
	for i := range totals {
		t := &totals[i]
		m := &agentv1.Total{
			By: t.By, Name: t.Name, Classes: t.Answers[:], Received: t.Received, Sent: t.Sent, Retries: t.Retries, Resets: t.Resets,
			Connections: t.Connections, Open: t.Open, Micros: t.Seconds.Micros,
		}
		for _, b := range t.Seconds.Buckets {
			m.Buckets, m.Counts = append(m.Buckets, b.Index), append(m.Counts, b.Count)
		}
		out = append(out, m)
	}
	return out
}

// minBucket and maxBucket bound the durations that a machine may tell of: from less than what BucketOf tells apart to 2^64 seconds. A
// limit beyond is no number that JSON has.
const minBucket, maxBucket = -64 * model.HistogramScale, 64 * model.HistogramScale

// TotalsOf reads what Totals wrote. A bucket that is not after the one before it, or that no duration has, is left out, and so is all after it.
func TotalsOf(totals []*agentv1.Total) []model.TrafficTotal {
	out := make([]model.TrafficTotal, 0, len(totals))
	for _, t := range totals {
		m := model.TrafficTotal{By: t.GetBy(), Name: t.GetName(), Volume: model.Volume{
			Received: t.GetReceived(), Sent: t.GetSent(), Retries: t.GetRetries(), Resets: t.GetResets(),
			Connections: t.GetConnections(), Open: t.GetOpen(), Seconds: model.Histogram{Micros: t.GetMicros()},
		}}
		copy(m.Answers[:], t.GetClasses())
		for i, index := range t.GetBuckets() {
			if i >= len(t.GetCounts()) || i > 0 && index <= t.GetBuckets()[i-1] || index < minBucket || index > maxBucket {
				break
			}
			m.Seconds.Buckets = append(m.Seconds.Buckets, model.HistogramBucket{Index: index, Count: t.GetCounts()[i]})
		}
		out = append(out, m)
	}
	return out
}

package traffic

import "fairlead.dev/internal/model"

// Limits are the upper limits of the buckets of classic histograms, in seconds.
var Limits = [...]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10}

// Classic is the number of durations up to each of Limits. A bucket on both sides of a limit counts by its middle.
func Classic(h model.Histogram) []uint64 {
	counts := make([]uint64, len(Limits))
	for _, b := range h.Buckets {
		middle := b.Middle()
		for i := len(Limits) - 1; i >= 0 && middle <= Limits[i]; i-- {
			counts[i] += b.Count
		}
	}
	return counts
}

// Bucket is the index in Limits of the classic bucket of a duration; len(Limits) is the bucket beyond all limits.
func Bucket(seconds float64) int {
	i := 0
	for i < len(Limits) && seconds > Limits[i] {
		i++
	}
	return i
}

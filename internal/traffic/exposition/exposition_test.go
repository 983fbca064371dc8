package exposition

import (
	"testing"

	"fairlead.dev/internal/model"
)

// Native histograms have the same durations in buckets of 4.4 %.
func TestNativeHistograms(t *testing.T) {
	var h model.Histogram
	h.Add(0.03, 4)
	h.Add(0.0335, 2)
	h.Add(2, 7)
	n := words(h)
	got := map[int32]int64{}
	index, count, i := int32(0), int64(0), 0
	for _, span := range n.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			count += n.GetPositiveDelta()[i]
			got[index] = count
			index, i = index+1, i+1
		}
	}
	want := map[int32]int64{}
	for _, b := range h.Buckets {
		want[b.Index] = int64(b.Count)
	}
	if len(got) != 3 || got[model.BucketOf(0.03)] != 4 || got[model.BucketOf(0.0335)] != 2 || got[16] != 7 || n.GetSchema() != 4 || n.GetSampleCount() != 13 {
		t.Errorf("got %v, want %v: %v", got, want, n)
	}
}

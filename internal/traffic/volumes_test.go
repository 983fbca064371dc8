package traffic

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"fairlead.dev/internal/model"
)

// seen is what a proxy's statistics say of durations: whole milliseconds, and two digits above 100.
func seen(seconds []float64) (h model.Histogram) {
	for _, s := range seconds {
		lower := math.Floor(s * 1000)
		width := 1.0
		for lower >= 100*width {
			width *= 10
		}
		lower = math.Floor(lower/width) * width
		h.Add((lower+width/2)/1000, 1)
	}
	return h
}

func TestQuantilesOfKnownDistributions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, next := range map[string]func() float64{
		"uniform 10 to 110 ms":     func() float64 { return 0.01 + 0.1*r.Float64() },
		"exponential, mean 200 ms": func() float64 { return 0.02 + 0.2*r.ExpFloat64() },
		"log-normal, 50 ms":        func() float64 { return max(0.01, 0.05*math.Exp(0.8*r.NormFloat64())) },
		"two humps, 20 ms and 2 s": func() float64 {
			if r.Float64() < 0.8 {
				return 0.02 + 0.01*r.Float64()
			}
			return 2 + r.Float64()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var all []float64
			for range 100_000 {
				all = append(all, next())
			}
			h := seen(all)
			slices.Sort(all)
			for _, q := range []float64{0.1, 0.5, 0.75, 0.9, 0.99, 0.999} {
				want := all[int(q*float64(len(all)))]
				if got := h.Quantile(q); math.Abs(got/want-1) > 0.05 {
					t.Errorf("quantile %g is %.4f s, want %.4f s", q, got, want)
				}
			}
			sum := 0.0
			for _, s := range all {
				sum += s
			}
			if got := float64(h.Micros) / 1e6; math.Abs(got/sum-1) > 0.02 {
				t.Errorf("the sum is %.1f s, want %.1f s", got, sum)
			}
		})
	}
}

func TestMergedHistogramsAreExact(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var all []float64
	var merged model.Histogram
	for range 20 {
		var some []float64
		for range 100 {
			some = append(some, r.ExpFloat64())
		}
		all = append(all, some...)
		merged.Merge(seen(some))
	}
	if whole := seen(all); !reflect.DeepEqual(merged, whole) {
		t.Errorf("merged: %v\nwhole: %v", merged, whole)
	}
}

// What has been counted stays, whatever becomes of proxies and groups.
func TestVolumesNeverShrink(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	v := NewVolumes(3)
	names := []string{"a", "b", "c", "d", "e"}
	now := map[string]model.Volume{}
	before, sent := map[string]model.Volume{}, uint64(0)
	for range 300 {
		switch r.IntN(10) {
		case 0:
			clear(now) // another proxy
		case 1:
			delete(now, names[r.IntN(len(names))])
		}
		for _, n := range names {
			add := uint64(r.IntN(50))
			w := now[n]
			w.Seconds.Buckets = slices.Clone(w.Seconds.Buckets)
			w.Sent += add
			w.Seconds.Add(r.Float64(), add)
			now[n], sent = w, sent+add
		}
		var counted []Counted
		for n, w := range now {
			counted = append(counted, Counted{Key: n, Name: n, Volume: w})
		}
		v.Take(counted)
		after := map[string]model.Volume{}
		v.All(func(name string, total model.Volume) {
			total.Seconds.Buckets = slices.Clone(total.Seconds.Buckets)
			after[name] = total
			if _, grown := total.Less(before[name]); !grown {
				t.Fatalf("%s has shrunk from %+v to %+v", name, before[name], total)
			}
		})
		before = after
	}
	if len(before) != 4 || v.Left() != 2 {
		t.Errorf("%d names have totals and %d are left out, want 3 and other, and 2", len(before), v.Left())
	}
	total := uint64(0)
	for _, w := range before {
		total += w.Sent
		if w.Seconds.Count() != w.Sent {
			t.Errorf("%d durations, want %d", w.Seconds.Count(), w.Sent)
		}
	}
	if total > sent {
		t.Errorf("%d bytes are more than the %d that were sent", total, sent)
	}
}

func TestClassicBuckets(t *testing.T) {
	h := seen([]float64{0.0042, 0.0048, 0.0093, 0.024, 0.2, 3, 30})
	if got, want := Classic(h), []uint64{2, 3, 4, 4, 4, 5, 5, 5, 5, 6}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

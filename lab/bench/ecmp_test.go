package bench

import (
	"slices"
	"testing"
)

func TestDelaySpreadIsByNearestRank(t *testing.T) {
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	for _, c := range []struct {
		delays []float64
		want   DelaySpread
	}{
		{nil, DelaySpread{}},
		{[]float64{7}, DelaySpread{7, 7, 7}},
		{[]float64{3, 1, 2}, DelaySpread{2, 3, 3}},
		{hundred, DelaySpread{50, 99, 100}},
	} {
		if got := delaySpread(c.delays); got != c.want {
			t.Errorf("of %d delays: %+v, want %+v", len(c.delays), got, c.want)
		}
	}
}

// What is around a change is no one's throughput.
func TestByCountLeavesChangesOut(t *testing.T) {
	changes := []ECMPChange{{At: 3.1, From: 2, To: 1, Delay: 200}}
	var samples []Sample
	for i := range 8 {
		s := Sample{At: float64(i + 1), Edges: 2, Mbps: 100}
		if s.At > 3 {
			s.Edges, s.Mbps = 1, 50
		}
		if s.At == 1 || s.At == 4 || s.At == 5 {
			s.Mbps = 1 // the ramp at the start, and that of the change, until 4.3
		}
		samples = append(samples, s)
	}
	want := []CountRate{{Edges: 1, Seconds: 3, Mbps: 50, Share: 1}, {Edges: 2, Seconds: 2, Mbps: 100, Share: 1}}
	if got := byCount(samples, changes); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

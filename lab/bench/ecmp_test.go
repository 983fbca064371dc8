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

// A run in which nothing changes is judged by downloads and throughput alone; another one
// without a change has measured nothing.
func TestWhenTheGoalsAreMet(t *testing.T) {
	change := []ECMPChange{{At: 2.1, From: 2, To: 1, Delay: 100}}
	for name, c := range map[string]struct {
		still   bool
		changes []ECMPChange
		broken  int64
		met     bool
	}{
		"still":              {still: true, met: true},
		"still, one broke":   {still: true, broken: 1},
		"no change":          {},
		"changes":            {changes: change, met: true},
		"changes, one broke": {changes: change, broken: 1},
	} {
		x := &experiment{ECMPOptions: ECMPOptions{Edges: 1, Still: c.still}, changes: c.changes, took: []float64{700}}
		x.broken.Store(c.broken)
		for at := range 6 {
			x.samples = append(x.samples, Sample{At: float64(at + 1), Edges: 1, Mbps: 49})
		}
		if r := x.result(); r.Met != c.met || r.Still != c.still || r.Complete != 1 || r.Took.Max != 700 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

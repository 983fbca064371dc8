package bench

import (
	"maps"
	"testing"
	"time"

	"fairlead.dev/lab/load"
)

func TestSpreadAndTally(t *testing.T) {
	s := spread([]time.Duration{3 * time.Millisecond, 1250 * time.Microsecond, 2 * time.Millisecond})
	if s.P50 != 2 || s.Max != 3 || len(s.All) != 3 || s.All[1] != 1.3 {
		t.Errorf("%+v", s)
	}
	if spread(nil) != nil {
		t.Error("no times have a spread")
	}
	if got := tally([]int{4, 0, 1}); got != (Tally{P50: 1, Max: 4, Total: 5}) {
		t.Errorf("%+v", got)
	}
}

// A loss is a round's if it ended in it, and its connection began before the end.
func TestBetween(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	f := &flows{
		failed: []loss{
			{at(0), at(99), load.KindConnect}, // over before
			{at(50), at(100), load.KindTimeout},
			{at(120), at(125), load.KindConnect},
			{at(130), at(135), load.KindReset},
			{at(201), at(202), load.KindConnect}, // after it
		},
		broken: []loss{{at(90), at(99), load.KindReset}, {at(90), at(110), load.KindReset}, {at(210), at(220), load.KindReset}},
	}
	got := f.between(at(100), at(200))
	if !maps.Equal(got.failed, map[load.Kind]int{load.KindTimeout: 1, load.KindConnect: 1}) || got.inFlight != 1 || sum(got.broken) != 1 || !got.last.Equal(at(120)) {
		t.Errorf("%+v", got)
	}
}

func TestJudge(t *testing.T) {
	selected := func(name string) bgpCase {
		c, err := selectCases([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		return c[0]
	}
	row := func(ms, outage float64, failed, moved int) *BGPRow {
		r := &BGPRow{Outage: &Spread{Max: outage}, NewFailures: Tally{Total: failed}, RouteChanges: moved}
		if ms > 0 {
			r.RouteChanged = &Spread{P50: ms, Max: ms}
		}
		return r
	}
	for _, c := range []struct {
		name string
		bfd  bool
		row  *BGPRow
		met  bool
	}{
		{"announce", false, row(99, 0, 0, 0), true},
		{"announce", false, row(100, 0, 0, 0), false},
		{"withdraw", false, row(10, 5, 1, 0), false},
		{"kill-agent", false, row(0, 0, 0, 0), true},
		{"kill-agent", true, row(800, 0, 0, 1), false},
		{"kill-envoy", false, row(400, 0, 9, 0), true},
		{"kill-envoy", true, row(401, 0, 9, 0), false},
		{"kill-all", false, row(0, 1300, 9, 0), true},
		{"kill-all", true, row(0, 1300, 9, 0), false},
		{"hang", false, row(3300, 0, 9, 0), true},
		{"hang", true, row(1201, 0, 9, 0), false},
	} {
		if goal, met := selected(c.name).judge(c.bfd, c.row); met != c.met {
			t.Errorf("%s, BFD %v, %+v: met is %v, want %v; the goal is %s", c.name, c.bfd, c.row, met, c.met, goal)
		}
	}
	if _, err := selectCases([]string{"flood"}); err == nil {
		t.Error("a case that is not there was selected")
	}
	names, about := BGPCases()
	for _, name := range names {
		if about[name] == "" {
			t.Errorf("nobody says what %s is", name)
		}
	}
}

package watch

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/tap"
	"fairlead.dev/internal/traffic"
)

// All viewers share the samples, proxies are asked at most once a second, and not at all when nobody looks.
func TestTopAsksOnceForAllViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		began := time.Now()
		view := top{now: time.Now, sample: func(context.Context) map[string]southbound.Figures {
			asked++
			n := uint64(time.Since(began) / (10 * time.Millisecond)) // 100 requests a second
			return map[string]southbound.Figures{"edge": {Requests: []model.RequestFigures{
				{Listener: "http", Host: "a.test", Route: "HTTPRoute/team/app/rules/0", Classes: [model.StatusClasses]uint64{2: n}},
			}}}
		}}
		look := func() {
			got, err := view.ask(t.Context(), traffic.Query{By: traffic.Routes}, 0)
			if err != nil || len(got.Rows) != 1 || got.Rows[0].Rate != 100 {
				t.Errorf("%+v, %v, want 100 requests a second", got, err)
			}
		}
		look() // two samples
		if asked != 2 {
			t.Errorf("%d questions for the first view, want 2", asked)
		}
		for range 5 {
			time.Sleep(topGap)
			var viewers sync.WaitGroup
			for range 50 {
				viewers.Go(look)
			}
			viewers.Wait()
		}
		if asked != 7 {
			t.Errorf("%d questions after five samples for 50 viewers, want 7", asked)
		}
		// Who names the last sample is answered after the next, and at once.
		first, _ := view.ask(t.Context(), traffic.Query{By: traffic.Routes}, 0)
		at := time.Now()
		var viewers sync.WaitGroup
		for range 50 {
			viewers.Go(func() {
				next, err := view.ask(t.Context(), traffic.Query{By: traffic.Routes}, first.Sample)
				if err != nil || next.Sample != first.Sample+1 || time.Since(at) != topGap {
					t.Errorf("after sample %d there is %d, %v, after %s", first.Sample, next.Sample, err, time.Since(at))
				}
			})
		}
		viewers.Wait()
		if asked != 8 {
			t.Errorf("%d questions for 50 viewers who wait, want 8", asked)
		}
		time.Sleep(time.Hour)
		if asked != 8 {
			t.Error("nobody looks, and proxies are asked")
		}
		look()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(time.Hour)
		if _, err := view.ask(ctx, traffic.Query{By: traffic.Routes}, 0); err == nil {
			t.Error("a viewer that has gone has an answer")
		}
	})
}

// A viewer who leaves while machines are asked leaves the others their sample.
func TestTopOfViewersWhoLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := top{now: time.Now, sample: func(ctx context.Context) map[string]southbound.Figures {
			if ctx.Err() != nil { // nobody has answered by then
				return map[string]southbound.Figures{}
			}
			return map[string]southbound.Figures{"edge": {Requests: []model.RequestFigures{{Route: "HTTPRoute/team/app/rules/0"}}}}
		}}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			time.Sleep(topGap)
			_, _ = view.ask(gone, traffic.Query{By: traffic.Routes}, 0)
			if got, err := view.ask(t.Context(), traffic.Query{By: traffic.Routes}, 0); err != nil || len(got.Machines) != 1 {
				t.Errorf("%+v, %v, want one machine", got, err)
			}
			if got := view.latest(t.Context()); len(got) != 1 {
				t.Errorf("metrics of %d machines", len(got))
			}
		}
	})
}

// Who asks alike shares an answer, with a limit of their own; the next sample has other answers.
func TestTopComparesOnceForAllViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := uint64(0)
		view := top{now: time.Now, sample: func(context.Context) map[string]southbound.Figures {
			n += 10
			return map[string]southbound.Figures{"edge": {Requests: []model.RequestFigures{
				{Route: "HTTPRoute/team/a/rules/0", Classes: [model.StatusClasses]uint64{2: 2 * n}},
				{Route: "HTTPRoute/team/b/rules/0", Classes: [model.StatusClasses]uint64{2: n}},
			}}}
		}}
		look := func(q traffic.Query) model.Top {
			got, err := view.ask(t.Context(), q, 0)
			if err != nil || got.Total != 2 || got.Rows[0].Name != "HTTPRoute/team/a" || got.Rows[0].Rate != 20/topGap.Seconds() {
				t.Fatalf("%+v, %v", got, err)
			}
			return got
		}
		all, one := look(traffic.Query{By: traffic.Routes}), look(traffic.Query{By: traffic.Routes, Limit: 1})
		if len(all.Rows) != 2 || len(one.Rows) != 1 || &all.Rows[0] != &one.Rows[0] {
			t.Errorf("%d and %d rows, of one comparison: %t", len(all.Rows), len(one.Rows), &all.Rows[0] == &one.Rows[0])
		}
		time.Sleep(topGap)
		if next := look(traffic.Query{By: traffic.Routes}); &next.Rows[0] == &all.Rows[0] {
			t.Error("the next sample has the rows of the one before")
		}
		for i := range 2 * keptAnswers {
			_, _ = view.ask(t.Context(), traffic.Query{By: traffic.Routes, Namespace: strconv.Itoa(i)}, 0)
		}
		if len(view.answers) > keptAnswers {
			t.Errorf("%d answers are kept", len(view.answers))
		}
	})
}

// A machine that sends more than is enough, or names without end, takes nobody's place.
func TestTimesOfMachinesThatSendTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := &topTimes{bounds: map[string]*tap.Bound{}}
		timed := func(name string) uint64 {
			before := traffic.Sample{At: time.Now(), Requests: map[string][]model.RequestFigures{"edge": nil}}
			after := traffic.Sample{At: time.Now(), Requests: map[string][]model.RequestFigures{"edge": {{Route: name}}}}
			return traffic.Rates(before, after, traffic.Query{By: traffic.Routes}, &times.times).Rows[0].Timed
		}
		const mine, theirs = "HTTPRoute/shop/app/rules/0", "HTTPRoute/news/app/rules/0"
		for range 10_000 {
			times.take(&model.TapRecord{Machine: "wicked", Route: mine, Seconds: 60})
		}
		for range timedRequests {
			times.take(&model.TapRecord{Machine: "honest", Route: theirs, Seconds: 0.1})
		}
		times.take(&model.TapRecord{Machine: "honest", Route: theirs + strings.Repeat("x", longestNames), Seconds: 0.1})
		if n := timed(mine); n != 2*timedRequests {
			t.Errorf("%d times of a machine count, want %d", n, 2*timedRequests)
		}
		if n := timed(theirs); n != timedRequests {
			t.Errorf("%d times of another machine count, want %d", n, timedRequests)
		}
	})
}

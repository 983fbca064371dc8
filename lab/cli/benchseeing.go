package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"fairlead.dev/lab/bench"
	"fairlead.dev/lab/report"
)

func newBenchSeeing(dir *string) *cobra.Command {
	var o bench.SeeingOptions
	c := &cobra.Command{
		Use:   "seeing",
		Short: "Measure what metrics, top and the read API cost with 20,000 routes, and how true they are",
		Long: `Measure Envoy's processor time for a request with all metrics and without, and its memory. With many routes of many
namespaces at some edges, count series, time scrapes, read pages and streams, look at top with
many viewers, and compare what it counts with what clients counted. Changes of one route are
timed with nobody looking, and while viewers look and each edge is scraped once a second.`,
		Example: "  fairlead lab bench seeing --routes 1000 --viewers 10",
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.NetworkOptions, err = networkOptions(c); err != nil {
				return err
			}
			return measure(c, *dir, "seeing", func(ctx context.Context) (bench.SeeingResult, error) { return bench.Seeing(ctx, o) }, seeingTable)
		},
	}
	c.Flags().IntSliceVar(&o.Sizes, "routes", []int{5_000, 20_000}, "numbers of routes; only series and scrapes are measured at all but the last")
	c.Flags().IntVar(&o.Endpoints, "endpoints", 5, "endpoints of each route's Service")
	c.Flags().IntVar(&o.Namespaces, "namespaces", 500, "namespaces of the routes")
	c.Flags().IntVar(&o.Edges, "edges", 3, "number of edges")
	c.Flags().IntVar(&o.Viewers, "viewers", 50, "viewers of top, and streams of the read API")
	c.Flags().IntVar(&o.Changes, "changes", 60, "number of changes of one route, seen and again unseen")
	c.Flags().IntVar(&o.Rounds, "rounds", 20, "rounds that compare the cost of a request")
	return c
}

func seeingTable(r bench.SeeingResult) report.Table {
	t := report.Table{Columns: []string{"what", "figure", "beside"}}
	ms := func(v float64) string { return fmt.Sprintf("%.1f ms", v) }
	t.Add("Envoy's CPU a request with metrics", fmt.Sprintf("%.3f of that without", r.Cost.Ratio), fmt.Sprintf("%.1f us without; the same again: %.3f", r.Cost.Plain, r.Cost.Noise))
	t.Add("the same under a tap of all requests", fmt.Sprintf("%.3f of that without", r.Cost.TappedRatio), fmt.Sprintf("where every fourth is recorded: %.3f", r.Cost.TappedShare))
	t.Add(fmt.Sprintf("Envoy's memory with metrics, %d routes", r.Cost.Routes), fmt.Sprintf("%.3f of that without", r.Cost.RSSRatio), fmt.Sprintf("%.0f MB without", r.Cost.PlainRSS))
	for _, w := range r.Rows {
		t.Add(fmt.Sprintf("%d routes: series", w.Routes), fmt.Sprintf("%d an edge, %d the plane", w.EdgeSeries, w.PlaneSeries), fmt.Sprintf("Envoy %.0f MB, agent %.0f, plane %.0f", w.EnvoyRSS, w.AgentRSS, w.PlaneRSS))
		t.Add("scrape of an edge", ms(w.ScrapeP50), "max "+ms(w.ScrapeMax))
		t.Add("Envoy's main thread for one", ms(w.MainThread), "")
		if a := w.Read; a != nil {
			t.Add("first page of the routes", ms(a.FirstPage), "max "+ms(a.FirstPageMax))
			t.Add(fmt.Sprintf("%d streams, nothing changes", a.Open), fmt.Sprintf("%.4f of a core", a.Streams), fmt.Sprintf("plane at rest %.4f", a.Idle))
			t.Add("change until a stream tells", ms(a.ChangedP50), "max "+ms(a.ChangedMax))
			t.Add("stream without its right", fmt.Sprintf("%.1f s", a.Revoked), "")
		}
		if a := w.Top; a != nil {
			t.Add(fmt.Sprintf("request until top shows it, %d viewers", a.Viewers), ms(a.SeenP50), "p99 "+ms(a.SeenP99))
			t.Add("counts of routes", fmt.Sprintf("%.4f off at most", a.Counted), fmt.Sprintf("%d routes", a.Routes))
			t.Add("quantiles of durations", fmt.Sprintf("%.4f off at most", a.Quantiles), "50, 90 and 99 %")
			t.Add("Envoy's CPU a request with viewers", fmt.Sprintf("%.3f of that without, at %g requests/s an edge", a.EnvoyRatio, a.Rate), fmt.Sprintf("%.2f of a core without", a.Used))
			t.Add("the same while somebody taps all", fmt.Sprintf("%.3f of that without", a.TapRatio), "")
			t.Add("change of a route, nobody looks", ms(w.ChangeP50), "p99 "+ms(w.ChangeP99))
			t.Add("change of a route, viewers and scrapes", ms(w.ChangeSeenP50), "p99 "+ms(w.ChangeSeenP99))
		}
	}
	t.Add("series of an edge, by routes", fmt.Sprintf("%.3f", r.SeriesRatio), "")
	return t
}

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/lab/bench"
	"fairlead.dev/lab/report"
)

func newBenchRoutes(dir *string) *cobra.Command {
	var o bench.RoutesOptions
	c := &cobra.Command{
		Use:   "routes",
		Short: "Measure the cost of 100 to 20,000 routes, and how soon a changed route is served",
		Long: `Create many HTTPRoutes, each with its own host, at one edge. Measure how long that takes, the
memory of plane, agent and Envoy, and the time from the API's answer to the first request
that follows a changed route, idle and under load. Also measure the delay of statuses while
routes of one Gateway come and go.`,
		Example: "  fairlead lab bench routes --routes 1000 --changes 20",
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.NetworkOptions, err = networkOptions(c); err != nil {
				return err
			}
			return measure(c, *dir, "routes", func(ctx context.Context) (bench.RoutesResult, error) { return bench.Routes(ctx, o) }, routesTable)
		},
	}
	c.Flags().IntSliceVar(&o.Sizes, "routes", []int{100, 1_000, 5_000, 20_000}, "numbers of routes to measure")
	c.Flags().IntVar(&o.Changes, "changes", 100, "number of changes of one route, idle and again under load")
	c.Flags().IntVar(&o.ListenerSets, "listener-sets", 40_000, "routes attached to one Gateway through ListenerSets; 0 skips that part")
	c.Flags().IntVar(&o.Churn, "churn", 500, "routes that come and go while statuses are watched; 0 skips that part")
	c.Flags().Float64Var(&o.ChurnRate, "churn-rate", 50, "routes that come or go per second")
	c.Flags().Float64Var(&o.Rate, "rate", 1_000, "requests a second under load")
	return c
}

func routesTable(r bench.RoutesResult) report.Table {
	t := report.Table{Columns: []string{
		"routes", "written", "programmed", "plane", "on outside API", "agent", "Envoy", "change p50", "p99", "under load p50", "p99", "errors",
	}}
	s := func(v float64) string { return fmt.Sprintf("%.1f s", v) }
	mb := func(v float64) string { return fmt.Sprintf("%.0f MB", v) }
	ms := func(v float64) string { return fmt.Sprintf("%.1f ms", v) }
	for _, w := range r.Rows {
		t.Add(w.Routes, s(w.APIWrite), s(w.Programmed), mb(w.PlaneRSS), mb(w.ExternalRSS), mb(w.AgentRSS), mb(w.EnvoyRSS),
			ms(w.ChangeP50), ms(w.ChangeP99), ms(w.ChangeLoadedP50), ms(w.ChangeLoadedP99), w.Errors)
	}
	if w := r.Churn; w != nil {
		t.Add(fmt.Sprintf("%d come and go, %.0f a second", w.Routes, w.Reached), "", fmt.Sprintf("p50 %.2f s, p99 %.2f, max %.2f", w.ProgrammedP50, w.ProgrammedP99, w.ProgrammedMax), "", "", "", "", "", "", "", "",
			fmt.Sprintf("attachedRoutes behind by p50 %.2f s, p99 %.2f, max %.2f; late Secret %.2f s; %.0f status writes", w.AttachedP50, w.AttachedP99, w.AttachedMax, w.Secret, w.Writes))
	}
	if l := r.ListenerSets; l != nil {
		t.Add(fmt.Sprintf("%d on %d listeners of %d ListenerSets", l.Routes, l.Listeners, l.Sets), s(l.APIWrite), s(l.Attached), "", "", "", "", "", "", "", "",
			fmt.Sprintf("%d wrong counts, %.0f status writes, %.0f in %.0f idle seconds", l.Wrong, l.Writes, l.QuietWrites, l.Quiet))
	}
	return t
}

func newBenchEdge(dir *string) *cobra.Command {
	var o bench.EdgeOptions
	c := &cobra.Command{
		Use:   "edge",
		Short: "Measure latency and processor time of an edge's Envoy by routes, endpoints and prefixes",
		Long: `Measure a real Envoy on loopback at a fixed rate of requests: with 100 to 20,000 routes, with
1 to 1,000 endpoints, and with 100 and 5,000 prefixes of one host. Also measure its memory
with route shards and with one route configuration, and the cost of choosing the shard.`,
		Example: "  fairlead lab bench edge --rate 1000 --duration 5s",
		RunE: func(c *cobra.Command, _ []string) error {
			o.Now, o.Progress = time.Now, progress(c.ErrOrStderr())
			return measure(c, *dir, "edge", func(ctx context.Context) (bench.EdgeResult, error) { return bench.Edge(ctx, o) }, edgeTable)
		},
	}
	c.Flags().Float64Var(&o.Rate, "rate", 2_000, "requests a second")
	c.Flags().DurationVar(&o.Duration, "duration", 10*time.Second, "duration of one round")
	c.Flags().IntVar(&o.Rounds, "rounds", 3, "number of rounds; the report has the median")
	return c
}

func edgeTable(r bench.EdgeResult) report.Table {
	t := report.Table{Columns: []string{"routes", "endpoints", "prefixes of a host", "p50", "p99", "Envoy's CPU a request", "ratio", "memory", "failed"}}
	for _, rows := range [][]bench.EdgeRow{r.Routes, r.Endpoints, r.Prefixes} {
		for _, w := range rows {
			t.Add(w.Routes, w.Endpoints, w.Prefixes, fmt.Sprintf("%.2f ms", w.P50), fmt.Sprintf("%.2f ms", w.P99), fmt.Sprintf("%.1f us", w.CPU),
				fmt.Sprintf("%.2f", w.Ratio), fmt.Sprintf("%.0f MB", w.RSS), w.Failed)
		}
	}
	t.Add(r.Memory.Hosts, "", "", "", "", "", fmt.Sprintf("%.2f", r.Memory.Ratio), fmt.Sprintf("%.0f MB, %.0f in one", r.Memory.Sharded, r.Memory.One), "")
	t.Add("the normaliser adds", "", "", "", "", fmt.Sprintf("%.1f us", r.Scopes.ExactMicros-r.Scopes.PlainMicros), fmt.Sprintf("%.2f", r.Scopes.ExactRatio), "", "")
	return t
}

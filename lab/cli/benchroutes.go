package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"fairlead.dev/lab/bench"
	"fairlead.dev/lab/report"
)

func newBenchRoutes(dir *string) *cobra.Command {
	var o bench.RoutesOptions
	c := &cobra.Command{
		Use:   "routes",
		Short: "What 100 to 20,000 routes cost, and how soon a change of one is served",
		Long: `Create so many HTTPRoutes, each of a host of its own, at one edge: how long that takes,
how much memory plane, agent and Envoy have then, and how soon after the API's answer
the first request follows a changed route, idle and under load.`,
		Example: "  fairlead lab bench routes --routes 1000 --changes 20",
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.NetworkOptions, err = networkOptions(c); err != nil {
				return err
			}
			return measure(c, *dir, "routes", func(ctx context.Context) (bench.RoutesResult, error) { return bench.Routes(ctx, o) }, routesTable)
		},
	}
	c.Flags().IntSliceVar(&o.Sizes, "routes", []int{100, 1_000, 5_000, 20_000}, "numbers of routes, a row each")
	c.Flags().IntVar(&o.Changes, "changes", 100, "how often one route is changed, idle and again under load")
	c.Flags().Float64Var(&o.Rate, "rate", 1_000, "requests a second of the load")
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
	return t
}

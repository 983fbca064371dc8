package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"fairlead.dev/lab/bench"
	"fairlead.dev/lab/report"
	"fairlead.dev/lab/router"
)

func newBenchHealth(dir *string) *cobra.Command {
	var o bench.HealthOptions
	kind := string(router.BIRD)
	c := &cobra.Command{
		Use:   "health",
		Short: "Until when a dead backend gets new connections",
		Long: `Open 200 new connections a second over a router and three load balancers to four
backends, kill one of them at a random moment, its process or its whole machine, and
measure when the last new connection left any load balancer for it: at the load
balancers' wires, by the kernel's clock. Then the same with the plane killed, and with
machines that vanish with their proxies.`,
		Example: "  fairlead lab bench health --rounds 3",
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.NetworkOptions, err = networkOptions(c); err != nil {
				return err
			}
			o.Router = router.Kind(kind)
			return measure(c, *dir, "health", func(ctx context.Context) (bench.HealthResult, error) { return bench.Health(ctx, o) }, healthTable)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Rounds, "rounds", 10, "how often a backend dies in each way")
	f.Uint64Var(&o.Seed, "seed", 1, "of the moments at which backends die")
	f.StringVar(&kind, "router", kind, "the router's BGP daemon: bird or frr")
	kinds := []string{string(router.BIRD), string(router.FRR)}
	must(c.RegisterFlagCompletionFunc("router", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func healthTable(r bench.HealthResult) report.Table {
	t := report.Table{Columns: []string{"check", "what happens", "times", "last new flow: least", "median", "most", "bound", "over", "flows to the dead", "new ones failed"}}
	ms := func(v float64) string { return fmt.Sprintf("%.0f ms", v) }
	for _, w := range r.Rows {
		t.Add(w.Check, w.Death, w.Rounds, ms(w.Last.Min), ms(w.Last.Median), ms(w.Last.Max), ms(w.Bound), w.Over, w.Flows, fmt.Sprintf("%d of %d", w.Failed, w.Began))
	}
	a := r.Away
	t.Add("", "plane killed, a backend is out", "", "", "", "", "", "", a.FlowsToOut, a.Failed)
	t.Add("", fmt.Sprintf("another dies: %d stop by themselves", a.Checks), "", "", "", ms(a.Last), "", "", "", "")
	t.Add("", fmt.Sprintf("%d when the plane is back", a.Others), "", "", "", ms(a.Returned), "", "", "", "")
	met := "met"
	if !r.Met {
		met = "missed"
	}
	t.Add("goal", r.Goal, "", "", "", "", "", met, "", "")
	return t
}

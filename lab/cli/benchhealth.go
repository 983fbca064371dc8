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
		Short: "Measure for how long a dead backend receives new connections",
		Long: `Open 200 new connections a second through a router and three load balancers to four
backends. At a random moment one backend dies: its process is killed, or its whole machine.
Measure when the last new connection left any load balancer for it, on the wire of the load
balancers and by the kernel's clock. Then repeat with the plane killed, and with machines
that vanish together with their proxies.`,
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
	f.IntVar(&o.Rounds, "rounds", 10, "number of backend failures of each kind")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the moments at which backends die")
	f.StringVar(&kind, "router", kind, "the router's BGP daemon: bird or frr")
	kinds := []string{string(router.BIRD), string(router.FRR)}
	must(c.RegisterFlagCompletionFunc("router", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func healthTable(r bench.HealthResult) report.Table {
	t := report.Table{Columns: []string{"check", "what happens", "times", "last new flow, min", "median", "most", "bound", "over", "flows to the dead backend", "new ones failed"}}
	ms := func(v float64) string { return fmt.Sprintf("%.0f ms", v) }
	for _, w := range r.Rows {
		t.Add(w.Check, w.Death, w.Rounds, ms(w.Last.Min), ms(w.Last.Median), ms(w.Last.Max), ms(w.Bound), w.Over, w.Flows, fmt.Sprintf("%d of %d", w.Failed, w.Began))
	}
	a := r.Away
	t.Add("", "plane killed, one backend down", "", "", "", "", "", "", a.FlowsToOut, a.Failed)
	t.Add("", fmt.Sprintf("another dies: %d load balancers stop by themselves", a.Checks), "", "", "", ms(a.Last), "", "", "", "")
	t.Add("", fmt.Sprintf("%d when the plane is back", a.Others), "", "", "", ms(a.Returned), "", "", "", "")
	met := "met"
	if !r.Met {
		met = "missed"
	}
	t.Add("goal", r.Goal, "", "", "", "", "", met, "", "")
	return t
}

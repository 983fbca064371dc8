package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/lab/bench"
	"fairlead.dev/lab/report"
	"fairlead.dev/lab/router"
)

func newBenchSurvival(dir *string) *cobra.Command {
	var o bench.SurvivalOptions
	var modes []string
	kind := string(router.BIRD)
	c := &cobra.Command{
		Use:   "survival",
		Short: "Measure which connections survive when load balancers and backends come, drain, die and change weight",
		Long: `Hold connections open through a router and its load balancers, with a steady load of new
ones. Meanwhile load balancers join, drain and die, and backends come, drain, die and change
their weights, also two at once. Count the connections that break, separately those whose
own backend died. IP-in-IP is not measured: it needs a kernel that decapsulates it.`,
		Example: `  fairlead lab bench survival
  fairlead lab bench survival --connections 1000 --mode DSRGeneve`,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.NetworkOptions, err = networkOptions(c); err != nil {
				return err
			}
			o.Router = router.Kind(kind)
			for _, m := range modes {
				o.Modes = append(o.Modes, bench.SurvivalMode(m))
			}
			return measure(c, *dir, "survival", func(ctx context.Context) (bench.SurvivalResult, error) { return bench.Survival(ctx, o) }, survivalTable)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Connections, "connections", 10_000, "connections to hold open")
	f.DurationVar(&o.Every, "every", 10*time.Second, "interval between requests on each connection")
	f.StringSliceVar(&modes, "mode", nil, "modes to measure: DSRGeneve, Proxies, DSRL2, NAT (default: all)")
	f.StringVar(&kind, "router", kind, "the router's BGP daemon: bird or frr")
	var names []string
	for _, m := range bench.SurvivalModes {
		names = append(names, string(m))
	}
	must(c.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)))
	kinds := []string{string(router.BIRD), string(router.FRR)}
	must(c.RegisterFlagCompletionFunc("router", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func survivalTable(r bench.SurvivalResult) report.Table {
	t := report.Table{Columns: []string{"mode", "what happens", "open", "broken", "with their backend", "errors", "new ones failed", "answered again after"}}
	for _, s := range r.Rows {
		t.Add(s.Mode, s.Step, r.Connections, s.Broken, s.Own, s.Unserved, s.Failed, fmt.Sprintf("%.1f s", s.Whole))
	}
	met := "met"
	if !r.Met {
		met = "missed"
	}
	t.Add("goal", r.Goal, "", met, "", "", "", "")
	return t
}

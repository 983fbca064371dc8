package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"fairlead.dev/lab/bench"
	"fairlead.dev/lab/report"
)

func newBenchLB(dir *string) *cobra.Command {
	var o bench.LBOptions
	c := &cobra.Command{
		Use:   "lb",
		Short: "Measure the cost of a packet in the XDP load balancer, and of a lookup table",
		Long: `Run the load balancer's program in the kernel (BPF_PROG_TEST_RUN) packet by packet, and
measure nanoseconds. The cost of making packets and of undoing encapsulation is measured
separately and subtracted. The program is not attached to any interface of this host.`,
		Example: "  fairlead lab bench lb --runs 50",
		RunE: func(c *cobra.Command, _ []string) error {
			o.Progress = progress(c.ErrOrStderr())
			return measure(c, *dir, "lb", func(ctx context.Context) (bench.LBResult, error) { return bench.LB(ctx, o) }, lbTable)
		},
	}
	c.Flags().IntVar(&o.Runs, "runs", 200, "runs of each case, 4,096 packets each")
	c.Flags().IntVar(&o.Backends, "backends", 100, "backends of the lookup table")
	return c
}

func lbTable(r bench.LBResult) report.Table {
	t := report.Table{Columns: []string{"packet", "mode", "family", "flows", "VIPs", "least ns", "median ns"}}
	for _, c := range r.Cases {
		t.Add(c.Name, c.Mode, c.Family, c.Flows, c.VIPs, fmt.Sprintf("%.0f", c.Min), fmt.Sprintf("%.0f", c.Median))
	}
	for _, f := range r.Features {
		t.Add("with "+f.Name, "", "", "", "", "", fmt.Sprintf("%+.0f", f.NS))
	}
	for mode, l := range r.Live {
		t.Add("live frames", mode, "", "", "", "", fmt.Sprintf("%.2f Mpps", l.Mpps))
	}
	t.Add("lookup table built", "", "", "", "", "", fmt.Sprintf("%.1f ms", r.Table.BuildMS))
	t.Add("lookup table, one changed", "", "", "", "", "", fmt.Sprintf("%.2f ms", r.Table.ChangeMS))
	t.Add("largest deviation of a share", "", "", "", "", "", fmt.Sprintf("%.2f %%", r.Table.Imbalance))
	t.Add("rows moved between unchanged backends", "", "", "", "", "", fmt.Sprintf("%.2f %%", r.Table.OthersMoved))
	for _, w := range r.Weights {
		by := "computed"
		if w.Kernel {
			by = "by the program"
		}
		t.Add(fmt.Sprintf("%d backends of weight %s", w.Backends, w.Weights), by, "", w.Flows, "", fmt.Sprintf("rows %.2f %%", w.Rows), fmt.Sprintf("flows %.2f %% (chance: %.2f)", w.Largest, w.Chance))
	}
	return t
}

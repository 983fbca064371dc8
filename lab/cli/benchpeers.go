package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/lab/bench"
	"fairlead.dev/lab/report"
)

func newBenchE2E(dir *string) *cobra.Command {
	var o bench.PeersOptions
	c := &cobra.Command{
		Use:   "e2e",
		Short: "Compare HTTP through XDP in each mode, nftables, HAProxy, nginx and Envoy with no load balancer",
		Long: `Send HTTP requests through a router to two nginx backends: without a load balancer, through
XDP in each mode, through nftables, and through HAProxy, nginx stream and Envoy as
single-threaded TCP proxies. Each runs in its own namespaces, created anew in every round.

First wrk sends as many requests as it can, to find the maximum rate. Then requests are sent
at a fixed rate, the same for all load balancers, while the processor time of the load
balancer's machine is measured: of the kernel, from the start to the end of each poll of its
interface, and of the process, without the softirqs that interrupt it. Latency is measured
under this load, from the time at which a request was due.`,
		Example: `  fairlead lab bench e2e --rounds 5
  fairlead lab bench e2e --only "XDP, NAT" --only "HAProxy, TCP"`,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.NetworkOptions, err = networkOptions(c); err != nil {
				return err
			}
			return measure(c, *dir, "e2e", func(ctx context.Context) (bench.PeersResult, error) { return bench.Peers(ctx, o) }, peersTable)
		},
	}
	f := c.Flags()
	f.DurationVar(&o.Duration, "duration", 4*time.Second, "duration of one run")
	f.IntVar(&o.Rounds, "rounds", 3, "runs of each load balancer; the report has the median")
	f.IntVar(&o.Connections, "connections", 32, "concurrent connections of the client")
	f.Float64Var(&o.KeptRate, "kept-rate", 4000, "requests a second on persistent connections while processor time is measured")
	f.Float64Var(&o.CloseRate, "close-rate", 1500, "requests a second, each on a new connection, while processor time is measured")
	f.StringArrayVar(&o.Only, "only", nil, "measure only this load balancer and the run without any; may be repeated")
	must(c.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(bench.PeerNames(), cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func peersTable(r bench.PeersResult) report.Table {
	t := report.Table{Columns: []string{
		"load balancer", "connections", "max requests/s", "ratio to direct", "at requests/s", "LB us/request", "min", "kernel us/request", "packets/request", "backends us/request", "all us/request", "p50 ms", "p90 ms", "p99 ms", "max ms",
	}}
	for _, row := range r.Rows {
		t.Add(row.Name, row.Kind, fmt.Sprintf("%.0f", row.Requests), fmt.Sprintf("%.2f", row.Ratio), fmt.Sprintf("%.0f", row.Rate),
			fmt.Sprintf("%.1f", row.LBCPU), fmt.Sprintf("%.1f", row.Least), fmt.Sprintf("%.1f", row.Kernel), fmt.Sprintf("%.1f", row.Packets),
			fmt.Sprintf("%.0f", row.Backends), fmt.Sprintf("%.0f", row.CPU),
			fmt.Sprintf("%.2f", row.P50), fmt.Sprintf("%.2f", row.P90), fmt.Sprintf("%.2f", row.P99), fmt.Sprintf("%.1f", row.Max))
	}
	met := "met"
	if !r.Met {
		met = "missed"
	}
	t.Add("goal: "+r.Goal, "", "", "", "", met, "", "", "", "", "", "", "", "", "")
	return t
}

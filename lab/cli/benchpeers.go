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
		Short: "HTTP through XDP in each mode, nftables, HAProxy, nginx and Envoy, compared with no load balancer",
		Long: `Send HTTP requests over a router to two nginx backends: without a load balancer, by
XDP in each mode, by nftables, and through HAProxy, nginx stream and Envoy as TCP
proxies of one thread; each in namespaces of its own, anew in every round.

First wrk asks as fast as it can: requests a second. Then requests come at a fixed
rate, the same for all, and what the load balancer's machine takes of the processors
is read: its kernel, from when a poll of its interface begins until it ends, and its
process, without softirqs that came while it ran. Latency is of that load, from when
a request was due.`,
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
	f.DurationVar(&o.Duration, "duration", 4*time.Second, "of one run")
	f.IntVar(&o.Rounds, "rounds", 3, "runs of each; the median counts")
	f.IntVar(&o.Connections, "connections", 32, "connections of the client at once")
	f.Float64Var(&o.KeptRate, "kept-rate", 4000, "requests a second on kept connections at which processors are read")
	f.Float64Var(&o.CloseRate, "close-rate", 1500, "the same with a connection a request")
	f.StringArrayVar(&o.Only, "only", nil, "measure only this one, besides none at all; may be given often")
	must(c.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(bench.PeerNames(), cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func peersTable(r bench.PeersResult) report.Table {
	t := report.Table{Columns: []string{
		"load balancer", "connections", "most requests/s", "of direct", "at requests/s", "its us a request", "lowest", "in its kernel", "its packets", "backends' us", "all us", "p50 ms", "p90 ms", "p99 ms", "max ms",
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

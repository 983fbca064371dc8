package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/lab/bench"
	"fairlead.dev/lab/report"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

// networkOptions finds what the benchmarks of the network run.
func networkOptions(c *cobra.Command) (o bench.NetworkOptions, err error) {
	if o.Binary, err = os.Executable(); err != nil {
		return o, fmt.Errorf("find this program: %w", err)
	}
	if o.Envoy, err = rig.FindEnvoy(); err != nil {
		return o, err
	}
	if o.Kubectl, err = rig.FindKubectl(o.Binary); err != nil {
		return o, err
	}
	o.Lab, o.Now, o.Progress = options(c), time.Now, progress(c.ErrOrStderr())
	return o, nil
}

func newBenchBGP(dir *string) *cobra.Command {
	var o bench.BGPOptions
	var routers []string
	names, about := bench.BGPCases()
	long := `How soon BIRD and FRR follow when edges and VIPs come and go, without BFD and with
BFD of 300 ms x 3, and what clients lose meanwhile: 200 new connections a second and
60 kept ones that ask every 50 ms. The cases:

`
	for _, name := range names {
		long += fmt.Sprintf("  %-11s %s\n", name, about[name])
	}
	c := &cobra.Command{
		Use:   "bgp",
		Short: "How soon a router follows when edges come, go and die, and what clients lose",
		Long:  strings.TrimRight(long, "\n"),
		Example: `  fairlead lab bench bgp --rounds 3
  fairlead lab bench bgp --router bird --case hang --case link-cut`,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.NetworkOptions, err = networkOptions(c); err != nil {
				return err
			}
			for _, name := range routers {
				o.Routers = append(o.Routers, router.Kind(name))
			}
			return measure(c, *dir, "bgp", func(ctx context.Context) (bench.BGPResult, error) { return bench.BGP(ctx, o) }, bgpTable)
		},
	}
	c.Flags().IntVar(&o.Rounds, "rounds", 10, "how often each case is measured")
	c.Flags().StringArrayVar(&routers, "router", nil, "a router to measure with, bird or frr (default both; may be given often)")
	c.Flags().StringArrayVar(&o.Cases, "case", nil, "a case to measure (default all; may be given often)")
	return c
}

func bgpTable(r bench.BGPResult) report.Table {
	t := report.Table{Columns: []string{"router", "BFD", "case", "route p50", "max", "outage max", "new failed p50", "max", "kept broken p50", "max", "goal", ""}}
	ms := func(s *bench.Spread) (p50, most string) {
		if s == nil {
			return "-", "-"
		}
		return fmt.Sprintf("%.1f ms", s.P50), fmt.Sprintf("%.1f ms", s.Max)
	}
	for _, row := range r.Rows {
		bfd, met := "-", "met"
		if row.BFD {
			bfd = "300 ms x 3"
		}
		if !row.Met {
			met = "MISSED"
		}
		p50, most := ms(row.RouteChanged)
		_, outage := ms(row.Outage)
		t.Add(row.Router, bfd, row.Case, p50, most, outage, row.NewFailures.P50, row.NewFailures.Max, row.Broken.P50, row.Broken.Max, row.Goal, met)
	}
	return t
}

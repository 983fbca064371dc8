package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
	long := `Measure how soon BIRD and FRR follow when edges and VIPs come and go, without BFD and with
BFD of 300 ms x 3, and the failures that clients see meanwhile. The load is 200 new
connections a second and 60 persistent ones with a request every 50 ms. The cases:

`
	for _, name := range names {
		long += fmt.Sprintf("  %-11s %s\n", name, about[name])
	}
	c := &cobra.Command{
		Use:   "bgp",
		Short: "Measure how soon a router follows when edges come, go and die, and what clients lose",
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
	c.Flags().IntVar(&o.Rounds, "rounds", 10, "number of measurements of each case")
	c.Flags().StringArrayVar(&routers, "router", nil, "router to measure with: bird or frr; may be repeated (default: both)")
	c.Flags().StringArrayVar(&o.Cases, "case", nil, "case to measure; may be repeated (default: all)")
	return c
}

func bgpTable(r bench.BGPResult) report.Table {
	t := report.Table{Columns: []string{
		"router", "BFD", "case", "route, p50", "max", "outage, max", "new failed, p50", "max", "in flight broken, max", "kept broken, p50", "max", "goal", "",
	}}
	ms := func(s *bench.Spread) (p50, most string) {
		if s == nil {
			return "stays", ""
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
		t.Add(row.Router, bfd, row.Case, p50, most, outage, row.NewFailures.P50, row.NewFailures.Max, row.InFlight.Max, row.Broken.P50, row.Broken.Max, row.Goal, met)
	}
	return t
}

func newBenchECMP(dir *string) *cobra.Command {
	var o bench.ECMPOptions
	var kind string
	c := &cobra.Command{
		Use:   "ecmp",
		Short: "Measure how a router and the throughput follow when edges come and go at random",
		Long: `Change the number of edges that announce a VIP at random every 2 to 4 seconds, through the
machine label that the AddressPool selects. Measure how soon the router's kernel uses exactly
those edges, and the throughput of 64 downloads. Each edge is limited to 50 Mbit/s, so the
number of edges limits the throughput. ecmp-delay.svg and ecmp-throughput.svg are drawn next
to the report.`,
		Example: `  fairlead lab bench ecmp --duration 1m --seed 7
  fairlead lab bench ecmp --router bird --edges 3
  fairlead lab bench ecmp --edges 1 --still`,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.NetworkOptions, err = networkOptions(c); err != nil {
				return err
			}
			o.Router = router.Kind(kind)
			var result bench.ECMPResult
			name := "ecmp"
			if o.Still {
				name = "ecmp-still"
			}
			if err := measure(c, *dir, name, func(ctx context.Context) (bench.ECMPResult, error) {
				result, err = bench.ECMP(ctx, o)
				return result, err
			}, ecmpTable); err != nil {
				return err
			}
			if o.Still { // the plots are of changes
				return nil
			}
			return ecmpPlots(*dir, result)
		},
	}
	c.Flags().StringVar(&kind, "router", string(router.FRR), "the router: bird or frr")
	c.Flags().IntVar(&o.Edges, "edges", 4, "largest number of edges")
	c.Flags().DurationVar(&o.Duration, "duration", 5*time.Minute, "time during which the number of edges changes")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of the changes: equal seeds give equal changes")
	c.Flags().BoolVar(&o.Still, "still", false, "control run: keep all edges, to see what breaks without a change (ecmp-still.json, no plots)")
	return c
}

func ecmpTable(r bench.ECMPResult) report.Table {
	t := report.Table{Columns: []string{fmt.Sprintf("%s, 1 to %d edges, seed %d", r.Router, r.Edges, r.Seed), "value", "unit", "goal"}}
	t.Add("changes", len(r.Changes), "", "")
	if !r.Still {
		t.Add("until the router's kernel follows, p50", fmt.Sprintf("%.1f", r.Delay.P50), "ms", "< 200")
		t.Add("the same, p99", fmt.Sprintf("%.1f", r.Delay.P99), "ms", "< 1000")
		t.Add("the same, max", fmt.Sprintf("%.1f", r.Delay.Max), "ms", "< 2000")
	}
	for _, n := range r.ByCount {
		t.Add(fmt.Sprintf("throughput of %d edges", n.Edges), fmt.Sprintf("%.1f", n.Mbps), "Mbit/s", fmt.Sprintf(">= %.0f", 0.8*r.EdgeRate*float64(n.Edges)))
	}
	t.Add("downloads", r.Complete, "", "")
	t.Add("a download, p50", fmt.Sprintf("%.0f", r.Took.P50), "ms", "")
	t.Add("the same, p99", fmt.Sprintf("%.0f", r.Took.P99), "ms", "")
	t.Add("the same, max", fmt.Sprintf("%.0f", r.Took.Max), "ms", "")
	t.Add("downloads that broke", r.Broken, "", "")
	met := "yes"
	if !r.Met {
		met = "NO"
	}
	t.Add("goals met", met, "", "")
	return t
}

// ecmpPlots draws the result next to its report.
func ecmpPlots(dir string, r bench.ECMPResult) error {
	what := fmt.Sprintf("%d changes at random, 1 to %d edges, %s, seed %d. ", len(r.Changes), r.Edges, strings.ToUpper(string(r.Router)), r.Seed)
	h := report.Histogram{
		Title:    "Until the router uses exactly the edges wanted",
		Subtitle: what + fmt.Sprintf("p50 %.0f ms, p99 %.0f ms, max %.0f ms", r.Delay.P50, r.Delay.P99, r.Delay.Max),
		Unit:     "ms, by number of changes", Width: 5, Goal: 200, GoalLabel: "goal of p50",
	}
	for _, c := range r.Changes {
		h.Values = append(h.Values, c.Delay)
	}
	edges := report.Panel{Label: "edges in the router's kernel", Steps: true, Height: 0.8}
	rate := report.Panel{Label: "throughput, Mbit/s", Height: 1.4}
	for _, s := range r.Samples {
		edges.Points = append(edges.Points, report.Point{At: s.At, Value: float64(s.Edges)})
		rate.Points = append(rate.Points, report.Point{At: s.At, Value: s.Mbps})
	}
	t := report.Timeline{
		Title:    "The throughput follows the number of edges",
		Subtitle: what + fmt.Sprintf("Each edge receives %.0f Mbit/s", r.EdgeRate),
		Panels:   []report.Panel{edges, rate},
	}
	for name, svg := range map[string]string{"ecmp-delay.svg": h.SVG(), "ecmp-throughput.svg": t.SVG()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(svg), 0o644); err != nil {
			return fmt.Errorf("draw %s: %w", name, err)
		}
	}
	return nil
}

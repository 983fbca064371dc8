package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"

	"fairlead.dev/lab/bench"
	"fairlead.dev/lab/report"
)

func newBenchScale(dir *string) *cobra.Command {
	var o bench.ScaleOptions
	c := &cobra.Command{
		Use:   "scale",
		Short: "Measure one plane with 1,000 machines that subscribe to 20,000 routes",
		Long: `Connect many simulated machines to one plane with an embedded API, each with its own
certificate and delta-xDS stream over mutual TLS. Measure the time until all have received
everything: at their first connection, after a restart of all at once, and after the plane is
killed. Then measure how soon a changed route reaches them, and changes at steady rates. The
machines run in this process, on the same processors as the plane.`,
		Example: "  fairlead lab bench scale --machines 100 --routes 2000",
		RunE: func(c *cobra.Command, _ []string) error {
			// A plane that is killed refuses a thousand connections, and gRPC has a line for each.
			grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
			var err error
			if o.NetworkOptions, err = networkOptions(c); err != nil {
				return err
			}
			return measure(c, *dir, "scale", func(ctx context.Context) (bench.ScaleResult, error) { return bench.Scale(ctx, o) }, scaleTable)
		},
	}
	c.Flags().IntVar(&o.Machines, "machines", 1_000, "simulated machines")
	c.Flags().IntVar(&o.Routes, "routes", 20_000, "routes, each with its own host")
	c.Flags().IntVar(&o.Changes, "changes", 10, "number of changes of one route")
	c.Flags().IntSliceVar(&o.Rates, "rates", []int{10, 50, 200}, "rates to measure, in changes a second")
	c.Flags().DurationVar(&o.Duration, "duration", 20*time.Second, "duration of each rate")
	return c
}

func scaleTable(r bench.ScaleResult) report.Table {
	t := report.Table{Columns: []string{fmt.Sprintf("%d machines, %d routes", r.Machines, r.Routes), "half", "99 in 100", "all", "sent", "plane's CPU", "plane's memory"}}
	s := func(v float64) string { return fmt.Sprintf("%.2f s", v) }
	mb := func(v float64) string { return fmt.Sprintf("%.0f MB", v) }
	t.Add("routes written, no machines", "", "", s(r.Write), "", "", mb(r.PlaneAlone))
	t.Add("machines have joined", "", "", s(r.Join), "", "", "")
	for _, row := range []struct {
		name string
		bench.ScaleStart
	}{{"all connect, with an empty state", r.First}, {"all start again at once", r.Again}, {"the plane is killed", r.Killed}} {
		t.Add(row.name, s(row.Half), s(row.Most), s(row.All), mb(row.Received), s(row.CPU), mb(row.PlanePeak)+" at most")
	}
	t.Add("statuses say so", "", "", s(r.Status), "", "", "")
	t.Add("a route changes", fmt.Sprintf("%.0f ms", r.ChangeHalf), fmt.Sprintf("%.0f ms", r.ChangeMost), fmt.Sprintf("%.0f ms, max %.0f", r.ChangeAll, r.ChangeMax), "", "", "")
	for _, w := range r.Rates {
		t.Add(fmt.Sprintf("%d changes a second, %.0f reached", w.Rate, w.Reached), "", "", s(w.Behind)+" behind at the end", fmt.Sprintf("%.1f MB/s", w.Received),
			fmt.Sprintf("%.2f processors", w.CPU), fmt.Sprintf("%d revisions", w.Revisions))
	}
	t.Add("at the end", "", "", "", "", "", mb(r.Plane))
	return t
}

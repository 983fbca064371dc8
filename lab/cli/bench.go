package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/lab/bench"
	"fairlead.dev/lab/report"
	"fairlead.dev/lab/rig"
)

func newBench() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "bench",
		Short: "Run a benchmark, print a table and write a report",
		Long: `Run a benchmark on this machine. Each benchmark prints a table, and writes its figures, the
machine and its load to a JSON file. Compare only figures of one run or of idle machines.`,
	}
	c.PersistentFlags().StringVar(&dir, "out-dir", report.DefaultDir, "directory for the report")
	c.AddCommand(newBenchStart(&dir), newBenchDelta(&dir), newBenchTranslate(&dir), newBenchScopes(&dir), newBenchBGP(&dir), newBenchECMP(&dir),
		newBenchRoutes(&dir), newBenchEdge(&dir), newBenchLB(&dir), newBenchSurvival(&dir), newBenchHealth(&dir), newBenchE2E(&dir), newBenchScale(&dir), newBenchDiscovery(&dir), newBenchSeeing(&dir))
	return c
}

// measure runs one benchmark between the frames of its report.
func measure[R any](c *cobra.Command, dir, name string, run func(context.Context) (R, error), table func(R) report.Table) error {
	frame := report.Begin(name, time.Now)
	result, err := run(c.Context())
	if err != nil {
		return fmt.Errorf("bench %s: %w", name, err)
	}
	t := table(result)
	if err := t.Write(c.OutOrStdout(), ""); err != nil {
		return err
	}
	path, err := frame.Write(c.Context(), dir, result)
	if err != nil {
		return err
	}
	m := report.ThisMachine()
	_, err = fmt.Fprintf(c.OutOrStdout(), "\n%s, %d cores, %d MB, Linux %s, %s; figures in %s\n", m.CPU, m.Cores, m.MemoryMB, m.Kernel, m.Go, path)
	return err
}

// progress prints what is measured next.
func progress(w io.Writer) func(string) {
	return func(what string) { _, _ = fmt.Fprintf(w, "... %s\n", what) }
}

func newBenchStart(dir *string) *cobra.Command {
	o := bench.StartOptions{Now: time.Now}
	c := &cobra.Command{
		Use:     "start",
		Short:   "Measure how soon a plane is ready, and the memory of plane and agent",
		Example: "  fairlead lab bench start --rounds 10",
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.Binary, err = os.Executable(); err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			if o.Envoy, err = rig.FindEnvoy(); err != nil {
				return err
			}
			o.Lab = options(c)
			o.Progress = progress(c.ErrOrStderr())
			return measure(c, *dir, "start", func(ctx context.Context) (bench.StartResult, error) { return bench.Start(ctx, o) }, startTable)
		},
	}
	c.Flags().IntVar(&o.Rounds, "rounds", 5, "number of plane starts")
	return c
}

func startTable(r bench.StartResult) report.Table {
	t := report.Table{Columns: []string{"figure", "value", "unit", "goal"}}
	t.Add("plane, exec to ready, nothing there yet (median)", fmt.Sprintf("%.2f", r.Ready), "s", "<= 5")
	t.Add("plane, exec to ready, started again (median)", fmt.Sprintf("%.2f", r.ReadyAgain), "s", "")
	t.Add("plane with API server and etcd", fmt.Sprintf("%.0f", r.PlaneRSS), "MB", "<= 600")
	role := "standby"
	if r.ExternalLeads {
		role = "leading"
	}
	t.Add("plane with an outside API, "+role, fmt.Sprintf("%.0f", r.ExternalRSS), "MB", "")
	t.Add("agent", fmt.Sprintf("%.0f", r.AgentRSS), "MB", "<= 80")
	t.Add("its Envoy, no routes", fmt.Sprintf("%.0f", r.EnvoyRSS), "MB", "")
	return t
}

func newBenchDelta(dir *string) *cobra.Command {
	var o bench.DeltaOptions
	c := &cobra.Command{
		Use:     "delta",
		Short:   "Measure the cost of one changed resource of 20,000, for subscribers and for others",
		Example: "  fairlead lab bench delta --out-dir /tmp/figures",
		RunE: func(c *cobra.Command, _ []string) error {
			return measure(c, *dir, "delta", func(ctx context.Context) (bench.DeltaResult, error) { return bench.Delta(ctx, o) }, deltaTable)
		},
	}
	c.Flags().IntVar(&o.Rounds, "rounds", 200, "changes per row")
	return c
}

func deltaTable(r bench.DeltaResult) report.Table {
	t := report.Table{Columns: []string{"resources", "subscribers", "us per subscriber", "bytes per subscriber", "us per other subscriber", "other subscribers woken"}}
	for _, row := range r.Rows {
		t.Add(row.Resources, row.Subscribers, fmt.Sprintf("%.2f", row.MicrosPerSubscriber), row.BytesPerSubscriber, fmt.Sprintf("%.3f", row.UnconcernedMicros), row.UnconcernedWakes)
	}
	return t
}

func newBenchTranslate(dir *string) *cobra.Command {
	var o bench.TranslateOptions
	c := &cobra.Command{
		Use:     "translate",
		Short:   "Measure the translation of 20,000 routes and 100,000 endpoints, and of one change",
		Example: "  fairlead lab bench translate --routes 2000 --endpoints 10000",
		RunE: func(c *cobra.Command, _ []string) error {
			return measure(c, *dir, "translate", func(ctx context.Context) (bench.TranslateResult, error) { return bench.Translate(ctx, o) }, translateTable)
		},
	}
	c.Flags().IntVar(&o.Routes, "routes", 20_000, "routes, half of each kind")
	c.Flags().IntVar(&o.Endpoints, "endpoints", 100_000, "endpoints of all services")
	return c
}

func translateTable(r bench.TranslateResult) report.Table {
	t := report.Table{Columns: []string{fmt.Sprintf("%d routes, %d endpoints", r.Routes, r.Endpoints), "median", "p99", "unit", "goal"}}
	t.Add("everything", fmt.Sprintf("%.0f", r.FullMillis), "", "ms", "")
	t.Add("one endpoint", fmt.Sprintf("%.1f", r.EndpointMicros), fmt.Sprintf("%.1f", r.EndpointMicrosP99), "us", "< 200")
	t.Add(fmt.Sprintf("one endpoint of a service of %d", r.Large), fmt.Sprintf("%.1f", r.LargeMicros), "", "us", "")
	t.Add("one route", fmt.Sprintf("%.1f", r.RouteMicros), fmt.Sprintf("%.1f", r.RouteMicrosP99), "us", "< 1000")
	t.Add("a route comes or goes", fmt.Sprintf("%.1f", r.NewRouteMicros), "", "us", "")
	t.Add("heap", fmt.Sprintf("%.0f", r.HeapMB), "", "MB", "")
	return t
}

func newBenchScopes(dir *string) *cobra.Command {
	var o bench.ScopesOptions
	c := &cobra.Command{
		Use:     "scopes",
		Short:   "Measure the cost and the benefit of route shards in a real Envoy",
		Example: "  fairlead lab bench scopes --hosts 1000",
		RunE: func(c *cobra.Command, _ []string) error {
			return measure(c, *dir, "scopes", func(ctx context.Context) (bench.ScopesResult, error) { return bench.Scopes(ctx, o) }, scopesTable)
		},
	}
	c.Flags().IntVar(&o.Hosts, "hosts", 20_000, "hosts, each with two routes")
	return c
}

func scopesTable(r bench.ScopesResult) report.Table {
	t := report.Table{Columns: []string{fmt.Sprintf("%d hosts", r.Hosts), "value", "unit"}}
	t.Add("load all", fmt.Sprintf("%.2f", r.LoadSeconds), "s")
	t.Add("memory of Envoy", fmt.Sprintf("%.0f", r.RSSMB), "MB")
	t.Add("one host changes, to its first new answer, p50", fmt.Sprintf("%.2f", r.ChangeP50), "ms")
	t.Add("the same, p99", fmt.Sprintf("%.2f", r.ChangeP99), "ms")
	t.Add("the same with all hosts in one configuration, p50", fmt.Sprintf("%.1f", r.OneChangeP50), "ms")
	t.Add("Envoy's CPU per request without the normaliser", fmt.Sprintf("%.1f", r.PlainMicros), "us")
	t.Add("with it, exact host", fmt.Sprintf("%.1f", r.ExactMicros), "us")
	t.Add("with it, wildcard host", fmt.Sprintf("%.1f", r.WildcardMicros), "us")
	return t
}

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/traffic"
)

func newTop() *cobra.Command {
	var address, output string
	var once bool
	var q console.TopQuestion
	var groups []string
	for _, by := range traffic.All {
		groups = append(groups, string(by))
	}
	c := &cobra.Command{
		Use:     "top [routes|hosts|namespaces|listeners|upstreams|frontends|backends]",
		Short:   "Show the requests that proxies answer a second, as they come",
		GroupID: groupPeople,
		Args:    cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		Long: `Show the requests that the proxies of all machines answer a second, by the class of the
status: by the resource that owns the route (routes, the default), by virtual host, by the
namespace of the owner, by listener, or by upstream. NONE counts clients that left before an
answer, TOTAL the requests since the proxies began. P50 and P99 are times that half and 99 % of
the requests did not exceed: of routes and hosts, those of samples of the last 15 seconds.
"(none)" is what no route matched, or no virtual host. Of frontends and their backends, the
command shows the new flows and the bytes of data planes. Of backends of Services with the
annotation fairlead.dev/metrics: backend, it shows requests, errors, requests in flight and the
mean time until the first byte of the answer.

On a terminal the view goes on, until q or Ctrl-C: Tab shows the next kind of rows, r, e, l and n
sort by rate, errors, latency and name, the arrows scroll, and space stops and goes on. Otherwise,
and with --once, the command prints one measurement of about a second. Proxies are asked only
while somebody looks, once for all viewers.`,
		Example: `  fairlead top
  fairlead top hosts --sort errors
  fairlead top -n team01
  fairlead top backends -n team01 --sort latency
  fairlead top --once -o json | jq '.rows[] | select(.rates[5] > 0) | .name'`,
		ValidArgs: groups,
		RunE: func(c *cobra.Command, args []string) error {
			planeConsole, err := planeClient(c, address)
			if err != nil {
				return err
			}
			q.By = string(traffic.Routes)
			if len(args) == 1 {
				q.By = args[0]
			}
			w := c.OutOrStdout()
			if q.Limit < 0 {
				return usageError{err: fmt.Errorf("--limit %d: it is a number of rows; 0 is all", q.Limit)}
			}
			t, err := planeConsole.Top(c.Context(), q)
			if err != nil {
				return advised(err)
			}
			if !isTerminal(w) || once || output != "text" {
				return writeTop(w, t, q.By, output)
			}
			return viewTop(c.Context(), c.InOrStdin(), w, planeConsole.Top, q, t)
		},
	}
	consoleFlag(c, &address)
	addOutput(c, &output)
	c.Flags().StringVarP(&q.Namespace, "namespace", "n", "", "only routes whose owner is in this namespace, and backends of its Services")
	c.Flags().StringVar(&q.Sort, "sort", string(traffic.ByRate), "order of the rows: rate, errors (5xx), latency (P99; of backends the time until the first byte) or name")
	c.Flags().IntVar(&q.Limit, "limit", 0, "number of rows; 0 is all")
	c.Flags().BoolVar(&once, "once", false, "print one measurement, also on a terminal")
	complete(c, "namespace")
	complete(c, "sort", string(traffic.ByRate), string(traffic.ByErrors), string(traffic.ByTime), string(traffic.ByName))
	return c
}

func writeTop(w io.Writer, t v1.Top, by, output string) error {
	if output != "text" {
		return printAs(w, output, t)
	}
	return console.WriteTop(w, t, by)
}

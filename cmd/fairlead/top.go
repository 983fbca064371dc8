package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/near"
	"fairlead.dev/internal/traffic"
)

func newTop() *cobra.Command {
	var address, output string
	var once bool
	var q console.TopQuestion
	groups, sorts := texts(traffic.All), texts(traffic.Sorts)
	c := &cobra.Command{
		Use:     "top [routes|hosts|namespaces|listeners|upstreams|frontends|backends]",
		Short:   "Show the requests that proxies answer a second, as they come",
		GroupID: groupPeople,
		Args:    oneOf(groups),
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
		RunE: func(c *cobra.Command, args []string) error {
			q.By = string(traffic.Routes)
			if len(args) == 1 {
				q.By = args[0]
			}
			switch {
			case q.Limit < 0:
				return usageError{err: fmt.Errorf("--limit %d: want a number of rows; 0 is all", q.Limit)}
			case !slices.Contains(sorts, q.Sort):
				return usageError{err: fmt.Errorf("--sort %q: want %s%s", q.Sort, alternatives(sorts), near.DidYouMean(q.Sort, sorts))}
			case q.Namespace != "" && !traffic.By(q.By).OfNamespace():
				return usageError{err: fmt.Errorf("-n %q: %s are of no namespace, so leave it out", q.Namespace, q.By)}
			}
			planeConsole, err := planeClient(c, address)
			if err != nil {
				return err
			}
			w := c.OutOrStdout()
			t, err := planeConsole.Top(c.Context(), q)
			if err != nil {
				return advised(err)
			}
			if !isTerminal(w) || once || output != "text" {
				return writeTop(w, t, q.By, output)
			}
			return viewTop(c.Context(), c.InOrStdin(), w, planeConsole.Top, q, t)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return groups, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		},
	}
	consoleFlag(c, &address)
	addOutput(c, &output)
	addNamespace(c, &address, &q.Namespace, "only routes whose owner is in this namespace, and backends of its Services")
	c.Flags().StringVar(&q.Sort, "sort", string(traffic.ByRate), "order of the rows: rate, errors (5xx), latency (P99; of backends the time until the first byte) or name")
	c.Flags().IntVar(&q.Limit, "limit", 0, "number of rows; 0 is all")
	c.Flags().BoolVar(&once, "once", false, "print one measurement, also on a terminal")
	complete(c, "sort", sorts...)
	return c
}

// texts are values as text.
func texts[T ~string](values []T) (list []string) {
	for _, v := range values {
		list = append(list, string(v))
	}
	return list
}

// oneOf takes at most one argument, one of these.
func oneOf(values []string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := cobra.MaximumNArgs(1)(c, args); err != nil {
			return err
		}
		if len(args) == 1 && !slices.Contains(values, args[0]) {
			return fmt.Errorf("%q: want %s%s", args[0], alternatives(values), near.DidYouMean(args[0], values))
		}
		return nil
	}
}

func writeTop(w io.Writer, t v1.Top, by, output string) error {
	if output != "text" {
		return printAs(w, output, t)
	}
	return console.WriteTop(w, t, by)
}

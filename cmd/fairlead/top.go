package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

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
		Use:     "top [routes|hosts|namespaces|listeners]",
		Short:   "Show the requests that proxies answer a second, as they come",
		GroupID: groupPeople,
		Args:    cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		Long: `Show the requests that the proxies of all machines answer a second, by the class of the
status: by the resource that owns the route (routes, the default), by virtual host, by the
namespace of the owner, or by listener. NONE counts clients that left before an answer, TOTAL
the requests since the proxies began. "(none)" is what no route matched, or no virtual host.

On a terminal the screen is drawn again each second, until Ctrl-C. Otherwise, and with --once,
the command prints one measurement of about a second. Proxies are asked only while somebody
looks, once for all viewers.`,
		Example: `  fairlead top
  fairlead top hosts --sort errors
  fairlead top -n team01
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
			terminal := isTerminal(w) && !once && output == "text"
			if q.Limit == 0 && terminal {
				q.Limit = rowsOf(w)
			}
			show := func(ctx context.Context) error {
				t, err := planeConsole.Top(ctx, q)
				if err != nil {
					return advised(err)
				}
				return writeTop(w, t, q.By, output, terminal)
			}
			if !terminal {
				return show(c.Context())
			}
			return again(c.Context(), c.ErrOrStderr(), show)
		},
	}
	consoleFlag(c, &address)
	addOutput(c, &output)
	c.Flags().StringVarP(&q.Namespace, "namespace", "n", "", "only routes whose owner is in this namespace")
	c.Flags().StringVar(&q.Sort, "sort", string(traffic.ByRate), "order of the rows: rate, errors (5xx) or name")
	c.Flags().IntVar(&q.Limit, "limit", 0, "number of rows; 0 is all, and as many as fit on a terminal")
	c.Flags().BoolVar(&once, "once", false, "print one measurement, also on a terminal")
	complete(c, "namespace")
	complete(c, "sort", string(traffic.ByRate), string(traffic.ByErrors), string(traffic.ByName))
	return c
}

// rowsOf is the number of rows that a terminal has for a table below three lines of its own.
func rowsOf(w io.Writer) int {
	const own, usual = 4, 20
	if f, is := w.(interface{ Fd() uintptr }); is {
		if _, height, err := term.GetSize(int(f.Fd())); err == nil && height > own { //nolint:gosec // descriptors are small
			return height - own
		}
	}
	return usual
}

func writeTop(w io.Writer, t v1.Top, by, output string, terminal bool) error {
	if output != "text" {
		return printAs(w, output, t)
	}
	var out bytes.Buffer
	if terminal {
		fmt.Fprint(&out, "\x1b[H\x1b[2J")
	}
	if err := console.WriteTop(&out, t, by); err != nil {
		return err
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write what proxies answer: %w", err)
	}
	return nil
}

// again shows something each second until ctx is done. The first time has to succeed; later ones may fail, and the reason is
// told once.
func again(ctx context.Context, warnings io.Writer, show func(context.Context) error) error {
	ticker := time.NewTicker(watchPause)
	defer ticker.Stop()
	fails := ""
	for first := true; ; first = false {
		err := show(ctx)
		switch {
		case ctx.Err() != nil:
			return nil // the end of a view is no fault
		case err != nil && first:
			return err
		case err != nil && err.Error() != fails:
			fails = err.Error()
			fmt.Fprintln(warnings, "warning:", strings.TrimSpace(fails))
		case err == nil:
			fails = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

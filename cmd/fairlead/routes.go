package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/plane"
)

func newRoutes() *cobra.Command {
	var address, output, namespace string
	var all, watch bool
	c := &cobra.Command{
		Use:     "routes [HOST]",
		Short:   "Show the routes of the edges: host, path, owner, backends, shares, health, requests",
		GroupID: groupPeople,
		Args:    cobra.MaximumNArgs(1),
		Long: `Show the routes of the edges, in matching order: listener, host, match, the owner of the
route and its state, and for each backend its share, its ready endpoints, the endpoints that
proxies consider healthy, and the requests that proxies have sent to it since they started,
by any route.

HOST is a host name, or a pattern with "*". For a name without routes of its own, the routes
of the matching wildcard are shown.

With --watch the routes come without the requests that proxies count, and then each route that
is added, changed or removed, within about a second. A stream that breaks, as when another plane
leads, goes on where it was. -o json prints an object a line: a block, which is all routes of a
host at a listener, or the revision of the plane that the blocks so far are of.`,
		Example: `  fairlead routes
  fairlead routes www.example.com
  fairlead routes -n shop --watch
  fairlead routes '*.example.com' -n shop -o json | jq '.[] | select(.state != "programmed")'`,
		RunE: func(c *cobra.Command, args []string) error {
			host := strings.Join(args, "")
			if strings.ContainsAny(host, "/: ") {
				return usageError{err: fmt.Errorf("HOST %q: want a host name, such as www.example.com, or a pattern with *", host)}
			}
			if watch {
				if output == "yaml" {
					return usageError{err: errors.New("--watch: want -o text, or json with an object a line")}
				}
				return watchRoutes(c, address, host, namespace, output == "json", all)
			}
			planeConsole, err := planeClient(c, address)
			if err != nil {
				return err
			}
			rows, err := planeConsole.Routes(c.Context(), host, namespace)
			if err != nil {
				return advised(err)
			}
			if output != "text" {
				return printAs(c.OutOrStdout(), output, rows)
			}
			return console.WriteRoutes(c.OutOrStdout(), rows, mostRoutes(all))
		},
		ValidArgsFunction: completeHosts(&address, &namespace, false),
	}
	consoleFlag(c, &address)
	addOutput(c, &output)
	addNamespace(c, &address, &namespace, "only routes whose owner is in this namespace")
	c.Flags().BoolVar(&all, "all", false, "print every line, not the first 50")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print the routes, then their changes as they come, until Ctrl-C")
	return c
}

// mostRoutes is how many lines of routes are printed; 0 is all.
func mostRoutes(all bool) int {
	if all {
		return 0
	}
	return 50
}

// watchRoutes shows routes and their changes until the command is ended.
func watchRoutes(c *cobra.Command, address, host, namespace string, asJSON, all bool) error {
	view := &console.RouteWatch{Out: c.OutOrStdout(), JSON: asJSON, Most: mostRoutes(all), Now: time.Now}
	if host != "" {
		view.Host = plane.HostOf(host)
		view.Wants = func(other string, exact bool) bool { return plane.MatchesHost(view.Host, other, exact) }
	}
	notes := c.ErrOrStderr()
	w := &watcher{
		path: v1.RoutesPath, namespace: namespace, connect: connector(c, address), notes: notes, wait: pause,
		show: func(told console.Watched) error {
			left, err := view.Show(told)
			if left > 0 {
				fmt.Fprintf(notes, "%s not printed: --all prints all, a HOST narrows them down; changes are all printed\n", counted(left, "more line"))
			}
			return err
		},
	}
	return w.run(c.Context())
}

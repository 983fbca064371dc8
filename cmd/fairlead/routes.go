package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
)

func newRoutes() *cobra.Command {
	var address, output, namespace string
	var all bool
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
of the matching wildcard are shown.`,
		Example: `  fairlead routes
  fairlead routes www.example.com
  fairlead routes '*.example.com' -n shop -o json | jq '.[] | select(.state != "programmed")'`,
		RunE: func(c *cobra.Command, args []string) error {
			host := strings.Join(args, "")
			if strings.ContainsAny(host, "/: ") {
				return usageError{err: fmt.Errorf("HOST %q: want a host name, such as www.example.com, or a pattern with *", host)}
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
			most := 50
			if all {
				most = 0
			}
			return console.WriteRoutes(c.OutOrStdout(), rows, most)
		},
		ValidArgsFunction: completeHosts(&address, &namespace, false),
	}
	consoleFlag(c, &address)
	addOutput(c, &output)
	addNamespace(c, &address, &namespace, "only routes whose owner is in this namespace")
	c.Flags().BoolVar(&all, "all", false, "print every line, not the first 50")
	return c
}

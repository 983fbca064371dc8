package main

import (
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
		Long: `Show the routes that the edges have, in the order in which they are tried: listener,
host, match, the resource that owns the route and its state, and where requests go: each
backend's share, how many of its endpoints are ready, how many the proxies hold for
healthy, and what the proxies have sent it since they began, whichever route it came by.

HOST is a host name, or a pattern with "*". A name without routes of its own shows those
of the wildcard that takes it.`,
		Example: `  fairlead routes
  fairlead routes www.example.com
  fairlead routes '*.example.com' -n shop -o json | jq '.[] | select(.state != "programmed")'`,
		RunE: func(c *cobra.Command, args []string) error {
			planeConsole, err := consoleClient("plane-console", address)
			if err != nil {
				return err
			}
			host := ""
			if len(args) == 1 {
				host = args[0]
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
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	consoleFlag(c, &address)
	addOutput(c, &output)
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "only routes whose owner is in this namespace")
	c.Flags().BoolVar(&all, "all", false, "print every line, not the first 50")
	complete(c, "namespace")
	return c
}

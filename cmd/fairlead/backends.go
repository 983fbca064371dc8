package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
)

func newBackends() *cobra.Command {
	var address, output, namespace string
	var all bool
	c := &cobra.Command{
		Use:     "backends [FRONTEND|SERVICE]",
		Short:   "Show the backends of frontends: machine, health, weight, share, flows",
		GroupID: groupPeople,
		Args:    cobra.MaximumNArgs(1),
		Long: `Show the backends of each frontend, as sent to all load balancers: address, machine, state,
health, weight, share of new flows, and the counters of the machines' data planes. HOPS is
the largest weight within the last drain time: load balancers also ask this backend about
that share of flows that they do not know. A backup in STATE standby is not needed now.

FRONTEND is tcp://VIP:PORT, udp://VIP:PORT, VIP:PORT for both protocols, or a VIP for all its
ports. SERVICE is the name of the owner of the VIP (a Service, Gateway or IngressRoute), as
NAMESPACE/NAME or with -n. A backend called "proxy" is a machine's Envoy; 'fairlead routes'
shows the backends behind it.

HEALTH is the verdict and the number of machines that agree with it, out of those that
checked the backend or saw requests to it fail. -o wide lists the machines and their reasons.`,
		Example: `  fairlead backends
  fairlead backends tcp://192.0.2.10:443 -o wide
  fairlead backends shop/web -o json | jq '.[] | select(.health == "unhealthy")'`,
		RunE: func(c *cobra.Command, args []string) error {
			planeConsole, err := planeClient(c, address)
			if err != nil {
				return err
			}
			of := ""
			if len(args) == 1 {
				of = ownerOf(args[0], namespace)
			}
			rows, err := planeConsole.Backends(c.Context(), of)
			if err != nil {
				return advised(err)
			}
			if output != "text" && output != "wide" {
				return printAs(c.OutOrStdout(), output, rows)
			}
			if of != "" && len(rows) == 0 {
				_, err := fmt.Fprintf(c.OutOrStdout(), "%s has no backend; `fairlead vips` shows how it is balanced, `fairlead routes` the routes that proxies serve at it\n", args[0])
				return err
			}
			most := 200
			if all {
				most = 0
			}
			return console.WriteBackends(c.OutOrStdout(), rows, output == "wide", most)
		},
		ValidArgsFunction: completeOne(&address, frontendNames),
	}
	consoleFlag(c, &address)
	addOutput(c, &output, "wide")
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of SERVICE")
	c.Flags().BoolVar(&all, "all", false, "print every line, not the first 200")
	complete(c, "namespace")
	return c
}

// ownerOf completes the name of an owner with its namespace.
func ownerOf(name, namespace string) string {
	if strings.ContainsAny(name, "/:. ") && name != "" {
		return name
	}
	return namespace + "/" + name
}

func newFlows() *cobra.Command {
	var address, output, frontend, client, backend, machine string
	var limit int
	c := &cobra.Command{
		Use:     "flows",
		Short:   "Show the entries of flow tables: client, backend, state, idle time",
		GroupID: groupPeople,
		Long: `Show the entries of the machines' flow tables: the machine (AT), the client, the backend and
its machine, the state, and the idle time. A flow in state "owned" is at the machine of its
backend, where it arrived through a tunnel.

Without a filter, the first flows of each machine are shown.`,
		Example: `  fairlead flows --client 198.51.100.7
  fairlead flows --frontend tcp://192.0.2.10:443 --backend 10.0.0.4
  fairlead flows --machine edge-1 --limit 20000 -o json | jq '.flows | length'`,
		RunE: func(c *cobra.Command, _ []string) error {
			planeConsole, err := planeClient(c, address)
			if err != nil {
				return err
			}
			filter, err := console.ParseFlowFilter(frontend, client, backend, machine, fmt.Sprint(limit))
			if err != nil {
				return usageError{err: fmt.Errorf("--%w", err)}
			}
			list, err := planeConsole.Flows(c.Context(), filter)
			if err != nil {
				return advised(err)
			}
			if output != "text" {
				return printAs(c.OutOrStdout(), output, list)
			}
			return console.WriteFlows(c.OutOrStdout(), list, frontend+client+backend+machine != "")
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	consoleFlag(c, &address)
	addOutput(c, &output)
	c.Flags().StringVar(&frontend, "frontend", "", "only flows to this frontend, tcp://VIP:PORT or udp://VIP:PORT")
	c.Flags().StringVar(&client, "client", "", "only flows of this client, an address or a CIDR")
	c.Flags().StringVar(&backend, "backend", "", "only flows to this backend, an address")
	c.Flags().StringVar(&machine, "machine", "", "only flows in the flow table of this machine")
	c.Flags().IntVar(&limit, "limit", 1000, fmt.Sprintf("most flows to show of each machine, up to %d", v1.MaxFlows))
	completeBy(c, "frontend", &address, frontendKeys)
	complete(c, "client")
	complete(c, "backend")
	completeBy(c, "machine", &address, machineNames)
	complete(c, "limit")
	return c
}

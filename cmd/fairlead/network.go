package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
)

func newVIPs() *cobra.Command {
	return newShow(show{
		use:   "vips",
		short: "Show the VIPs: owner, pool, announcing machines, and why others do not announce",
		long: `Show each VIP assigned from an AddressPool: its owner, how it is announced, which machines
announce it now, and why the other machines do not.`,
		example: `  fairlead vips
  fairlead vips -o json | jq -r '.[] | select(.state != "announced") | .message'`,
		value: func(s v1.Status) any { return s.VIPs },
		write: console.WriteVIPs,
	})
}

func newBGP() *cobra.Command {
	return newShow(show{
		use:   "bgp",
		short: "Show the BGP sessions: state, advertised prefixes, and errors",
		long: `Show the session of every machine with every BGPPeer that selects it: its state and since
when, BFD, the advertised prefixes, and the reason of an error.`,
		example: `  fairlead bgp
  fairlead bgp -o json | jq '.[] | {machine, peer, state, reason}'`,
		value: func(s v1.Status) any { return s.Sessions },
		write: console.WriteBGP,
	})
}

// show is a command that prints a part of the status.
type show struct {
	use, short, long, example string

	value func(v1.Status) any
	write func(io.Writer, v1.Status, console.TextOptions) error
}

func newShow(s show) *cobra.Command {
	var address, output string
	var all bool
	c := &cobra.Command{
		Use: s.use, Short: s.short, Long: s.long, Example: s.example, GroupID: groupPeople,
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := planeClient(c, address)
			if err != nil {
				return err
			}
			status, err := client.LeaderStatus(c.Context())
			if err != nil {
				return advised(err)
			}
			if output != "text" {
				return printAs(c.OutOrStdout(), output, s.value(status))
			}
			rows := 50
			if all {
				rows = 0
			}
			return s.write(c.OutOrStdout(), status, console.TextOptions{Now: time.Now(), MaxRows: rows})
		},
	}
	consoleFlag(c, &address)
	addOutput(c, &output)
	c.Flags().BoolVar(&all, "all", false, "print every row of long tables")
	return c
}

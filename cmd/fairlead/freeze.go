package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/operate"
)

func newFreeze() *cobra.Command {
	var kubeconfig, reason string
	c := &cobra.Command{
		Use:     "freeze",
		Short:   "Hold back every change of routing until 'unfreeze'",
		GroupID: groupData,
		Long: `Hold back every change of routing: listeners, hosts, routes and TLS settings stay at
the edges as they are, whatever is applied, until 'fairlead unfreeze'. Endpoints, health,
renewed certificates, VIPs and machines go on. Resources can still be changed; their
status says that the change is held back.

It creates the Freeze "routing", so it outlives planes. A plane that is started while
routing is frozen holds the same state, as long as the revisions that it has kept reach
back to the freeze; else it sends the edges nothing at all, and they keep what they have.`,
		Example: `  fairlead freeze --reason 'incident 4711'
  fairlead unfreeze`,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := apiClient(kubeconfig)
			if err != nil {
				return err
			}
			if err := operate.Freeze(c.Context(), api, reason); err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), "routing is frozen; 'fairlead unfreeze' lets changes through again")
			return err
		},
	}
	kubeconfigFlag(c, &kubeconfig)
	c.Flags().StringVar(&reason, "reason", "", "why, for all whose changes are held back")
	complete(c, "reason")
	return c
}

func newUnfreeze() *cobra.Command {
	var kubeconfig string
	c := &cobra.Command{
		Use:     "unfreeze",
		Short:   "Let every change of routing through that was held back",
		GroupID: groupData,
		Long: `Delete the Freeze: the edges get everything at once that was held back since 'freeze',
or turned back by 'rollback'. Mend the resources first.`,
		Example: `  fairlead unfreeze`,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := apiClient(kubeconfig)
			if err != nil {
				return err
			}
			was, err := operate.Unfreeze(c.Context(), api)
			if err != nil {
				return err
			}
			text := "routing follows its resources again"
			if !was {
				text = "routing is not frozen"
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), text)
			return err
		},
	}
	kubeconfigFlag(c, &kubeconfig)
	return c
}

func newRollback() *cobra.Command {
	var kubeconfig, reason, address string
	c := &cobra.Command{
		Use:        "rollback REVISION",
		SuggestFor: []string{"undo", "revert"},
		Short:      "Turn routing at the edges back to a revision, and freeze it there",
		GroupID:    groupData,
		Args:       cobra.ExactArgs(1),
		Long: `Turn routing back to what the edges had after REVISION, or to the oldest state that is
known ("start"), and freeze it there. 'fairlead revisions' lists them. Resources are not
changed: mend them, then 'fairlead unfreeze'.

REVISION is a number of the plane that leads, EPOCH/NUMBER of one before it, or a time
(2026-01-31T09:30:00Z): the revision that held then.

Endpoints, health, renewed certificates, VIPs and machines are those of now. A plane keeps
the last 4,096 revisions of routing, in 32 MiB, over restarts and changes of the leader.`,
		Example: `  fairlead revisions
  fairlead rollback 1042 --reason 'team shop lost its routes'
  fairlead rollback 2026-01-31T09:30:00Z`,
		RunE: func(c *cobra.Command, args []string) error {
			planeConsole, err := consoleClient("plane-console", address)
			if err != nil {
				return err
			}
			list, err := planeConsole.Revisions(c.Context())
			if err != nil {
				return advised(err)
			}
			status, err := planeConsole.LeaderStatus(c.Context())
			if err != nil {
				return advised(err)
			}
			to, err := operate.FindRevision(list, delta.Revision{Epoch: status.Plane.Epoch, Number: status.Plane.Revision}, args[0])
			if errors.Is(err, operate.ErrSyntax) {
				return usageError{err: err}
			}
			if err != nil {
				return err
			}
			api, err := apiClient(kubeconfig)
			if err != nil {
				return err
			}
			if err := operate.Rollback(c.Context(), api, to, reason); err != nil {
				return err
			}
			what := "the oldest state that is known"
			if !to.First {
				what = "revision " + to.NameAt(status.Plane.Epoch)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "routing is frozen as of %s, %s; mend the resources, then 'fairlead unfreeze'\n", what, to.At.UTC().Format(time.RFC3339))
			return err
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"start"}, cobra.ShellCompDirectiveNoFileComp),
	}
	kubeconfigFlag(c, &kubeconfig)
	consoleFlag(c, &address)
	c.Flags().StringVar(&reason, "reason", "", "why, for all whose changes are held back")
	complete(c, "reason")
	return c
}

func newRevisions() *cobra.Command {
	var address, output string
	var all bool
	c := &cobra.Command{
		Use:        "revisions",
		SuggestFor: []string{"history"},
		Short:      "List the changes of routing that 'rollback' can turn back",
		GroupID:    groupPeople,
		Long: `List the last changes of routing that planes have sent to the edges, the newest first:
when, how many listeners, hosts and server names, and the resources behind them. Those
of planes before the one that leads have their epoch before the number. What changed
while no plane ran is one revision.`,
		Example: `  fairlead revisions
  fairlead revisions -o json | jq '.[0]'`,
		RunE: func(c *cobra.Command, _ []string) error {
			planeConsole, err := consoleClient("plane-console", address)
			if err != nil {
				return err
			}
			list, err := planeConsole.Revisions(c.Context())
			if err != nil {
				return advised(err)
			}
			if output != "text" {
				return printAs(c.OutOrStdout(), output, list)
			}
			most := 50
			if all {
				most = 0
			}
			return console.WriteRevisions(c.OutOrStdout(), list, most)
		},
	}
	consoleFlag(c, &address)
	addOutput(c, &output)
	c.Flags().BoolVar(&all, "all", false, "print every revision that is known")
	return c
}

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
		Long: `Hold back every change of routing until 'fairlead unfreeze'. Edges keep their present
listeners, hosts, routes and TLS settings. Endpoints, health, renewed certificates, VIPs and
machines still change. Resources can be edited meanwhile; their status says that the change
is held back.

The command creates the Freeze "routing", which survives restarts of planes. A plane that
starts during a freeze continues with the frozen state if its stored revisions reach back to
the freeze. Otherwise it sends the edges nothing, and they keep their present configuration.`,
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
	c.Flags().StringVar(&reason, "reason", "", "reason, shown in the status of resources whose changes are held back")
	complete(c, "reason")
	return c
}

func newUnfreeze() *cobra.Command {
	var kubeconfig string
	c := &cobra.Command{
		Use:     "unfreeze",
		Short:   "Release every change of routing that was held back",
		GroupID: groupData,
		Long: `Delete the Freeze. The edges receive at once every change that 'freeze' held back or
'rollback' reverted. Correct the resources first.`,
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
		Short:      "Revert routing at the edges to a revision, and freeze it there",
		GroupID:    groupData,
		Args:       cobra.ExactArgs(1),
		Long: `Revert routing at the edges to the state after REVISION, or to the oldest known state
("start"), and freeze it there. 'fairlead revisions' lists the revisions. Resources do not
change: correct them, then run 'fairlead unfreeze'.

REVISION is a number of the leading plane, EPOCH/NUMBER of an earlier leader, or a time
(2026-01-31T09:30:00Z), which selects the revision in effect at that time.

Endpoints, health, renewed certificates, VIPs and machines are not reverted. A plane keeps
the last 4,096 revisions of routing, at most 32 MiB, across restarts and changes of the leader.`,
		Example: `  fairlead revisions
  fairlead rollback 1042 --reason 'team shop lost its routes'
  fairlead rollback 2026-01-31T09:30:00Z`,
		RunE: func(c *cobra.Command, args []string) error {
			planeConsole, err := planeClient(c, address)
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
			_, err = fmt.Fprintf(c.OutOrStdout(), "routing is frozen as of %s, %s; correct the resources, then run 'fairlead unfreeze'\n", what, to.At.UTC().Format(time.RFC3339))
			return err
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"start"}, cobra.ShellCompDirectiveNoFileComp),
	}
	kubeconfigFlag(c, &kubeconfig)
	consoleFlag(c, &address)
	c.Flags().StringVar(&reason, "reason", "", "reason, shown in the status of resources whose changes are held back")
	complete(c, "reason")
	return c
}

func newRevisions() *cobra.Command {
	var address, output string
	var all bool
	c := &cobra.Command{
		Use:        "revisions",
		SuggestFor: []string{"history"},
		Short:      "List the revisions of routing that 'rollback' can revert to",
		GroupID:    groupPeople,
		Long: `List the last changes of routing that planes have sent to the edges, newest first: time,
number of changed listeners, hosts and server names, and the resources that changed them.
Revisions of earlier leaders have their epoch before the number. All changes made while no
plane ran are one revision.`,
		Example: `  fairlead revisions
  fairlead revisions -o json | jq '.[0]'`,
		RunE: func(c *cobra.Command, _ []string) error {
			planeConsole, err := planeClient(c, address)
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
	c.Flags().BoolVar(&all, "all", false, "print every known revision, not the last 50")
	return c
}

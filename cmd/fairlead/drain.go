package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/operate"
)

func newDrain() *cobra.Command {
	var kubeconfig, address, namespace string
	var timeout time.Duration
	var noWait bool
	c := &cobra.Command{
		Use:        "drain MACHINE|BACKEND",
		SuggestFor: []string{"cordon", "evict"},
		Short:      "Drain a machine or a backend: accept no new flows, and wait for present ones to end",
		GroupID:    groupData,
		Args:       cobra.ExactArgs(1),
		Long: `Drain a machine or a backend. It accepts no new flows and keeps its present ones; the command
shows how many are left. If flows are left when the drain time is over, the command reports
it and fails. The machine or backend stays drained until 'fairlead undrain'. The drain time is
spec.drainTime of the Machine. Of a backend it is that of the LoadBalancerPolicy of its
frontend: the longest if there are several frontends, and 30s without a policy.

MACHINE is the name of a Machine, which is cordoned. It withdraws each VIP once another
machine announces it, if another machine is to announce it. This takes at most 35s after
the VIP was last assigned to another machine; then the drain time starts. The machine's proxy closes
connections as they become idle. The machine is drained when it announces no VIP and no flow
is left, which may take 30s longer than the drain time. If this does not happen, or the
machine cannot be asked, the command fails and reports the reason. Endpoints on the machine
are not drained: drain them, or their node, separately.

BACKEND is SERVICE/ADDRESS or NAMESPACE/SERVICE/ADDRESS. The address is added to the
Service's annotation fairlead.dev/drained-backends, for routes and frontends alike.`,
		Example: `  fairlead drain edge-1
  fairlead drain shop/web/10.0.0.4 --timeout 5m
  fairlead undrain edge-1`,
		RunE: func(c *cobra.Command, args []string) error {
			target, err := operate.ParseTarget(args[0], namespace)
			if err != nil {
				return usageError{command: c.CommandPath(), err: err}
			}
			planeConsole, err := planeClient(c, address)
			if err != nil {
				return err
			}
			api, err := apiClient(kubeconfig)
			if err != nil {
				return err
			}
			plane := advising{planeConsole}
			warnings := target.Warnings(c.Context(), plane)
			limit, err := target.Drain(c.Context(), api)
			if err != nil {
				return err
			}
			for _, warning := range warnings {
				fmt.Fprintln(c.ErrOrStderr(), "warning: "+warning)
			}
			if _, err := fmt.Fprintln(c.OutOrStdout(), target.Ordered()); err != nil || noWait {
				return err
			}
			outcome, err := target.Await(c.Context(), plane, operate.NewTimes(limit, timeout), progressTo(c.OutOrStdout()))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), outcome)
			return err
		},
		ValidArgsFunction: completeOne(&address, machineNames),
	}
	kubeconfigFlag(c, &kubeconfig)
	consoleFlag(c, &address)
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of SERVICE")
	c.Flags().DurationVar(&timeout, "timeout", 0, "time to wait for flows to end; 0s waits for the drain time of the Machine, or of the backend's policy")
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until flows have ended")
	complete(c, "namespace")
	complete(c, "timeout")
	return c
}

func newUndrain() *cobra.Command {
	var kubeconfig, namespace string
	address := defaultPlaneConsole // for completions
	c := &cobra.Command{
		Use:        "undrain MACHINE|BACKEND",
		SuggestFor: []string{"uncordon"},
		Short:      "Undo 'drain': let a machine or a backend accept new flows again",
		GroupID:    groupData,
		Args:       cobra.ExactArgs(1),
		Long: `Undo 'fairlead drain': uncordon the Machine, or remove the address from the Service's
annotation fairlead.dev/drained-backends.`,
		Example: `  fairlead undrain edge-1
  fairlead undrain shop/web/10.0.0.4`,
		RunE: func(c *cobra.Command, args []string) error {
			target, err := operate.ParseTarget(args[0], namespace)
			if err != nil {
				return usageError{command: c.CommandPath(), err: err}
			}
			api, err := apiClient(kubeconfig)
			if err != nil {
				return err
			}
			if err := target.Undrain(c.Context(), api); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s accepts new flows again\n", target)
			return err
		},
		ValidArgsFunction: completeOne(&address, machineNames),
	}
	kubeconfigFlag(c, &kubeconfig)
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of SERVICE")
	complete(c, "namespace")
	return c
}

// progressTo prints each text of a progress once in a row.
func progressTo(w io.Writer) func(operate.Progress) error {
	printed := ""
	return func(p operate.Progress) (err error) {
		if p.Text == printed {
			return nil
		}
		printed = p.Text
		if p.Rest < 0 {
			_, err = fmt.Fprintln(w, p.Text)
		} else {
			_, err = fmt.Fprintf(w, "%s (%s of the drain time)\n", p.Text, p.Rest.Round(time.Second))
		}
		return err
	}
}

// advising is a plane's console whose errors say what to do about them.
type advising struct{ console console.Client }

// Backends implements operate.Plane.
func (a advising) Backends(ctx context.Context, of string) ([]v1.BackendStatus, error) {
	rows, err := a.console.Backends(ctx, of)
	return rows, advised(err)
}

// LeaderStatus implements operate.Plane.
func (a advising) LeaderStatus(ctx context.Context) (v1.Status, error) {
	s, err := a.console.LeaderStatus(ctx)
	return s, advised(err)
}

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
		Short:      "Have a machine or a backend take nothing new, and wait until its flows have ended",
		GroupID:    groupData,
		Args:       cobra.ExactArgs(1),
		Long: `Have a machine or a backend keep what it has and take nothing new, and show how many
flows are left until there is none. When the time is over and flows are left, it says so and
fails; the machine or backend stays drained until 'fairlead undrain'. The time is spec.drainTime
of the Machine, of a backend that of the LoadBalancerPolicy of its frontend (30s where there is
none; the longest, if it has several frontends).

MACHINE is the name of a Machine: it is cordoned. It announces no VIP any more, once another
machine does where one is to (35s at most after the last of those came; the drain time begins
then), and its proxy closes connections as they become idle. It is drained when it announces
nothing; that may take 30s more than the drain time, and if it does not, or cannot be asked,
the command fails and says why. Endpoints that are on it go on: drain them, or their node, by
themselves.

BACKEND is SERVICE/ADDRESS or NAMESPACE/SERVICE/ADDRESS: the address is written into the
Service's annotation fairlead.dev/drained-backends. It holds for routes and frontends alike.`,
		Example: `  fairlead drain edge-1
  fairlead drain shop/web/10.0.0.4 --timeout 5m
  fairlead undrain edge-1`,
		RunE: func(c *cobra.Command, args []string) error {
			target, err := operate.ParseTarget(args[0], namespace)
			if err != nil {
				return usageError{command: c.CommandPath(), err: err}
			}
			planeConsole, err := consoleClient("plane-console", address)
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
	c.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; 0s: the Machine's drain time, of a backend that of its policy")
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
		Short:      "Have a machine or a backend take new work again",
		GroupID:    groupData,
		Args:       cobra.ExactArgs(1),
		Long: `Take back what 'fairlead drain' did: the Machine is not cordoned any more, or the address
goes out of the Service's annotation fairlead.dev/drained-backends.`,
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
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s takes new work again\n", target)
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

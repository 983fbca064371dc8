package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/plane"
)

// consoleFlag names the plane's console.
func consoleFlag(c *cobra.Command, address *string) {
	c.Flags().StringVar(address, "plane-console", "http://"+defaultPlaneConsole, "URL of the plane's console, on its machine; given or without a kubeconfig, it is asked instead of the read API")
	completeNothing(c, "plane-console")
	if c.Flags().Lookup("kubeconfig") == nil {
		c.Flags().String("kubeconfig", "", "ask the plane's read API by the current context of this kubeconfig (default $KUBECONFIG; where no plane runs, ~/.kube/config)")
	}
}

// consoleClient asks the console that a flag names.
func consoleClient(flag, address string) (console.Client, error) {
	full := address
	if !strings.Contains(full, "://") {
		full = "http://" + full // --console-address of a plane has none either
	}
	if u, err := url.Parse(full); err != nil || u.Host == "" {
		return console.Client{}, usageError{err: fmt.Errorf("--%s %q: want a URL or host:port, say http://%s", flag, address, defaultPlaneConsole)}
	}
	return console.Client{URL: full, HTTP: &http.Client{Timeout: 15 * time.Second}}, nil
}

// listenConsole listens for the console of a plane or an agent. A console is the first
// thing of either to stand in the way of a second one. prefix is that of its flags.
func listenConsole(address, of, prefix string, log *slog.Logger) (net.Listener, error) {
	l, err := console.Listen(address, prefix+"console-address", log)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w; does another %s run on this machine?", err, of)
	}
	return l, err
}

// askStatus asks a plane what it knows.
func askStatus(ctx context.Context, c *cobra.Command, address string) (v1.Status, error) {
	client, err := planeClient(c, address)
	if err != nil {
		return v1.Status{}, err
	}
	status, err := client.Status(ctx)
	return status, advised(err)
}

// advised is the error of a question to a plane's console, with what to do about it; nil stays nil.
func advised(err error) error {
	var answer console.AnswerError
	var agent console.AgentError
	var none console.NoAnswerError
	switch {
	case errors.As(err, &agent):
		return fmt.Errorf("%w (--plane-console names the plane's; on its machine that is http://%s unless it was started with another)", err, defaultPlaneConsole)
	case errors.As(err, &answer) && (errors.Is(err, console.ErrNone) || answer.Refused()):
		return errors.New(answer.Line)
	case errors.As(err, &answer) && errors.Is(err, console.ErrQuestion):
		return usageError{err: errors.New(answer.Line)}
	case errors.As(err, &none) && !errors.Is(err, context.Canceled) && strings.HasPrefix(none.URL, "https://"):
		return fmt.Errorf("the read API at %s, published in config map %s/%s, does not answer: %w: is the address reachable from here? On the plane's machine --plane-console asks without it", none.URL, plane.Namespace, v1.ReadConfigMap, none.Err)
	case errors.As(err, &none) && !errors.Is(err, context.Canceled):
		return fmt.Errorf("no plane answers: %w: start it, or give its console with --plane-console", err)
	}
	return err // a plane runs there, or nobody waits for its answer any more
}

func newStatus() *cobra.Command {
	var address, output string
	var all bool
	c := &cobra.Command{
		Use:        "status",
		SuggestFor: []string{"machines", "nodes", "listeners", "problems", "get"},
		Short:      "Show machines, listeners, routes, and problems with their reasons",
		GroupID:    groupPeople,
		Long: `Show the state of the plane on one screen: the machines and whether their proxies are up to
date, the listeners, the routes, and every problem with its reason.`,
		Example: `  fairlead status
  fairlead status -o json | jq '.problems'
  fairlead status --plane-console http://127.0.0.1:7080`,
		RunE: func(c *cobra.Command, _ []string) error {
			status, err := askStatus(c.Context(), c, address)
			if err != nil {
				return err
			}
			if output != "text" {
				return printAs(c.OutOrStdout(), output, status)
			}
			rows := 20
			if all {
				rows = 0
			}
			return console.WriteText(c.OutOrStdout(), status, console.TextOptions{Now: time.Now(), MaxRows: rows})
		},
	}
	consoleFlag(c, &address)
	addOutput(c, &output)
	c.Flags().BoolVar(&all, "all", false, "print every row of long tables")
	return c
}

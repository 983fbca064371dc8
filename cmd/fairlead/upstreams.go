package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/operate"
)

// watchPause is the time between two questions of --watch.
const watchPause = time.Second

func newUpstreams() *cobra.Command {
	var address, output string
	var all, watch bool
	c := &cobra.Command{
		Use:        "upstreams [NAME]",
		SuggestFor: []string{"clouds", "clusters", "discovery"},
		Short:      "Show the upstreams: state, lag, services, endpoints, refusals, last changes",
		GroupID:    groupPeople,
		Args:       cobra.MaximumNArgs(1),
		Long: `Show the upstreams, the clusters and clouds whose services are backends here. REACHABLE says
whether the API of the upstream answers, and CURRENT whether everything that the upstream has
is in effect here; otherwise the column has the reason, and SINCE its age. SERVICES is the
number in effect of the number that the upstream has. HELD services stay in effect although
the upstream does not list them any more ('fairlead upstream confirm' ends this). CONTACT is
the age of the last answer, SWEEP that of the last complete list.

With NAME the command shows the conditions in full, the objects that are left out with the
reasons, and the last changes: when the source saw each, and how long after that it came into
effect in the plane, was published to machines, and was in force at every machine concerned.`,
		Example: `  fairlead upstreams
  fairlead upstreams up01
  fairlead upstreams --watch
  fairlead upstreams -o json | jq '.[] | select(any(.conditions[]; .status != "True")) | .name'`,
		RunE: func(c *cobra.Command, args []string) error {
			planeConsole, err := planeClient(c, address)
			if err != nil {
				return err
			}
			name := strings.Join(args, "")
			show := upstreamsView{output: output, all: all, one: name != ""}
			ask := func(ctx context.Context) ([]v1.Upstream, error) { return planeConsole.Upstreams(ctx, name) }
			if watch {
				return watchUpstreams(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), isTerminal(c.OutOrStdout()), show, ask)
			}
			rows, err := ask(c.Context())
			if err != nil {
				return advised(err)
			}
			return show.write(c.OutOrStdout(), rows, time.Now())
		},
		ValidArgsFunction: completeUpstream(&address),
	}
	consoleFlag(c, &address)
	addOutput(c, &output)
	c.Flags().BoolVar(&all, "all", false, "with NAME: print up to 1,000 refusals and 100 changes, not the first 20 of each")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "go on: redraw the screen each second, or print again after each change if the output is not a terminal")
	return c
}

// upstreamsView is how upstreams are printed.
type upstreamsView struct {
	output   string
	all, one bool
}

func (v upstreamsView) write(w io.Writer, rows []v1.Upstream, now time.Time) error {
	switch {
	case v.output != "text" && v.one && len(rows) == 1:
		return printAs(w, v.output, rows[0])
	case v.output != "text":
		return printAs(w, v.output, rows)
	case v.one && len(rows) == 1:
		o := console.UpstreamOptions{Now: now, MostRefusals: 20, MostChanges: 20}
		if v.all {
			o.MostRefusals, o.MostChanges = 0, 0
		}
		return console.WriteUpstream(w, rows[0], o)
	}
	return console.WriteUpstreams(w, rows, now)
}

func isTerminal(w io.Writer) bool {
	f, is := w.(*os.File)
	return is && term.IsTerminal(int(f.Fd())) //nolint:gosec // descriptors are small
}

// watchUpstreams prints upstreams until ctx is done: again and again on a terminal, elsewhere after each change. The first
// question has to be answered; later ones may fail.
func watchUpstreams(ctx context.Context, w, warnings io.Writer, terminal bool, show upstreamsView, ask func(context.Context) ([]v1.Upstream, error)) error {
	ticker := time.NewTicker(watchPause)
	defer ticker.Stop()
	var last []v1.Upstream
	first, fails := true, ""
	for {
		rows, err := ask(ctx)
		if ctx.Err() != nil {
			return nil // the end of a watch is no fault
		}
		var out bytes.Buffer
		switch {
		case err != nil && first:
			return advised(err)
		case err != nil && err.Error() == fails:
		case err != nil:
			fails = err.Error()
			fmt.Fprintln(warnings, "warning:", advised(err))
		case terminal || first || fails != "" || !reflect.DeepEqual(withoutCounters(last), withoutCounters(rows)):
			if terminal && show.output == "text" {
				fmt.Fprint(&out, "\x1b[H\x1b[2J")
			} else if !first && show.output == "text" {
				fmt.Fprintln(&out)
			} else if !first && show.output == "yaml" {
				fmt.Fprintln(&out, "---")
			}
			if err := show.write(&out, rows, time.Now()); err != nil {
				return err
			}
			if _, err := w.Write(out.Bytes()); err != nil {
				return fmt.Errorf("write the upstreams: %w", err)
			}
			first, fails, last = false, "", rows
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// withoutCounters are upstreams without what changes in each answer.
func withoutCounters(rows []v1.Upstream) []v1.Upstream {
	var out []v1.Upstream
	for _, u := range rows {
		u.Lag, u.LastContact, u.LastSweep, u.Requests, u.WritesQueued = 0, time.Time{}, time.Time{}, v1.UpstreamRequests{}, 0
		out = append(out, u)
	}
	return out
}

// completeUpstream completes the only argument of a command by the names of upstreams.
func completeUpstream(address *string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := c.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, completionPatience)
		defer cancel()
		planeConsole, err := planeClient(c, *address)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		rows, err := planeConsole.Upstreams(ctx, "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, u := range rows {
			names = append(names, u.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func newUpstream() *cobra.Command {
	c := &cobra.Command{
		Use:     "upstream",
		Short:   "Confirm the losses of an upstream",
		Long:    "Confirm the losses of an upstream. 'fairlead upstreams' shows the upstreams and what is held.",
		GroupID: groupData,
	}
	c.AddCommand(newUpstreamConfirm())
	return c
}

func newUpstreamConfirm() *cobra.Command {
	var kubeconfig, address string
	var yes bool
	c := &cobra.Command{
		Use:        "confirm NAME",
		SuggestFor: []string{"accept", "forget", "delete"},
		Short:      "Confirm that what an upstream has lost, or a deleted Upstream left, is to go",
		Args:       cobra.ExactArgs(1),
		Long: `Confirm the losses of an upstream. The services and endpoints that its lists do not have any
more, or those of an upstream that is away, stay in effect until an operator confirms that
they are gone. The command shows what is held, asks, and writes the annotation
fairlead.dev/confirmed-at of the Upstream. Losses after that time are held again.

If the Upstream was deleted, the command deletes the Services and EndpointSlices that are left
of it. It first shows the Services to which something still routes: requests to them fail
afterwards.`,
		Example: `  fairlead upstreams up01
  fairlead upstream confirm up01
  fairlead upstream confirm up01 --yes`,
		RunE: func(c *cobra.Command, args []string) error {
			planeConsole, err := planeClient(c, address)
			if err != nil {
				return err
			}
			api, err := apiClient(kubeconfig)
			if err != nil {
				return err
			}
			name := args[0]
			loss, err := operate.FindLoss(c.Context(), api, name)
			if err != nil {
				return err
			}
			rows, err := planeConsole.Upstreams(c.Context(), name)
			var row *v1.Upstream
			switch {
			case err == nil && len(rows) == 1:
				row = &rows[0]
			case err != nil && !errors.Is(err, console.ErrNone):
				fmt.Fprintf(c.ErrOrStderr(), "warning: the plane does not say what is in use: %v\n", err)
			}
			for _, line := range loss.Consequences(row) {
				fmt.Fprintln(c.ErrOrStderr(), line)
			}
			if err := confirm(c.Context(), c, yes, loss.Question()); err != nil {
				return err
			}
			outcome, err := loss.Confirm(c.Context(), api, time.Now())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), outcome)
			return err
		},
		ValidArgsFunction: completeUpstream(&address),
	}
	kubeconfigFlag(c, &kubeconfig)
	consoleFlag(c, &address)
	c.Flags().BoolVar(&yes, "yes", false, "confirm without asking")
	return c
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

// tapQuiet is how long nothing may come before that is said.
const tapQuiet = 10 * time.Second

func newTap() *cobra.Command {
	var address, output string
	var q console.TapQuestion
	var flows bool
	var client, backend string
	c := &cobra.Command{
		Use:     "tap [ROUTE | FRONTEND]",
		Short:   "Show single requests of clients as proxies answer them, or flows as they begin and end",
		GroupID: groupPeople,
		Args:    cobra.MaximumNArgs(1),
		Long: `Show requests of clients as the proxies of all machines answer them: time, machine, status,
method, host and path, how long it took, the resource and rule that the request followed, the
Service and the backend. ROUTE is the resource that owns the route ([KIND/]NAMESPACE/NAME), or
a host (shop.example.com, *.example.com).

A machine shows at most 100 requests a second of each tap, and 1,000 in all; the command says
how many it left out. Bodies are never recorded, nor headers that are credentials; parameters
such as token and password are redacted. The plane logs who looks. It takes the right to 'tap'
requests, which the ClusterRole fairlead-tapper gives.

With a FRONTEND (tcp://VIP:PORT or udp://VIP:PORT), or with --flows, the command shows flows of
the kernel's data planes: as they begin, move to another backend and end, with the reason.
--flows takes the owner of frontends, too ([KIND/]NAMESPACE/NAME), or a VIP. A machine shows at
most 200 events a second of each tap, and 1,000 in all. What its data plane cannot tell is said.`,
		Example: `  fairlead tap shop/cart
  fairlead tap shop.example.com --status 5xx
  fairlead tap HTTPRoute/shop/cart --slower-than 500ms --limit 20
  fairlead tap -n shop -o json | jq -r '.path'
  fairlead tap tcp://192.0.2.10:443
  fairlead tap --flows Service/shop/db --client 198.51.100.0/24`,
		RunE: func(c *cobra.Command, args []string) error {
			if flows || len(args) == 1 && isFrontend(args[0]) {
				if q.Host+q.Path+q.Status+q.Header != "" || q.Latency != 0 {
					return usageError{err: errors.New("--path, --status, --header and --slower-than are of requests, not of flows")}
				}
				what, err := flowQuestion(strings.Join(args, ""), q.Namespace)
				if err != nil {
					return usageError{err: err}
				}
				what.Client, what.Backend, what.Limit = client, backend, q.Limit
				if _, err := what.Parse(); err != nil {
					return usageError{err: flagged(err)}
				}
				planeConsole, err := planeClient(c, address)
				if err != nil {
					return err
				}
				return tapFlows(c.Context(), planeConsole, what, c.OutOrStdout(), c.ErrOrStderr(), output == "json")
			}
			if client+backend != "" {
				return usageError{err: errors.New("--client and --backend are of flows: name a FRONTEND, or add --flows")}
			}
			if len(args) == 1 {
				if err := routeOf(args[0], &q); err != nil {
					return usageError{err: err}
				}
			}
			if q.Latency < 0 {
				return usageError{err: fmt.Errorf("--slower-than %s: want a duration from 0, such as 500ms", q.Latency)}
			}
			if _, err := q.Filter(); err != nil {
				return usageError{err: flagged(err)}
			}
			if q.Path != "" && !strings.HasPrefix(q.Path, "/") && q.Path != "*" {
				return usageError{err: fmt.Errorf("--path %q: paths begin with /", q.Path)}
			}
			planeConsole, err := planeClient(c, address)
			if err != nil {
				return err
			}
			t := &tapView{out: c.OutOrStdout(), notes: c.ErrOrStderr(), json: output == "json", last: time.Now()}
			err = planeConsole.Tap(c.Context(), q, t.show)
			switch {
			case c.Context().Err() != nil:
			case err != nil:
				return advised(err)
			case q.Limit == 0 || t.shown < q.Limit:
				err = fmt.Errorf("the plane has ended the stream after %s: it stopped, or the right to see them is gone", counted(t.shown, "request"))
				return err
			}
			t.finish()
			return nil
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
			if flows || isFrontend(text) {
				return completeOne(&address, frontendNames)(c, args, text)
			}
			return completeHosts(&address, &q.Namespace, true)(c, args, text)
		},
	}
	consoleFlag(c, &address)
	c.Flags().StringVarP(&output, "output", "o", "text", "output format: text, or json (one object a line)")
	complete(c, "output", "text", "json")
	c.PreRunE = func(*cobra.Command, []string) error {
		if output != "text" && output != "json" {
			return usageError{err: fmt.Errorf("-o %q: want text or json", output)}
		}
		return nil
	}
	addNamespace(c, &address, &q.Namespace, "only routes whose owner is in this namespace")
	c.Flags().StringVar(&q.Path, "path", "", "only paths that begin so")
	c.Flags().StringVar(&q.Status, "status", "", "only this status (404), class (5xx) or range (400-499)")
	c.Flags().StringVar(&q.Header, "header", "", "only requests or answers with this header (name, or name: value)")
	c.Flags().DurationVar(&q.Latency, "slower-than", 0, "only requests that took at least so long")
	c.Flags().IntVar(&q.Limit, "limit", 0, "end after so many requests or events; 0 is never")
	c.Flags().BoolVar(&flows, "flows", false, "show flows of frontends, not requests")
	c.Flags().StringVar(&client, "client", "", "only flows of this client, an address or a CIDR")
	c.Flags().StringVar(&backend, "backend", "", "only flows to or from this backend, an address")
	complete(c, "status", "2xx", "3xx", "4xx", "5xx")
	completeFlag(c, "header", cobra.FixedCompletions(append(model.TapHeaders(), model.TapResponseHeaders()...), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	completeNothing(c, "path", "client", "backend")
	return c
}

// flagged is an error of the question that begins with the name of a flag.
func flagged(err error) error {
	for _, flag := range []string{"status ", "header ", "limit ", "client ", "backend "} {
		if strings.HasPrefix(err.Error(), flag) {
			return fmt.Errorf("--%w", err)
		}
	}
	return err
}

// routeOf reads [KIND/]NAMESPACE/NAME, or a host.
func routeOf(text string, q *console.TapQuestion) error {
	parts := strings.Split(text, "/")
	for _, part := range parts {
		if part == "" {
			return fmt.Errorf("ROUTE %q: want [KIND/]NAMESPACE/NAME, or a host", text)
		}
	}
	namespace := q.Namespace
	switch len(parts) {
	case 1:
		if strings.Contains(text, ":") && !strings.HasPrefix(text, "[") {
			return fmt.Errorf("ROUTE %q: want a host without a port", text)
		}
		q.Host = text
		return nil
	case 2:
		q.Namespace, q.Name = parts[0], parts[1]
	case 3:
		q.Kind, q.Namespace, q.Name = parts[0], parts[1], parts[2]
	default:
		return fmt.Errorf("ROUTE %q: want [KIND/]NAMESPACE/NAME, or a host", text)
	}
	if namespace != "" && namespace != q.Namespace {
		return fmt.Errorf("ROUTE %q is not in namespace %q (-n)", text, namespace)
	}
	return nil
}

// tapView writes what a plane shows.
type tapView struct {
	out, notes io.Writer
	json       bool
	begun      bool
	shown      int
	dropped    uint64
	last       time.Time // when something came, or was said to be missing
	said       map[string]v1.TapMachine
}

func (t *tapView) show(e v1.TapEvent) error {
	if !t.begun {
		t.begun = true
		if e.Note != "" {
			fmt.Fprintf(t.notes, "warning: %s\n", console.PlainText(e.Note))
		}
		fmt.Fprintln(t.notes, "waiting for requests; Ctrl-C ends")
	}
	for _, m := range e.Machines {
		before, known := t.said[m.Machine]
		switch {
		case m.Unable != "":
			fmt.Fprintf(t.notes, "warning: machine %s shows nothing: %s\n", console.PlainText(m.Machine), console.PlainText(m.Unable))
		case m.Percent < 100:
			fmt.Fprintf(t.notes, "machine %s has many requests: it shows some of %d %% of them\n", console.PlainText(m.Machine), m.Percent)
		case known && before != m:
			fmt.Fprintf(t.notes, "machine %s shows its requests again\n", console.PlainText(m.Machine))
		}
	}
	if e.Machines != nil {
		t.said = map[string]v1.TapMachine{}
		for _, m := range e.Machines {
			t.said[m.Machine] = m
		}
	}
	if e.Dropped > 0 {
		t.dropped += e.Dropped
		fmt.Fprintf(t.notes, "%s left out\n", counted(int(e.Dropped), "request"))
	}
	if e.Record == nil {
		if t.shown == 0 && time.Since(t.last) >= tapQuiet {
			t.last = time.Now()
			fmt.Fprintln(t.notes, "no such request yet: 'fairlead top' shows which routes are asked for, 'fairlead explain' which one a request takes")
		}
		return nil
	}
	t.shown++
	var err error
	if t.json {
		var line []byte
		if line, err = json.Marshal(e.Record); err == nil {
			_, err = fmt.Fprintf(t.out, "%s\n", console.PlainJSON(line))
		}
	} else {
		_, err = fmt.Fprintln(t.out, console.TapText(*e.Record))
	}
	if err != nil {
		return fmt.Errorf("write a request: %w", err)
	}
	return nil
}

func (t *tapView) finish() {
	left := ""
	if t.dropped > 0 {
		left = fmt.Sprintf(", %d left out", t.dropped)
	}
	fmt.Fprintf(t.notes, "%s shown%s\n", counted(t.shown, "request"), left)
}

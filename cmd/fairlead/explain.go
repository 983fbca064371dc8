package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/plane"
)

func newExplain() *cobra.Command {
	var address, output, machine string
	var options explain.Options
	var paths []string
	var offline offlinePlane
	c := &cobra.Command{
		Use:     "explain URL",
		Short:   "Show how a request is handled, and which resource decides each step",
		GroupID: groupPeople,
		Long: `Show how a request is handled, step by step: the VIPs that lead to it and the machines that
announce them; the edges; the listener; the TLS handshake; the host; the matching route, and
the reason why each earlier route does not match; the policies; the backends and their
shares. Each step names the resource that decides it. No request is sent.

For tcp://VIP:PORT and udp://VIP:PORT the command explains a flow: the frontend, the row of
the lookup table for --from IP:PORT, and the backend that load balancers choose.

The plane answers from the state that it has published. With -f the command needs no plane:
it reads manifests, and each step names file and line.`,
		Example: `  fairlead explain http://app.example.com/api --from 203.0.113.7
  fairlead explain http://app.example.com/ --method POST -H 'X-Version: two' -o json
  fairlead explain https://app.example.com/ --sni other.example.com
  fairlead explain http://app.example.com/ -f manifests/
  fairlead explain tcp://192.0.2.1:5432 --from 203.0.113.7:40000`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions([]string{"http://", "https://", "tcp://", "udp://"}, cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp),
		RunE: func(c *cobra.Command, args []string) error {
			options.URL = args[0]
			if isFlow(args[0]) {
				return explainFlow(c, options, machine, address, output)
			}
			if machine != "" {
				return usageError{err: errors.New("--machine applies only to flows (tcp://, udp://)")}
			}
			request, err := explain.NewRequest(options)
			if err != nil {
				return usageError{err: err}
			}
			var e v1.Explanation
			var out leftOut
			if c.Flags().Changed("filename") {
				if len(paths) == 0 || slices.Contains(paths, "") {
					return usageError{err: errors.New("--filename: want a file, a directory, or - for standard input")}
				}
				if e, out, err = explainFiles(c, offline, paths, request); err != nil {
					return err
				}
			} else {
				client, err := planeClient(c, address)
				if err != nil {
					return err
				}
				if e, err = client.Explain(c.Context(), options); err != nil {
					return advised(err)
				}
			}
			if output != "text" {
				err = printAs(c.OutOrStdout(), output, e)
			} else {
				err = console.WriteExplanation(c.OutOrStdout(), e)
			}
			return cmp.Or(err, out.err())
		},
	}
	flags := c.Flags()
	flags.StringVar(&options.From, "from", "", "address of the client; for a flow, IP:PORT")
	flags.StringVar(&machine, "machine", "", "for a flow: machine at which its packets arrive")
	flags.StringVar(&options.Method, "method", "GET", "method of the request")
	flags.StringArrayVarP(&options.Headers, "header", "H", nil, "header of the request, 'name: value', including Host; may be repeated")
	flags.StringVar(&options.SNI, "sni", "", "server name of the TLS handshake (default: the URL's host, if that is a name)")
	flags.StringVar(&options.VIP, "vip", "", "address that the client connects to (default: the URL's host, if that is an address)")
	flags.StringSliceVarP(&paths, "filename", "f", nil, "files or directories of manifests to read instead of asking a plane; - is standard input")
	offline.add(c, "with -f: ")
	consoleFlag(c, &address)
	addOutput(c, &output)
	complete(c, "method", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
	complete(c, "header", "Host: ")
	complete(c, "from")
	complete(c, "vip")
	complete(c, "machine")
	complete(c, "sni")
	c.MarkFlagsMutuallyExclusive("filename", "plane-console")
	return c
}

// isFlow says that a URL is that of a frontend.
func isFlow(url string) bool {
	return strings.HasPrefix(url, "tcp://") || strings.HasPrefix(url, "udp://")
}

// explainFlow asks a plane what becomes of a flow.
func explainFlow(c *cobra.Command, o explain.Options, machine, address, output string) error {
	for _, name := range []string{"method", "header", "sni", "vip", "filename"} {
		if c.Flags().Changed(name) {
			return usageError{err: fmt.Errorf("--%s does not apply to a flow: want only --from and --machine", name)}
		}
	}
	request, err := explain.NewFlowRequest(o.URL, o.From, machine)
	if err != nil {
		return usageError{err: err}
	}
	client, err := planeClient(c, address)
	if err != nil {
		return err
	}
	e, err := client.ExplainFlow(c.Context(), request)
	if err != nil {
		return advised(err)
	}
	if output != "text" {
		return printAs(c.OutOrStdout(), output, e)
	}
	return console.WriteFlowExplanation(c.OutOrStdout(), e)
}

// explainFiles explains a request with manifests, and says which of their objects it left out: without them the
// answer may be another.
func explainFiles(c *cobra.Command, offline offlinePlane, paths []string, r explain.Request) (v1.Explanation, leftOut, error) {
	if err := offline.check(); err != nil {
		return v1.Explanation{}, leftOut{}, err
	}
	resources, positions, out, err := readManifests(c, paths)
	if err != nil {
		return v1.Explanation{}, leftOut{}, err
	}
	resources.Now = time.Now() // whether certificates hold
	e, err := console.Declared(plane.Explain(offline.config(), resources, positions.Where, r))
	return e, leftOut{objects: out.objects}, err
}

package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/source/file"
	"fairlead.dev/internal/translate"
)

func newTranslate() *cobra.Command {
	var paths, rootNamespaces []string
	var output string
	var port uint16
	c := &cobra.Command{
		Use:     "translate -f DIR",
		Short:   "Show what manifests would do, without any plane",
		GroupID: groupPeople,
		Long: `Translate manifests as the plane would, offline, and print the listeners, virtual
hosts, routes, backends, VIPs and BGP peers that come of them and the status that each
resource would get. Passwords are not shown. Equal input gives equal output, so a bug
report can be a directory of YAML, and a review can compare two directories.`,
		Example: `  fairlead translate -f examples/
  kubectl get ingressroutes,services,endpointslices -A -o yaml | fairlead translate -f -
  fairlead translate -f before/ > a; fairlead translate -f after/ > b; diff a b`,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(paths) == 0 || slices.Contains(paths, "") {
				return usageError{err: errors.New("--filename: want a file, a directory, or - for standard input")}
			}
			resources, warnings, err := file.Load(c.InOrStdin(), paths...)
			if err != nil {
				return err
			}
			for _, w := range warnings {
				fmt.Fprintln(c.ErrOrStderr(), "warning:", w)
			}
			if reflect.DeepEqual(resources, snapshot.New()) {
				fmt.Fprintf(c.ErrOrStderr(), "warning: nothing to translate: no resource of ours in %s\n", strings.Join(paths, ", "))
			}
			plane := planeFlags{agentPort: defaultAgentPort, apiPort: defaultAPIPort, consoleAddress: defaultPlaneConsole}
			t := translate.Settle(translate.Config{
				RootNamespaces: rootNamespaces, IngressRoutePort: port, ReservedPorts: plane.reservedPorts(),
			}, resources)
			desired := t.Desired()
			if output != "text" {
				return printAs(c.OutOrStdout(), output, desired)
			}
			_, err = io.WriteString(c.OutOrStdout(), desired.Text())
			return err
		},
	}
	c.Flags().StringSliceVarP(&paths, "filename", "f", nil, "files or directories of manifests; - is standard input")
	c.Flags().StringSliceVar(&rootNamespaces, "root-namespaces", nil, "namespaces in which root IngressRoutes may stand (default: all)")
	c.Flags().Uint16Var(&port, "ingressroute-port", 80, "port at which root IngressRoutes are served")
	required(c, "filename")
	addOutput(c, &output)
	return c
}

package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/source/file"
	"fairlead.dev/internal/translate"
)

func newTranslate() *cobra.Command {
	var paths []string
	var output string
	var offline offlinePlane
	c := &cobra.Command{
		Use:     "translate -f DIR",
		Short:   "Show what manifests would do, without any plane",
		GroupID: groupPeople,
		Long: `Translate manifests as the plane would, offline, and print the listeners, virtual
hosts, routes, backends, VIPs and BGP peers that come of them and the status that each
resource would get. Passwords are not shown. Equal input gives equal output, so a bug
report can be a directory of YAML, and a review can compare two directories.

A field that its kind does not have is left out, as an API leaves it out. All else is printed,
and the exit status is 1.`,
		Example: `  fairlead translate -f examples/
  kubectl get ingressroutes.contour.heptio.com,services,endpointslices -A -o yaml | fairlead translate -f -
  fairlead translate -f before/ > a; fairlead translate -f after/ > b; diff a b`,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(paths) == 0 || slices.Contains(paths, "") {
				return usageError{err: errors.New("--filename: want a file, a directory, or - for standard input")}
			}
			if err := offline.check(); err != nil {
				return err
			}
			resources, warnings, err := file.Load(c.InOrStdin(), paths...)
			if err != nil {
				return err
			}
			unknown := 0
			for _, w := range warnings {
				fmt.Fprintln(c.ErrOrStderr(), "warning:", w)
				if w.Field {
					unknown++
				}
			}
			if reflect.DeepEqual(resources, snapshot.New()) {
				fmt.Fprintf(c.ErrOrStderr(), "warning: nothing to translate: no resource of ours in %s\n", strings.Join(paths, ", "))
			}
			for _, p := range translate.Unclaimed(resources, translate.ControllerName) {
				fmt.Fprintf(c.ErrOrStderr(), "warning: %s: %s: %s\n", p.Subject, p.Reason, p.Message)
			}
			config := offline.config()
			if others := translate.OfOthers(config, resources); len(others) > 0 {
				const most = 5
				names := make([]string, 0, most+1)
				for _, o := range others[:min(len(others), most)] {
					names = append(names, o.Namespace+"/"+o.Name)
				}
				if len(others) > most {
					names = append(names, "...")
				}
				fmt.Fprintf(c.ErrOrStderr(), "warning: %d IngressRoutes have the class of another controller and are left out (--ingress-class): %s\n", len(others), strings.Join(names, ", "))
			}
			desired := translate.Settle(config, resources).Desired()
			if output != "text" {
				err = printAs(c.OutOrStdout(), output, desired)
			} else {
				_, err = io.WriteString(c.OutOrStdout(), desired.Text())
			}
			if err == nil && unknown > 0 {
				err = fmt.Errorf("unknown fields were left out (%d): the warnings name them", unknown)
			}
			return err
		},
	}
	c.Flags().StringSliceVarP(&paths, "filename", "f", nil, "files or directories of manifests; - is standard input")
	offline.add(c, "")
	required(c, "filename")
	addOutput(c, &output)
	return c
}

// offlinePlane is what the flags of a plane say to those who translate without one.
type offlinePlane struct {
	rootNamespaces []string
	ingressClass   string
	noClearText    bool
	affinityCookie string
	minTLS         string
	refused        prefixes
	port, tlsPort  uint16
}

func (o *offlinePlane) add(c *cobra.Command, with string) {
	flags := c.Flags()
	flags.StringSliceVar(&o.rootNamespaces, "root-namespaces", nil, with+"namespaces in which root IngressRoutes may stand (default: all)")
	ingressClassVar(flags, &o.ingressClass, with)
	flags.BoolVar(&o.noClearText, "disable-permit-insecure", false, with+disablePermitInsecureHelp)
	flags.StringVar(&o.affinityCookie, "affinity-cookie", "", with+affinityCookieHelp)
	flags.StringVar(&o.minTLS, "minimum-tls-version", "", with+minTLSHelp)
	flags.Var(&o.refused, "refuse-endpoints", with+refuseEndpointsHelp)
	flags.Uint16Var(&o.port, "ingressroute-port", 80, with+"port at which root IngressRoutes are served")
	flags.Uint16Var(&o.tlsPort, "ingressroute-tls-port", 443, with+"port at which root IngressRoutes with TLS are served")
}

// check says what is wrong with the flags.
func (o *offlinePlane) check() error { return checkHosts(o.affinityCookie, o.minTLS) }

// config is what a plane with default ports of its own would translate with.
func (o *offlinePlane) config() translate.Config {
	flags := planeFlags{agentPort: defaultAgentPort, apiPort: defaultAPIPort, consoleAddress: defaultPlaneConsole}
	return translate.Config{
		RootNamespaces: o.rootNamespaces, IngressClass: o.ingressClass, DisablePermitInsecure: o.noClearText, IngressRoutePort: o.port, IngressRouteTLSPort: o.tlsPort, ReservedPorts: flags.reservedPorts(),
		RefusedEndpoints: o.refused, AffinityCookie: o.affinityCookie, MinTLS: model.TLSVersion(o.minTLS),
	}
}

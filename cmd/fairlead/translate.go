package main

import (
	"cmp"
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
		Short:   "Translate manifests offline, without a plane",
		GroupID: groupPeople,
		Long: `Translate manifests offline, as the plane would, and print the resulting listeners, virtual
hosts, routes, backends, VIPs and BGP peers, and the status that each resource would get.
Passwords are not shown. Equal input gives equal output, so a bug report can be a directory
of YAML, and a review can compare two directories.

These are left out, with a warning and exit status 1: unknown fields, objects with a value of
a wrong type or an invalid name, and all but the last of duplicate objects. Everything else
is printed.`,
		Example: `  fairlead translate -f examples/news
  kubectl get ingressroutes.contour.heptio.com,services,endpointslices -A -o yaml | fairlead translate -f -
  fairlead translate -f before/ > a; fairlead translate -f after/ > b; diff a b`,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(paths) == 0 || slices.Contains(paths, "") {
				return usageError{err: errors.New("--filename: want a file, a directory, or - for standard input")}
			}
			if err := offline.check(); err != nil {
				return err
			}
			resources, _, out, err := readManifests(c, paths)
			if err != nil {
				return err
			}
			if reflect.DeepEqual(resources, snapshot.New()) {
				fmt.Fprintf(c.ErrOrStderr(), "warning: nothing to translate: no resource that Fairlead reads in %s\n", strings.Join(paths, ", "))
			}
			for _, p := range translate.Unclaimed(resources, translate.ControllerName) {
				fmt.Fprintf(c.ErrOrStderr(), "warning: %s: %s: %s\n", p.Subject, p.Reason, p.Message)
			}
			config := offline.config()
			translator := translate.Converge(config, resources)
			if others := translator.Others(); len(others) > 0 {
				const most = 5
				names := make([]string, 0, most+1)
				for _, o := range others[:min(len(others), most)] {
					names = append(names, o.Namespace+"/"+o.Name)
				}
				if len(others) > most {
					names = append(names, "...")
				}
				fmt.Fprintf(c.ErrOrStderr(), "warning: %s ignored, with the class of another controller (--ingress-class): %s\n", counted(len(others), "IngressRoute"), strings.Join(names, ", "))
			}
			desired := translator.Desired()
			if output != "text" {
				err = printAs(c.OutOrStdout(), output, desired)
			} else {
				_, err = io.WriteString(c.OutOrStdout(), desired.Text())
			}
			return cmp.Or(err, out.err())
		},
	}
	c.Flags().StringSliceVarP(&paths, "filename", "f", nil, "files or directories of manifests; - is standard input")
	offline.add(c, "")
	required(c, "filename")
	addOutput(c, &output)
	return c
}

// leftOut counts the objects and fields of manifests that a translation ignores.
type leftOut struct{ fields, objects int }

// err reports ignored objects and fields; it is nil when nothing was ignored.
func (l leftOut) err() error {
	var what []string
	if l.objects > 0 {
		what = append(what, counted(l.objects, "object"))
	}
	if l.fields > 0 {
		what = append(what, counted(l.fields, "unknown field"))
	}
	if len(what) == 0 {
		return nil
	}
	verb := "were"
	if l.objects+l.fields == 1 {
		verb = "was"
	}
	return fmt.Errorf("%s %s ignored (see the warnings)", strings.Join(what, " and "), verb)
}

// readManifests reads manifests, and warns of what it leaves out.
func readManifests(c *cobra.Command, paths []string) (*snapshot.Snapshot, file.Positions, leftOut, error) {
	var out leftOut
	resources, positions, warnings, err := file.Load(c.InOrStdin(), paths...)
	var faults *file.Faults
	if err != nil && !errors.As(err, &faults) {
		return nil, positions, out, err
	}
	for _, w := range warnings {
		fmt.Fprintln(c.ErrOrStderr(), "warning:", w)
		if w.Field {
			out.fields++
		}
	}
	if faults != nil {
		for _, f := range faults.Found {
			fmt.Fprintln(c.ErrOrStderr(), "warning:", f)
		}
		out.objects = faults.Objects
	}
	return resources, positions, out, nil
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
	flags.StringSliceVar(&o.rootNamespaces, "root-namespaces", nil, with+"namespaces in which root IngressRoutes are allowed (default: all)")
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

// counted is a number with its noun, in the plural where needed.
func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

package cli

import (
	"github.com/spf13/cobra"

	"fairlead.dev/lab/demo"
	"fairlead.dev/lab/report"
)

func newDemo() *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "See it work: VIPs behind a router, weights that shift, things that are killed",
		Long: `Build a lab with a client behind a router (BIRD), three edges, two clusters of
backends and a plane; apply a pool of VIPs, the router as a BGP peer and the routes
of examples/ with kubectl; send requests to the VIPs, shift weights, kill the plane,
an Envoy and a whole edge, cordon another, and count what was lost. Then have the
kernel balance a Service, and an edge vanish under 400 connections. It ends with
"demo: PASS" or "demo: FAIL" and why, in under three minutes, and leaves nothing
behind.

kubectl is FAIRLEAD_KUBECTL, or beside this program, or on PATH; Envoy is
FAIRLEAD_ENVOY, or .tools/envoy, or on PATH.`,
		Example: `  fairlead lab demo
  fairlead lab demo --picture docs/demo.svg`,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out = c.OutOrStdout()
			o.Lab = options(c)
			_, err := demo.Run(c.Context(), o)
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&o.Name, "name", "demo", "name of the demo's lab")
	f.IntVar(&o.Requests, "requests", 10_000, "requests of the big step")
	f.StringVar(&o.Picture, "picture", "", "SVG file to draw the run into")
	f.StringVar(&o.OutDir, "out-dir", report.DefaultDir, "where demo.json and the logs of a failure go")
	return c
}

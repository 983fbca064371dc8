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
		Short: "Run the demo: VIPs behind a router, shifting weights, killed planes, proxies and edges",
		Long: `Build a lab with a client behind a router (BIRD), three edges, two clusters of backends and a
plane. Apply a pool of VIPs, the router as a BGP peer and the routes of examples/ with
kubectl. Send requests to the VIPs; meanwhile shift weights, kill the plane, an Envoy and a
whole edge, cordon another edge, and count the failed requests. Then balance a Service in the
kernel, and remove an edge under 400 connections. The demo ends with "demo: PASS", or with
"demo: FAIL" and the reason, in less than three minutes, and leaves nothing behind.

kubectl is FAIRLEAD_KUBECTL, else the one beside this program, else the one on PATH. Envoy is
FAIRLEAD_ENVOY, else .tools/envoy, else the one on PATH.`,
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
	f.IntVar(&o.Requests, "requests", 10_000, "requests of the main step")
	f.StringVar(&o.Picture, "picture", "", "SVG file to draw the run into")
	f.StringVar(&o.OutDir, "out-dir", report.DefaultDir, "directory for demo.json and the logs of a failure")
	return c
}

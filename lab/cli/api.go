package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/deploy/crd"
	"fairlead.dev/internal/embedded"
)

// newAPI is the process that stands for somebody's Kubernetes API in labs: planes use it
// as an outside one.
func newAPI() *cobra.Command {
	var dir, address string
	var port uint16
	c := &cobra.Command{
		Use:     "api --data-dir DIR --advertise-address ADDRESS",
		Short:   "Run a Kubernetes API without a plane",
		Hidden:  true,
		Example: "  fairlead lab api --data-dir /tmp/api --advertise-address 192.0.2.10",
		RunE: func(c *cobra.Command, _ []string) error {
			advertise, err := netip.ParseAddr(address)
			if err != nil {
				return fmt.Errorf("--advertise-address %q: want an IP address", address)
			}
			return serveAPI(c.Context(), embedded.Config{
				DataDir: dir, BindAddress: netip.IPv6Unspecified(), AdvertiseAddress: advertise, Port: port,
				Log: slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil)),
			})
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "data directory of the API; can be that of a stopped plane")
	c.Flags().StringVar(&address, "advertise-address", "", "address at which others reach the API")
	c.Flags().Uint16Var(&port, "api-port", 6443, "port of the API")
	must(c.MarkFlagRequired("data-dir"))
	must(c.MarkFlagRequired("advertise-address"))
	return c
}

// serveAPI runs an API with our definitions until ctx ends.
func serveAPI(ctx context.Context, config embedded.Config) error {
	api, err := embedded.Start(ctx, config)
	if err != nil {
		return err
	}
	err = embedded.InstallOwnCRDs(ctx, api.RESTConfig(), config.Log, crd.All(crd.Experimental)...)
	if err == nil {
		select {
		case <-ctx.Done():
		case <-api.Done():
			err = api.Err()
		}
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if stopErr := api.Stop(grace); err == nil {
		err = stopErr
	}
	return err
}

package cli

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"fairlead.dev/lab/backend"
)

// newBackend is the process that stands for applications in labs.
func newBackend() *cobra.Command {
	var serve []string
	var grace time.Duration
	c := &cobra.Command{
		Use:    "backend --serve NAME=ADDRESS:PORT...",
		Short:  "Answer HTTP requests with a name",
		Hidden: true,
		Example: `  fairlead lab backend --serve blue=192.0.2.10:8081 --serve green=192.0.2.10:8082
  fairlead lab backend --serve 'blue=[2001:db8::10]:8081'`,
		RunE: func(c *cobra.Command, _ []string) error {
			return serveBackends(c.Context(), serve, grace)
		},
	}
	c.Flags().StringArrayVar(&serve, "serve", nil, "a name and the address at which it answers; may be repeated, also for the same name")
	c.Flags().DurationVar(&grace, "grace", 5*time.Second, "time that open requests have to finish at the end")
	must(c.MarkFlagRequired("serve"))
	return c
}

func serveBackends(ctx context.Context, serve []string, grace time.Duration) error {
	backends := map[string]*backend.Backend{}
	listeners := map[string][]net.Listener{}
	for _, s := range serve {
		name, address, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return fmt.Errorf("--serve %s: want NAME=ADDRESS:PORT", s)
		}
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("--serve %s: %w", s, err)
		}
		backends[name] = backend.New(name)
		listeners[name] = append(listeners[name], l)
	}
	group, ctx := errgroup.WithContext(ctx)
	for name, b := range backends {
		group.Go(func() error { return backend.Serve(ctx, b, grace, listeners[name]...) })
	}
	return group.Wait()
}

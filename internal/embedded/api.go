package embedded

import (
	"context"

	"k8s.io/client-go/rest"
)

// API is a Kubernetes API that somebody may rely on: a Server of this process or one outside it.
type API interface {
	// RESTConfig returns a copy of the configuration with full rights that reaches the API.
	RESTConfig() *rest.Config
	// Healthy returns nil if the API answers and takes writes, else what is wrong and what to do.
	Healthy(ctx context.Context) error
	// Done is closed once the API has ended, by Stop or by itself. An outside API never ends.
	Done() <-chan struct{}
	// Err says why the API ended by itself; nil before the end and after Stop.
	Err() error
	// Stop ends what this process runs. It may be called again.
	Stop(ctx context.Context) error
}

var (
	_ API = (*Server)(nil)
	_ API = (*outside)(nil)
)

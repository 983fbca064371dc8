package embedded

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// outside is an API that somebody else runs.
type outside struct {
	cfg   *rest.Config
	probe *probe
	once  sync.Once
	done  chan struct{}
}

// Outside returns the API that the kubeconfig's current context names, after it answered. With an
// empty path it is the cluster that this process runs in as a pod. Stop leaves it running.
func Outside(ctx context.Context, kubeconfigPath string) (API, error) {
	var cfg *rest.Config
	var err error
	if kubeconfigPath == "" {
		if cfg, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("no kubeconfig was given and this is not a pod: %w", err)
		}
	} else {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfigPath}
		cfg, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfigPath, err)
		}
	}
	p, err := newProbe(cfg)
	if err != nil {
		return nil, err
	}
	if err := p.ready(ctx); err != nil {
		return nil, fmt.Errorf("the API at %s (--kubeconfig %s) does not answer: %w", cfg.Host, kubeconfigPath, err)
	}
	return &outside{cfg: cfg, probe: p, done: make(chan struct{})}, nil
}

func (o *outside) RESTConfig() *rest.Config { return rest.CopyConfig(o.cfg) }

func (o *outside) Healthy(ctx context.Context) error {
	if err := o.probe.ready(ctx); err != nil {
		return fmt.Errorf("the API at %s: %w", o.cfg.Host, err)
	}
	return nil
}

func (o *outside) Done() <-chan struct{} { return o.done }

func (o *outside) Err() error { return nil }

func (o *outside) Stop(context.Context) error {
	o.once.Do(func() { close(o.done) })
	return nil
}

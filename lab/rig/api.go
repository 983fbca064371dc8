package rig

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/lab"
)

// StartAPI runs a Kubernetes API without a plane on a machine, with the data in dir, and
// returns when it is ready. A plane whose own data it is must be stopped.
func (r *Rig) StartAPI(ctx context.Context, m *lab.Machine, dir string) (*lab.Process, error) {
	p, err := r.start(ctx, m, "api", r.Binary, "lab", "api", "--data-dir", dir, "--advertise-address", m.Addr4().String(), "--api-port", apiPort)
	if err != nil {
		return nil, err
	}
	return p, r.Await(ctx, "the API on "+m.Name()+" to be ready", func(ctx context.Context) error {
		if !p.Running() {
			return Fatal(fmt.Errorf("it has ended: %s", lastLine(p.Log())))
		}
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
		if err != nil {
			return err
		}
		config.Dial = m.Dial
		client, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			return err
		}
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/deploy/crd"
	"fairlead.dev/internal/bundle"
	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/version"
)

func newSupportBundle() *cobra.Command {
	var plane, agent, kubeconfig, file, runDir string
	c := &cobra.Command{
		Use:     "support-bundle",
		Short:   "Collect status, metrics and resources into one archive",
		GroupID: groupData,
		Long: `Collect diagnostics for a support request into one .tar.gz: health, metrics and status of
the plane and of this machine's agent; the leading plane's view of all machines, routes,
backends and revisions; the ends of the logs (the journal of units fairlead*, Envoy's log);
and the resources that define routing. Secrets are never collected, and private keys are
removed from logs. The command reports missing parts on the terminal and in index.txt of the
archive, and still writes the rest.`,
		Example: `  fairlead support-bundle
  fairlead support-bundle --file /tmp/fairlead.tar.gz`,
		RunE: func(c *cobra.Command, _ []string) error {
			planeClient, err := consoleClient("plane-console", plane)
			if err != nil {
				return err
			}
			agentClient, err := consoleClient("agent-console", agent)
			if err != nil {
				return err
			}
			now := time.Now()
			root := "fairlead-support-" + now.UTC().Format("20060102-150405")
			if file == "" {
				file = root + ".tar.gz"
			}
			parts := []bundle.Part{{Name: "version.txt", Fetch: func(context.Context) ([]byte, error) {
				return []byte(version.String() + "\n"), nil
			}}}
			parts = append(parts, consoleParts("plane", planeClient)...)
			parts = append(parts, leaderParts(planeClient)...)
			parts = append(parts, consoleParts("agent", agentClient)...)
			parts = append(parts, bundle.Journal("logs/journal.txt"), bundle.Tail("logs/envoy.log", filepath.Join(runDir, "envoy.log")))
			parts = append(parts, resourceParts(kubeconfig)...)
			return writeBundle(c.Context(), c.ErrOrStderr(), file, root, now, parts)
		},
	}
	c.Flags().StringVar(&agent, "agent-console", "http://"+defaultAgentConsole, "URL of the console of this machine's agent")
	kubeconfigFlag(c, &kubeconfig)
	consoleFlag(c, &plane)
	c.Flags().StringVar(&runDir, "run-dir", defaultRunDir, "the agent's run directory, where Envoy's log is")
	c.Flags().StringVarP(&file, "file", "f", "", "archive to write (default fairlead-support-<time>.tar.gz here)")
	return c
}

func consoleParts(name string, client console.Client) []bundle.Part {
	get := func(path string) func(context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) { return client.Get(ctx, path) }
	}
	return []bundle.Part{
		{Name: name + "/healthz.txt", Fetch: get("/healthz")},
		{Name: name + "/readyz.txt", Fetch: get("/readyz")},
		{Name: name + "/metrics.txt", Fetch: get("/metrics")},
		{Name: name + "/status.json", Fetch: get(v1.StatusPath)},
	}
}

// leaderParts are what only the plane that leads knows; a standby has it asked.
func leaderParts(client console.Client) []bundle.Part {
	var parts []bundle.Part
	for name, path := range map[string]string{
		"machines-status": v1.StatusPath + "?" + v1.OfLeader, "revisions": v1.RevisionsPath, "routes": v1.RoutesPath, "backends": v1.BackendsPath,
	} {
		parts = append(parts, bundle.Part{
			Name:  "leader/" + name + ".json",
			Fetch: func(ctx context.Context) ([]byte, error) { return client.Get(ctx, path) },
		})
	}
	slices.SortFunc(parts, func(a, b bundle.Part) int { return strings.Compare(a.Name, b.Name) })
	return parts
}

// resourceParts asks the API; where there is no way to it, its one part says why.
func resourceParts(kubeconfig string) []bundle.Part {
	var client dynamic.Interface
	config, err := restConfig(kubeconfig)
	if err == nil {
		client, err = dynamic.NewForConfig(config)
	}
	if err != nil {
		return []bundle.Part{{Name: "resources", Fetch: func(context.Context) ([]byte, error) { return nil, err }}}
	}
	kinds, err := bundle.Kinds(crd.All(crd.Experimental)...)
	if err != nil {
		return []bundle.Part{{Name: "resources", Fetch: func(context.Context) ([]byte, error) { return nil, err }}}
	}
	return bundle.Resources(client, kinds)
}

// writeBundle writes beside the file and renames, so that a file with that name is
// always whole.
func writeBundle(ctx context.Context, progress io.Writer, file, root string, now time.Time, parts []bundle.Part) (err error) {
	f, err := os.CreateTemp(filepath.Dir(file), ".fairlead-support-*")
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) { // the name beside it is nobody's business
			err = at.Err
		}
		return fmt.Errorf("write the bundle %s: %w", file, err)
	}
	defer func() {
		if err != nil {
			err = ended(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	outcomes, err := bundle.Write(ctx, f, root, now, 20*time.Second, parts)
	if err != nil {
		return err
	}
	missing := 0
	for _, o := range outcomes {
		if o.Err != nil {
			missing++
			fmt.Fprintf(progress, "  missing: %s: %v\n", o.Name, o.Err)
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write the bundle %s: %w", file, err)
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return fmt.Errorf("write the bundle %s: %w", file, err)
	}
	fmt.Fprintf(progress, "wrote %s: %d parts collected, %d missing\n", file, len(outcomes)-missing, missing)
	return f.Close()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.dev/internal/driver/proxy"
	"fairlead.dev/internal/install"
)

// installed is what `install` and `uninstall` print.
type installed struct {
	Unit  string           `json:"unit"`
	Files []install.Change `json:"files"`
	// Service is what became of the service: enabled, stopped, or unchanged.
	Service string `json:"service"`
	// Next is what is left to do.
	Next string `json:"next,omitempty"`
}

// installFlags are those that are not the part's own.
type installFlags struct {
	root, output string
	now          bool
}

func (f *installFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.root, "root", "/", "root of the file system to change, for building images; systemd is called only if it is /")
	addOutput(c, &f.output)
}

// print says what was done.
func (f *installFlags) print(w io.Writer, did installed) error {
	if f.output != "text" {
		return printAs(w, f.output, did)
	}
	for _, change := range did.Files {
		fmt.Fprintf(w, "%s: %s\n", change.Path, change.What)
	}
	fmt.Fprintf(w, "%s: %s\n", did.Unit, did.Service)
	if did.Next != "" {
		fmt.Fprintln(w, did.Next)
	}
	return nil
}

// service is nil where systemd is not to be asked.
func (f *installFlags) service(p install.Part) (*install.Service, error) {
	if f.root != "/" {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("units and their settings belong to root: run this as root (sudo), or write to another directory with --root")
	}
	service, err := install.NewService(p)
	if errors.Is(err, install.ErrNoSystemd) {
		err = fmt.Errorf("%w: run 'fairlead %s' with another service manager, or write the files for another machine with --root", err, p)
	}
	return service, err
}

func newInstall() *cobra.Command {
	c := &cobra.Command{
		Use:     "install",
		Short:   "Install the agent or the plane as a systemd service",
		GroupID: groupRun,
	}
	c.AddCommand(newInstallAgent(), newInstallPlane())
	return c
}

func newInstallAgent() *cobra.Command {
	own, flags := &installFlags{}, &agentFlags{}
	var tokenFile string
	c := &cobra.Command{
		Use:   "agent --plane HOST:PORT",
		Short: "Install the agent as a systemd service, with the given flags",
		Long: `Write a systemd unit for the agent and its settings. The service runs with the flags of
'fairlead agent' that are given here. The token is copied to a file that only root can read.

If a Debian package has installed the unit, only the settings are written. Without a
difference nothing changes. With --now an agent whose settings have changed is restarted;
its Envoy keeps serving. 'fairlead uninstall agent' removes everything again.`,
		Example: `  fairlead install agent --plane 192.0.2.10:7443 --token-file edge-1.token --now
  fairlead install agent --plane 192.0.2.10:7443 --name node-7 --role backend --token-file node-7.token --now
  ssh plane-1 sudo fairlead token create --machine edge-1 |
    sudo fairlead install agent --plane 192.0.2.10:7443 --name edge-1 --token-file /dev/stdin --now`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			service, err := own.service(install.Agent)
			if err != nil {
				return err
			}
			if service != nil {
				if err := findEnvoyAsUnit(flags); err != nil {
					return err
				}
			}
			var token []byte
			if tokenFile != "" {
				if token, err = os.ReadFile(tokenFile); err != nil {
					return fmt.Errorf("read the token: %w", err)
				}
				if len(strings.TrimSpace(string(token))) == 0 {
					return fmt.Errorf("read the token: %s is empty", tokenFile)
				}
			}
			return runInstall(c, install.Agent, own, service, token)
		},
	}
	flags.add(c, "", proxy.Leave)
	flags.addJoin(c, &tokenFile)
	own.add(c)
	own.addNow(c)
	return c
}

// findEnvoyAsUnit says now what the unit would say in its log at every start.
func findEnvoyAsUnit(flags *agentFlags) error {
	if flags.role != roleEdge || flags.envoy == noEnvoy || strings.ContainsRune(flags.envoy, os.PathSeparator) {
		return nil
	}
	if path := filepath.Join("/usr/lib/fairlead", flags.envoy); proxy.Look(path, flags.runDir) == nil {
		return nil
	}
	if err := proxy.Look(flags.envoy, flags.runDir); err != nil {
		return fmt.Errorf("%w; Debian has it in the package fairlead-envoy; an edge that only balances Services, TCPRoutes and UDPRoutes needs none: --envoy none", err)
	}
	return nil
}

func newInstallPlane() *cobra.Command {
	own, flags := &installFlags{}, &planeFlags{}
	c := &cobra.Command{
		Use:   "plane",
		Short: "Install the plane as a systemd service, with the given flags",
		Long: `Write a systemd unit for the plane and its settings. The service runs with the flags of
'fairlead plane' that are given here; all are optional.

If a Debian package has installed the unit, only the settings are written. Without a
difference nothing changes. With --now a plane whose settings have changed is restarted.
'fairlead uninstall plane' removes everything again.`,
		Example: `  fairlead install plane --now
  fairlead install plane --advertise-address 192.0.2.10 --now
  fairlead install plane --kubeconfig /etc/fairlead/cluster.kubeconfig --advertise-address 192.0.2.10`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			service, err := own.service(install.Plane)
			if err != nil {
				return err
			}
			return runInstall(c, install.Plane, own, service, nil)
		},
	}
	flags.add(c)
	own.add(c)
	own.addNow(c)
	return c
}

func (f *installFlags) addNow(c *cobra.Command) {
	c.Flags().BoolVar(&f.now, "now", false, "start the service now and at boot; restart it if its settings have changed")
}

func runInstall(c *cobra.Command, p install.Part, own *installFlags, service *install.Service, token []byte) error {
	binary, err := ownBinary()
	if err != nil {
		return err
	}
	machine := install.Machine{Root: own.root, Binary: binary}
	files, err := machine.Install(p, givenFlags(c, machine), token)
	if err != nil {
		return err
	}
	did := installed{Unit: p.Unit(), Files: files, Service: install.Unchanged, Next: "Start it, also after each boot: systemctl enable --now " + p.Unit()}
	if service != nil {
		// Units may have changed without us: a reload costs nothing.
		if err := service.Reload(c.Context()); err != nil {
			return err
		}
	}
	switch {
	case service == nil && own.now:
		return usageError{err: errors.New("--now starts the service on this machine, but --root writes files for another one: want only one of them")}
	case own.now:
		changed := slices.ContainsFunc(files, func(f install.Change) bool { return f.What != install.Unchanged })
		if err := service.EnableNow(c.Context(), changed); err != nil {
			return err
		}
		did.Service, did.Next = "enabled and started", ""
	case service == nil:
		did.Next = "Install the program at " + binary + " on that machine. " + did.Next
	case service.Active(c.Context()):
		did.Next = "It still runs with its previous settings; to apply the new ones: systemctl restart " + p.Unit()
	}
	return own.print(c.OutOrStdout(), did)
}

// ownBinary is this program's path, for a unit.
func ownBinary() (string, error) {
	path, err := os.Executable()
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", fmt.Errorf("find this program's path: %w", err)
	}
	return path, nil
}

// pathFlags are the flags with paths, which in a unit do not count from the directory of
// whoever wrote it.
var pathFlags = []string{
	"data-dir", "run-dir", "bpf-dir", "kubeconfig", "etcd-cafile", "etcd-certfile", "etcd-keyfile",
	"service-account-token-file", "plane-authority-file", "net-sysctls",
}

// givenFlags are the part's flags that were given, as its own command line has them.
func givenFlags(c *cobra.Command, machine install.Machine) []string {
	var given []string
	if f := c.Flag("token-file"); f != nil && !f.Changed && machine.HasToken() {
		given = append(given, "--token-file="+machine.TokenPath())
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		switch list, isList := f.Value.(pflag.SliceValue); {
		case slices.Contains([]string{"root", "now", "output"}, f.Name):
			return
		case f.Name == "token-file":
			value = machine.TokenPath()
		case isList:
			value = strings.Join(list.GetSlice(), ",")
		case slices.Contains(pathFlags, f.Name) && value != "":
			if path, err := filepath.Abs(value); err == nil {
				value = path
			}
		}
		given = append(given, "--"+f.Name+"="+value)
	})
	slices.Sort(given) // so that equal settings are equal files
	return given
}

func newUninstall() *cobra.Command {
	c := &cobra.Command{
		Use:     "uninstall",
		Short:   "Stop the agent or the plane on this machine, and remove its service",
		GroupID: groupRun,
	}
	c.AddCommand(newUninstallAgent(), newUninstallPlane())
	return c
}

func newUninstallAgent() *cobra.Command {
	own := &uninstallFlags{}
	c := &cobra.Command{
		Use:   "agent",
		Short: "Drain and stop the agent, and remove its unit and settings",
		Long: `Take this machine out of service. The agent withdraws its VIPs, lets connections finish as
with --on-stop=drain, and stops together with its Envoy. Then its unit, settings and token
are removed. Its identity stays, so a new agent need not join again. --purge also removes the
identity, the run directory and what is left in the kernel.`,
		Example: `  fairlead uninstall agent
  fairlead uninstall agent --purge`,
		RunE: func(c *cobra.Command, _ []string) error {
			return runUninstall(c, install.Agent, own, func(ctx context.Context, s *install.Service, flags []string) error {
				return endAgent(ctx, s, flags, !own.noDrain, !own.keepSettings)
			})
		},
	}
	own.add(c)
	c.Flags().BoolVar(&own.noDrain, "no-drain", false, "stop at once and break connections")
	return c
}

func newUninstallPlane() *cobra.Command {
	own := &uninstallFlags{}
	c := &cobra.Command{
		Use:   "plane",
		Short: "Stop the plane, and remove its unit and settings",
		Long: `Stop the plane of this machine, and remove its unit and settings. Machines keep serving their
present configuration. The data stays, with all resources and keys of an embedded API. --purge
also removes the data, and only a backup can restore it.`,
		Example: `  fairlead uninstall plane
  fairlead backup --file fairlead.tgz && fairlead uninstall plane --purge`,
		RunE: func(c *cobra.Command, _ []string) error {
			return runUninstall(c, install.Plane, own, func(ctx context.Context, s *install.Service, _ []string) error {
				return s.Stop(ctx, !own.keepSettings)
			})
		},
	}
	own.add(c)
	return c
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.dev/internal/agent"
	"fairlead.dev/internal/console"
	"fairlead.dev/internal/driver/address"
	"fairlead.dev/internal/driver/bgp"
	"fairlead.dev/internal/driver/health"
	"fairlead.dev/internal/driver/l2"
	"fairlead.dev/internal/driver/proxy"
	"fairlead.dev/internal/embedded"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/rtdump"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/version"
	"fairlead.dev/internal/xds"
)

// agentFlags are the flags that `agent` and `up` share.
type agentFlags struct {
	prefix         string // of the flags that a plane has too
	name           string
	dataDir        string
	runDir         string
	consoleAddress string
	envoy          string
	envoyUser      string
	envoyThreads   int
	envoyMemory    string
	envoyClients   int64
	proxyOutput    string
	drainTime      time.Duration
	onStop         string
	role           string
	balancing      balancingFlags

	planes  []string
	token   agent.TokenSource
	account agent.Account
	sysctls string // where the kernel's network settings are changed
}

// add adds the flags. prefix tells them apart where a plane has flags of its own.
func (f *agentFlags) add(c *cobra.Command, prefix string, onStop proxy.StopPolicy) {
	f.prefix = prefix
	flags := c.Flags()
	flags.StringVar(&f.name, "name", "", "name of this machine (default: its host name)")
	flags.StringVar(&f.dataDir, prefix+"data-dir", defaultAgentDir, "directory for the identity of the agent and the configuration that it serves")
	flags.StringVar(&f.runDir, "run-dir", defaultRunDir, "directory for sockets, secrets and Envoy's log; preferably a tmpfs")
	flags.StringVar(&f.consoleAddress, prefix+"console-address", defaultAgentConsole, "address at which the agent serves health and metrics, without authentication")
	flags.StringVar(&f.envoy, "envoy", "envoy", "Envoy's binary: a path, or a name on PATH; none runs an edge without Envoy, which balances VIPs in the kernel and serves no HTTP")
	flags.StringVar(&f.envoyUser, "envoy-user", proxy.AutoUser, "user that Envoy runs as: an account, UID or UID:GID; auto (if the agent is root, the account "+proxy.UserAccount+" or, without that account, an unused UID); or same (the agent's own user)")
	complete(c, "envoy-user", proxy.AutoUser, proxy.SameUser)
	flags.IntVar(&f.envoyThreads, "envoy-threads", 0, "number of Envoy's worker threads (default: one per processor)")
	flags.StringVar(&f.envoyMemory, "envoy-memory", "", "memory use at which Envoy sheds load, such as 4Gi (default: three quarters of the memory of this machine or its container)")
	flags.Int64Var(&f.envoyClients, "envoy-connections", 50_000, "most client connections that Envoy accepts at a time, over all listeners")
	flags.StringVar(&f.proxyOutput, "proxy-output", outputFile, "where Envoy's own output and access logs to /dev/stdout go: file (envoy.log in the run directory) or stdout (also the standard output of this process, which logs to standard error)")
	complete(c, "proxy-output", outputFile, outputStdout)
	flags.DurationVar(&f.drainTime, "drain-time", 30*time.Second, "time that connections have to finish when Envoy is drained")
	flags.StringVar(&f.onStop, "on-stop", string(onStop), "what happens to Envoy and the load balancing in the kernel when this process ends: leave (both keep running, and the next agent takes them over) or drain (VIPs are withdrawn, connections finish, and both stop)")
	complete(c, "on-stop", string(proxy.Leave), string(proxy.Drain))
	roleVar(flags, &f.role, "role of this machine: edge (receives client traffic) or backend (only hosts backends: no Envoy and no VIPs, decapsulates tunneled packets); spec.role of the Machine must be the same")
	complete(c, "role", roleEdge, roleBackend)
	f.balancing.add(c)
}

func newAgent(logs *logFlags) *cobra.Command {
	flags := &agentFlags{}
	var tokenFile string
	c := &cobra.Command{
		Use:     "agent",
		Short:   "Run the agent on an edge, or on a machine with backends",
		GroupID: groupRun,
		Long: `Run the agent. It joins a plane with a one-time token, receives this machine's
configuration, runs Envoy, balances flows in the kernel, announces VIPs, and reports its
status. In a Kubernetes pod it joins with the token of the pod's service account instead,
and the machine has the name of its node.

The agent stores the last configuration that it applied and continues with it without a
plane, after a restart and after a reboot. When the agent stops, Envoy and the kernel keep
serving and the next agent takes them over, unless --on-stop=drain.`,
		Example: `  fairlead agent --plane 192.0.2.10:7443 --token-file edge-1.token --name edge-1
  fairlead agent --plane 192.0.2.10:7443,192.0.2.11:7443
  fairlead agent --plane 192.0.2.10:7443 --token-file edge-2.token --name edge-2 --envoy none
  fairlead agent --plane 192.0.2.10:7443 --token-file node-7.token --name node-7 --role backend
  fairlead agent --plane fairlead-plane.fairlead-system.svc:7443 --name node-1 \
    --service-account-token-file /var/run/fairlead/token --plane-authority-file /etc/fairlead/authority.pem`,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := logs.logger()
			if err != nil {
				return err
			}
			if err := flags.check(); err != nil {
				return err
			}
			if err := flags.makeDirs(); err != nil {
				return err
			}
			if err := flags.findEnvoy(log); err != nil {
				return err
			}
			if tokenFile != "" {
				flags.token = agent.TokenFile(tokenFile)
			}
			// gRPC logs with klog in a binary that holds the API server.
			embedded.LogTo(log)
			if err := forgetStart(); err != nil {
				log.Debug("cannot give back the memory of the start", "error", err)
			}
			defer finalMessage(c.Context(), c.ErrOrStderr(), flags.left(), endBy)()
			return runAgent(c.Context(), flags, log)
		},
	}
	flags.add(c, "", proxy.Leave)
	flags.addJoin(c, &tokenFile)
	return c
}

// addJoin adds the flags of an agent in a process of its own: whom it joins, and with what.
func (f *agentFlags) addJoin(c *cobra.Command, tokenFile *string) {
	c.Flags().StringSliceVar(&f.planes, "plane", nil, "host:port of each plane's agent endpoint")
	c.Flags().StringVar(tokenFile, "token-file", "", "file with the token from 'fairlead token create'; needed only to join")
	c.Flags().StringVar(&f.account.TokenFile, "service-account-token-file", "", "file with the token of this pod's service account; replaces --token-file")
	c.Flags().StringVar(&f.account.AuthorityFile, "plane-authority-file", "", "PEM file with the certificate authorities of the planes; needed with --service-account-token-file")
	c.Flags().StringVar(&f.sysctls, "net-sysctls", address.Sysctls, "writable directory of the kernel's network settings; in a container, a mount of the host's "+address.Sysctls)
	c.MarkFlagsRequiredTogether("service-account-token-file", "plane-authority-file")
	c.MarkFlagsMutuallyExclusive("service-account-token-file", "token-file")
	required(c, "plane")
}

// check refuses values that would be noticed only when everything else has started, and
// makes a path of Envoy's one that holds in every directory.
func (f *agentFlags) check() error {
	switch proxy.StopPolicy(f.onStop) {
	case proxy.Leave, proxy.Drain:
	default:
		return usageError{err: fmt.Errorf("--on-stop %q: want leave or drain", f.onStop)}
	}
	if f.proxyOutput != outputFile && f.proxyOutput != outputStdout {
		return usageError{err: fmt.Errorf("--proxy-output %q: want file or stdout", f.proxyOutput)}
	}
	if err := f.balancing.check(); err != nil {
		return err
	}
	if f.drainTime < 0 {
		return usageError{err: fmt.Errorf("--drain-time %s: want 0s or more, say 30s", f.drainTime)}
	}
	if f.role == roleEdge && f.envoy != noEnvoy {
		if _, _, err := proxy.FindUser(f.envoyUser); err != nil {
			return usageError{err: fmt.Errorf("--envoy-user: %w", err)}
		}
	}
	if f.envoyThreads < 0 {
		return usageError{err: fmt.Errorf("--envoy-threads %d: want 1 or more, or 0 for one a processor", f.envoyThreads)}
	}
	if f.envoyClients < 0 {
		return usageError{err: fmt.Errorf("--envoy-connections %d: want 1 or more, or 0 for 50000", f.envoyClients)}
	}
	if _, err := f.proxyMemory(); err != nil {
		return err
	}
	name, err := f.machineName()
	if err != nil {
		return err
	}
	if err := (southbound.Identity{Machine: name}).Validate(); err != nil {
		return usageError{err: fmt.Errorf("%w (--name gives this machine a name)", err)}
	}
	for _, p := range f.planes {
		if host, port, err := net.SplitHostPort(p); err != nil || host == "" || port == "" {
			return usageError{err: fmt.Errorf("--plane %q: want host:port, the agents' endpoint of a plane, say 192.0.2.10:%d", p, defaultAgentPort)}
		}
	}
	if strings.ContainsRune(f.envoy, os.PathSeparator) {
		path, err := filepath.Abs(f.envoy)
		if err != nil {
			return fmt.Errorf("--envoy %s: %w", f.envoy, err)
		}
		f.envoy = path
	}
	return nil
}

// makeDirs makes the agent's directories before anything else is started: nothing works without.
func (f *agentFlags) makeDirs() error {
	if err := makeDir("run", f.runDir, "run-dir"); err != nil {
		return err
	}
	return makeDir("agent's data", f.dataDir, f.prefix+"data-dir")
}

// noEnvoy in the place of Envoy's binary is an edge without a proxy.
const noEnvoy = "none"

// findEnvoy says why there would be no proxy on an edge that wants one. One that runs is
// adopted, whatever has become of its binary. An agent that remembers a state goes on without
// one: that state may be balanced without a proxy.
func (f *agentFlags) findEnvoy(log *slog.Logger) error {
	switch {
	case f.role != roleEdge:
		return nil
	case f.envoy == noEnvoy && proxy.Alive(f.runDir):
		return fmt.Errorf("--envoy none: an Envoy of an earlier agent still runs (run directory %s): start the agent once without --envoy none and with --on-stop drain, and stop it", f.runDir)
	case f.envoy == noEnvoy:
		return nil
	}
	err := proxy.Look(f.envoy, f.runDir)
	if err == nil {
		return nil
	}
	if agent.Remembers(f.dataDir) {
		log.Error("this machine continues without a proxy", "error", err)
		return nil
	}
	return fmt.Errorf("%w; an edge that only balances Services, TCPRoutes and UDPRoutes needs none: --envoy none", err)
}

// left is what an agent that ends without draining leaves, in words.
func (f *agentFlags) left() string {
	switch {
	case f.role == roleBackend:
		return "the kernel's programs stay as they are"
	case f.envoy == noEnvoy:
		return "VIPs and the kernel's programs stay as they are"
	}
	return "Envoy runs on if it has not ended yet, and VIPs and the kernel's programs stay as they are"
}

// makeDir makes a directory that a flag names, and sees that it can be written to.
func makeDir(what, path, flag string) error {
	err := os.MkdirAll(path, 0o700)
	if err == nil {
		if err = unix.Access(path, unix.W_OK); err != nil {
			err = &fs.PathError{Op: "write to", Path: path, Err: err}
		}
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("make the %s directory: %w (run as root, or choose another directory with --%s)", what, err, flag)
	case err != nil:
		return fmt.Errorf("make the %s directory: %w (--%s chooses another)", what, err, flag)
	}
	return nil
}

// machineName is the flag's, or the first label of the host name.
func (f *agentFlags) machineName() (string, error) {
	if f.name != "" {
		return f.name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find this machine's name (--name gives it): %w", err)
	}
	name, _, _ := strings.Cut(strings.ToLower(host), ".")
	return name, nil
}

// leastMemory is below what an Envoy without any configuration takes, twice.
const leastMemory = 64 << 20

// proxyMemory is the memory at which Envoy sheds load, bytes; 0 is no bound.
func (f *agentFlags) proxyMemory() (uint64, error) {
	if f.envoyMemory == "" {
		if have := proxy.AvailableMemory(); have > 0 {
			return max(leastMemory, have/4*3), nil
		}
		return 0, nil
	}
	q, err := resource.ParseQuantity(f.envoyMemory)
	if n := q.Value(); err == nil && n < leastMemory {
		err = errors.New("that is less than an idle Envoy needs")
	}
	if err != nil {
		return 0, usageError{err: fmt.Errorf("--envoy-memory %q: %w: want an amount of 64Mi or more, such as 4Gi", f.envoyMemory, err)}
	}
	return uint64(q.Value()), nil
}

// runAgent runs until ctx ends or the agent cannot go on.
func runAgent(ctx context.Context, f *agentFlags, log *slog.Logger) error {
	name, err := f.machineName()
	if err != nil {
		return err
	}
	listener, err := listenConsole(f.consoleAddress, "agent", f.prefix, log)
	if err != nil {
		return err
	}
	defer listener.Close()
	own, err := rtdump.NewAddresses()
	if err != nil {
		return err
	}
	leave := proxy.StopPolicy(f.onStop) == proxy.Leave
	metrics := newRegistry()
	var account *agent.Account
	if f.account != (agent.Account{}) {
		account = &f.account
	}
	config := agent.Config{
		Name:        name,
		Planes:      f.planes,
		Token:       f.token,
		Account:     account,
		Role:        f.role,
		DataDir:     f.dataDir,
		RunDir:      f.runDir,
		Addresses:   own.Reachable,
		Proxy:       agent.NoProxy{},
		DrainOnStop: !leave,
		Version:     version.String(),
		Log:         log,
		Now:         time.Now,
		Rand:        rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		Registerer:  metrics,
	}
	sysctls := cmp.Or(f.sysctls, address.Sysctls)
	end := func(bool) error { return nil }
	if f.role == roleEdge {
		if f.envoy == noEnvoy {
			config.Proxy = agent.NoProxy{Edge: true}
		} else {
			envoy, err := newProxy(name, f, log)
			if err != nil {
				return err
			}
			config.Proxy, config.Drainer, config.ProxyDrain = envoy, envoy, f.drainTime
		}
		var holder *address.Holder
		if config.Network, holder, err = newNetwork(name, f.runDir, sysctls, leave, own, log); err != nil {
			return err
		}
		end = holder.Close
	}
	config.Checking = newChecking(log)
	f.balancing.sysctls, f.balancing.runDir, f.balancing.addresses = sysctls, f.runDir, own.Reachable
	balancing, endBalancing := newBalancing(&f.balancing, log)
	config.Balancing = balancing
	config.Balancing.Connections = connections
	a, err := agent.New(config)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		cause := a.Run(ctx)
		err := ended(cause, endBalancing(a.KernelStays()), end(leave))
		if err == nil && leave {
			log.Info("the agent ended without draining: the next agent takes over what still runs", "left", f.left())
		}
		return err
	})
	group.Go(func() error { return serveDrops(ctx, f.runDir, balancing, log) })
	group.Go(func() error {
		return console.Serve(ctx, listener, console.Config{
			Health: a, Metrics: metrics, Log: log, Status: func(context.Context) any { return a.Status() },
		})
	})
	err = group.Wait()
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (run as root, or choose other directories with --%sdata-dir and --run-dir)", err, f.prefix)
	default:
		return err
	}
}

// newProxy makes the supervisor of Envoy.
func newProxy(name string, f *agentFlags, log *slog.Logger) (*proxy.Supervisor, error) {
	memory, err := f.proxyMemory()
	if err != nil {
		return nil, err
	}
	user, why, err := proxy.FindUser(f.envoyUser)
	if err != nil {
		return nil, fmt.Errorf("--envoy-user: %w", err)
	}
	if why != "" {
		log.Warn("Envoy runs as root, like the agent, and can read its keys: remove the cause, or accept it with --envoy-user same", "reason", why)
	}
	output, err := openOutput(f.proxyOutput)
	if err != nil {
		return nil, err
	}
	return proxy.New(proxy.Config{
		Output:      output,
		Binary:      f.envoy,
		RunDir:      f.runDir,
		ADSSocket:   agent.SocketPath(f.runDir),
		NodeID:      name,
		User:        user,
		Concurrency: f.envoyThreads,
		Bootstrap:   xds.BootstrapOptions{MaxConnections: f.envoyClients, HeapBytes: memory},
		DrainTime:   f.drainTime,
		OnStop:      proxy.StopPolicy(f.onStop),
		Log:         log,
		Now:         time.Now,
	})
}

// The values of --proxy-output.
const (
	outputFile   = "file"
	outputStdout = "stdout"
)

// openOutput opens what takes the proxy's lines; nil is the file alone. It is another descriptor of the standard
// output: a Go program ends by SIGPIPE when nobody reads its first one any more, and traffic is worth more than lines.
func openOutput(kind string) (io.Writer, error) {
	if kind != outputStdout {
		return nil, nil
	}
	fd, err := unix.FcntlInt(os.Stdout.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("--proxy-output stdout: %w", err)
	}
	return os.NewFile(uintptr(fd), os.Stdout.Name()), nil
}

// connections counts those that the machine's sockets have at frontends of TCP.
func connections(keys ...model.FrontendKey) (map[model.FrontendKey]int, error) {
	at := make([]netip.AddrPort, len(keys))
	for i, k := range keys {
		at[i] = netip.AddrPortFrom(k.VIP, k.Port)
	}
	found, err := address.Connections(at...)
	if err != nil {
		return nil, err
	}
	counts := make(map[model.FrontendKey]int, len(keys))
	for i, k := range keys {
		counts[k] = found[at[i]]
	}
	return counts, nil
}

// newChecking makes the checker of backends at this machine.
func newChecking(log *slog.Logger) agent.Checking {
	c := agent.Checking{Changed: make(chan struct{}, 1)}
	c.Checker = health.New(health.Config{Log: log.With("component", "health"), Changed: func() {
		select {
		case c.Changed <- struct{}{}:
		default:
		}
	}})
	return c
}

// newNetwork makes the drivers of what the machine does in the network. When the agent
// leaves, VIPs and their addresses stay for the next one; otherwise they are given up.
func newNetwork(machine, runDir, sysctls string, leave bool, own *rtdump.Addresses, log *slog.Logger) (agent.Network, *address.Holder, error) {
	holder, err := address.NewAt(sysctls, log)
	if err != nil {
		return agent.Network{}, nil, err
	}
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	speaker := bgp.New(bgp.Config{Log: log.With("component", "bgp"), Now: time.Now, Changed: tell, StateDir: runDir, Addresses: own.List})
	speaker.StopPolicy(leave)
	speaker.Resume() // now: the routers of an agent that was killed wait for less than a second
	segment := l2.New(l2.Config{
		Machine: machine, Hold: holder.Hold, Release: holder.Release, Log: log.With("component", "l2"),
		Now: time.Now, Changed: tell, Leave: func() bool { return leave },
	})
	return agent.Network{Speaker: speaker, Segment: segment, Loopback: holder, Changed: changed}, holder, nil
}

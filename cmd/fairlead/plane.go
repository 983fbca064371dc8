package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/deploy/crd"
	"fairlead.dev/internal/console"
	"fairlead.dev/internal/embedded"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane"
	"fairlead.dev/internal/rtdump"
	"fairlead.dev/internal/source/cloud"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/xds"
)

// stopGrace is how long the embedded API may take to stop.
const stopGrace = 20 * time.Second

// planeFlags are the flags that `plane` and `up` share.
type planeFlags struct {
	dataDir          string
	bindAddress      string
	advertiseAddress string
	apiPort          uint16
	agentPort        uint16
	consoleAddress   string
	readAddress      string
	readURL          string

	kubeconfig     string
	inCluster      bool
	installCRDs    bool
	channel        string
	agents         string
	ownSecrets     bool
	ocspStapling   bool
	traceCollector string
	etcdServers    []string
	etcdCAFile     string
	etcdCertFile   string
	etcdKeyFile    string

	ingressRoutePort    uint16
	ingressRouteTLSPort uint16
	rootNamespaces      []string
	ingressClass        string
	noClearText         bool
	affinityCookie      string
	minTLS              string
	refusedEndpoints    prefixes
	machineAddresses    machineAddresses
	machineTTL          time.Duration
	upstreamAllow       []string
	accessLog           string
}

func (f *planeFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.dataDir, "data-dir", defaultPlaneDir, "directory for the data and keys of the embedded API")
	flags.StringVar(&f.bindAddress, "bind-address", "::", "listen address of the API and the agents' endpoint (:: is every address, IPv4 too)")
	flags.StringVar(&f.advertiseAddress, "advertise-address", "", "address at which other machines reach this one (default: the source address of the default route)")
	flags.Uint16Var(&f.apiPort, "api-port", defaultAPIPort, "port of the embedded API")
	flags.Uint16Var(&f.agentPort, "agent-port", defaultAgentPort, "port of the agents' endpoint")
	flags.StringVar(&f.consoleAddress, "console-address", defaultPlaneConsole, "address at which the plane serves health and metrics, without authentication, and status to callers on this machine")
	flags.StringVar(&f.readAddress, "read-address", defaultReadAddress, "address at which the plane serves the read API, with TLS and the users of the Kubernetes API; empty: it does not")
	flags.StringVar(&f.readURL, "read-url", "", "URL at which others find the read API, say that of a Service; the leader publishes it (default: its own address)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "use the Kubernetes API of this kubeconfig instead of the embedded one")
	flags.BoolVar(&f.inCluster, "in-cluster", false, "use the Kubernetes API of the cluster that this process runs in as a pod")
	flags.BoolVar(&f.installCRDs, "install-crds", true, "install the CRDs of Fairlead and of the Gateway API, and upgrade older ones")
	flags.StringVar(&f.channel, "gateway-api-channel", "", "channel of the Gateway API CRDs to install: standard or experimental (default: experimental in the embedded API, standard in others)")
	flags.StringVar(&f.agents, "agent-service-account", "", "NAMESPACE/NAME of a service account whose pods may join, each as a machine with the name of its node")
	flags.BoolVar(&f.ownSecrets, "own-secrets", false, "read Secrets only in fairlead-system; certificates must be there, and be delegated to their users")
	flags.BoolVar(&f.ocspStapling, "ocsp-stapling", false, "query the OCSP responders of certificates, and staple their answers")
	flags.StringSliceVar(&f.etcdServers, "etcd-servers", nil, "URLs of an etcd cluster to use instead of the embedded etcd")
	flags.StringVar(&f.etcdCAFile, "etcd-cafile", "", "CA of the etcd servers' certificates")
	flags.StringVar(&f.etcdCertFile, "etcd-certfile", "", "client certificate for the etcd servers")
	flags.StringVar(&f.etcdKeyFile, "etcd-keyfile", "", "key of the client certificate")
	flags.Uint16Var(&f.ingressRoutePort, "ingressroute-port", 80, "port at which root IngressRoutes are served")
	flags.Uint16Var(&f.ingressRouteTLSPort, "ingressroute-tls-port", 443, "port at which root IngressRoutes with TLS are served")
	flags.StringSliceVar(&f.rootNamespaces, "root-namespaces", nil, "namespaces in which root IngressRoutes are allowed (default: all)")
	ingressClassVar(flags, &f.ingressClass, "")
	flags.StringVar(&f.affinityCookie, "affinity-cookie", "", affinityCookieHelp)
	flags.StringVar(&f.minTLS, "minimum-tls-version", "", minTLSHelp)
	flags.BoolVar(&f.noClearText, "disable-permit-insecure", false, disablePermitInsecureHelp)
	flags.Var(&f.refusedEndpoints, "refuse-endpoints", refuseEndpointsHelp)
	flags.Var(&f.machineAddresses, "machine-addresses", "networks whose addresses machines of a role may report without having connected from them: Edge=10.0.0.0/24,Backend=10.1.0.0/16")
	flags.DurationVar(&f.machineTTL, "machine-ttl", 10*time.Second, "time without a report after which a machine is lost")
	flags.StringSliceVar(&f.upstreamAllow, "upstream-allow", nil, "accept credentials of Upstreams that reach beyond their Secret: exec (programs), files (paths), proxies, insecure (certificates that are not verified), plain-http, loopback (addresses of this machine and its link)")
	flags.StringVar(&f.traceCollector, "trace-collector", "", "URL of a collector of OpenTelemetry (gRPC) that is sent a trace of each change, from the API to the proxies: http://HOST:PORT, or https://HOST:PORT for TLS")
	flags.StringVar(&f.accessLog, "access-log", "", "access log file on each machine, with a JSON line per request, such as /dev/stdout; a ClientPolicy can override it")
	c.MarkFlagsMutuallyExclusive("kubeconfig", "in-cluster", "etcd-servers")
}

func newPlane(logs *logFlags) *cobra.Command {
	flags := &planeFlags{}
	c := &cobra.Command{
		Use:     "plane",
		Short:   "Run the plane: the API, the translation, the agents' endpoint",
		GroupID: groupRun,
		Long: `Run the plane: the Kubernetes API, the translation of its resources into the configuration of
machines, and the endpoint that agents connect to. By default the API is embedded;
--kubeconfig names another, and a pod uses the API of its cluster with --in-cluster.

The kubeconfig of the embedded API is DATA-DIR/admin.kubeconfig.

For high availability give several planes the same --kubeconfig or --etcd-servers: one
leads, the others stand by.`,
		Example: `  fairlead plane --advertise-address 192.0.2.10
  fairlead plane --kubeconfig /etc/fairlead/cluster.kubeconfig --advertise-address 192.0.2.10
  fairlead plane --in-cluster --agent-service-account fairlead-edge/fairlead-agent
  fairlead plane --etcd-servers https://192.0.2.21:2379,https://192.0.2.22:2379 ...`,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := logs.logger()
			if err != nil {
				return err
			}
			return runPlane(c.Context(), flags, log, nil)
		},
	}
	flags.add(c)
	return c
}

// check refuses values that would be noticed only when everything else has started, or
// never.
func (f *planeFlags) check() error {
	switch {
	case f.machineTTL <= 0:
		return usageError{err: fmt.Errorf("--machine-ttl %s: want more than 0s, say 10s", f.machineTTL)}
	case !f.outside() && f.apiPort == f.agentPort && f.apiPort != 0:
		return usageError{err: fmt.Errorf("--api-port and --agent-port are both %d; choose another for one of them", f.apiPort)}
	case f.ingressRoutePort == f.ingressRouteTLSPort:
		return usageError{err: fmt.Errorf("--ingressroute-port and --ingressroute-tls-port are both %d; choose another for one of them", f.ingressRoutePort)}
	case len(f.etcdServers) == 0 && f.etcdCAFile+f.etcdCertFile+f.etcdKeyFile != "":
		return usageError{err: errors.New("--etcd-cafile, --etcd-certfile and --etcd-keyfile need an etcd cluster: name it with --etcd-servers")}
	}
	if c := crd.Channel(f.channel); c != "" && c != crd.Standard && c != crd.Experimental {
		return usageError{err: fmt.Errorf("--gateway-api-channel %q: want standard or experimental", f.channel)}
	}
	if _, err := f.agentAccount(); err != nil {
		return usageError{err: err}
	}
	if _, err := cloud.ParseAllow(f.upstreamAllow); err != nil {
		return usageError{err: fmt.Errorf("%s: %w", cloud.AllowFlag, err)}
	}
	if err := checkHosts(f.affinityCookie, f.minTLS); err != nil {
		return err
	}
	if _, err := f.bind(); err != nil {
		return err
	}
	if u, err := url.Parse(f.readURL); f.readURL != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		return usageError{err: fmt.Errorf("--read-url %q: want https://HOST:PORT", f.readURL)}
	}
	for _, own := range f.ownPorts() {
		for _, served := range []ownPort{{"--ingressroute-port", f.ingressRoutePort}, {"--ingressroute-tls-port", f.ingressRouteTLSPort}} {
			if own.port == served.port {
				return usageError{err: fmt.Errorf("%s and %s are both %d; choose another for one of them", own.by, served.by, own.port)}
			}
		}
	}
	return nil
}

// bind is the address to listen at.
func (f *planeFlags) bind() (netip.Addr, error) {
	bind, err := netip.ParseAddr(f.bindAddress)
	if err != nil {
		return bind, usageError{err: fmt.Errorf("--bind-address %q: want an IP address", f.bindAddress)}
	}
	return bind, nil
}

// agentAccount is whose pods may join; the zero value is nobody's.
func (f *planeFlags) agentAccount() (plane.ServiceAccount, error) {
	if f.agents == "" {
		return plane.ServiceAccount{}, nil
	}
	account, err := plane.ParseServiceAccount(f.agents)
	if err != nil {
		return account, fmt.Errorf("--agent-service-account %w", err)
	}
	return account, nil
}

// companion runs beside a plane that has started.
type companion struct {
	// await returns when it is time to run; it ends with the plane. ready says whether
	// that serves agents.
	await func(ctx context.Context, ready func(context.Context) error) error
	// run goes on when the plane fails.
	run func(ctx context.Context, api embedded.API, advertise netip.Addr) error
}

// runPlane runs until ctx ends, the API dies, or a part fails.
func runPlane(ctx context.Context, f *planeFlags, log *slog.Logger, beside *companion) error {
	if err := f.check(); err != nil {
		return err
	}
	bind, err := f.bind()
	if err != nil {
		return err
	}
	advertise, err := f.advertised(log)
	if err != nil {
		return err
	}
	listener, err := listenConsole(f.consoleAddress, "plane", "", log)
	if err != nil {
		return err
	}
	defer listener.Close()
	reads, err := listenRead(ctx, f.readAddress)
	if err != nil {
		return err
	}
	readAt := ""
	if reads != nil {
		defer reads.Close()
		readAt = consoleAt(reads.Addr(), advertise)
	}
	if err := f.free(ctx, bind); err != nil {
		return err
	}
	// The console answers from the beginning: while the rest starts, it says so.
	shown, metrics := &served{}, newRegistry()
	reading, err := console.NewMeter(metrics)
	if err != nil {
		return err
	}
	user := ctx
	group, ctx := errgroup.WithContext(user)
	shows := console.Config{
		Health: shown, Metrics: metrics, Bounds: console.NewBounds(), Meter: reading, User: readerOf, Log: log, Status: func(ctx context.Context) any { return shown.status(ctx) },
		Standby: shown.standby, Relay: shown.relay, Loopback: true,
		Explain: shown.explain, ExplainFlow: shown.explainFlow, Revisions: shown.revisions, Changes: shown.changes, ChangedKind: plane.ChangedKind, Upstreams: shown.upstreams, Backends: shown.backends, Flows: shown.flows,
		Routes: &console.RouteList{Rows: shown.routes, Figures: shown.routeFigures}, Watches: shown.watches(),
		Top: shown.top, AwaitTop: shown.awaitTop, Tap: shown.tap, TapFlows: shown.tapFlows, RequestMetrics: shown.requestMetrics,
	}
	group.Go(func() error { return console.Serve(ctx, listener, shows) })
	if reads != nil {
		group.Go(func() error { return serveRead(ctx, reads, shown, shows) })
	}
	group.Go(func() error {
		return f.serve(ctx, bind, advertise, consoleAt(listener.Addr(), advertise), readAt, shown, metrics, log, func(ctx context.Context, api embedded.API) error {
			if beside == nil {
				return nil
			}
			if err := beside.await(ctx, shown.Readyz); err != nil {
				return err
			}
			return outlive(user, ctx, log, func(ctx context.Context) error { return beside.run(ctx, api, advertise) })
		})
	})
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// free says whether the agents' port can be had, before the rest starts, which takes long.
func (f *planeFlags) free(ctx context.Context, bind netip.Addr) error {
	l, err := plane.Listen(ctx, f.agentAddress(bind))
	if err != nil {
		return err
	}
	return l.Close()
}

func (f *planeFlags) agentAddress(bind netip.Addr) string {
	return net.JoinHostPort(bind.String(), strconv.Itoa(int(f.agentPort)))
}

// apiAddress is where the API of this process listens; not valid where it is another's.
func (f *planeFlags) apiAddress(bind netip.Addr) netip.AddrPort {
	if f.outside() || f.apiPort == 0 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(bind, f.apiPort)
}

// outlive runs an agent until the user ends it. When the plane beside it fails, ctx
// ends and it returns at once, with the agent as it is: the process is about to end, as
// if it had been killed, and Envoy serves on until the next start takes it over.
func outlive(user, ctx context.Context, log *slog.Logger, run func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- run(user) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	if user.Err() != nil {
		return <-done
	}
	log.Warn("traffic continues: Envoy is left running, and the next start takes it over")
	return nil
}

// serve runs the API, the plane on it, and what runs beside. The API ends last.
func (f *planeFlags) serve(ctx context.Context, bind, advertise netip.Addr, consoleAddress, readAddress string, shown *served, metrics *prometheus.Registry, log *slog.Logger, beside func(context.Context, embedded.API) error) (err error) {
	go giveBack(ctx)
	api, err := f.startAPI(ctx, bind, advertise, log)
	if err != nil {
		return err
	}
	defer func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		if stopErr := api.Stop(grace); stopErr != nil {
			err = ended(err, fmt.Errorf("stop the API: %w", stopErr))
		}
	}()
	if f.installCRDs {
		install := embedded.InstallOwnCRDs
		if f.outside() {
			install = embedded.InstallCRDs
		}
		if err := install(ctx, api.RESTConfig(), log, crd.All(f.gatewayChannel())...); err != nil {
			return err
		}
	}
	if !f.outside() {
		if err := embedded.InstallRoles(ctx, api.RESTConfig()); err != nil {
			return err
		}
	}
	judge, err := newJudge(api.RESTConfig(), metrics)
	if err != nil {
		return err
	}
	agents, err := f.agentAccount()
	if err != nil {
		return err
	}
	allow, err := cloud.ParseAllow(f.upstreamAllow)
	if err != nil {
		return err
	}
	own, err := rtdump.NewAddresses()
	if err != nil {
		return err
	}
	p, err := plane.New(plane.Config{
		REST:             api.RESTConfig(),
		Identity:         f.identity(),
		Stamped:          !f.outside(),
		Lease:            f.lease(),
		AgentAddress:     f.agentAddress(bind),
		AdvertiseAddress: net.JoinHostPort(advertise.String(), strconv.Itoa(int(f.agentPort))),
		API:              f.apiAddress(bind),
		Addresses:        own.Reachable,
		ConsoleAddress:   consoleAddress,
		ReadAddress:      readAddress,
		ReadURL:          f.readURL,
		Log:              log,
		Now:              time.Now,
		TTL:              f.machineTTL,
		MachineAddresses: f.machineAddresses,
		UpstreamAllow:    allow,
		Agents:           agents,
		OwnSecrets:       f.ownSecrets,
		OCSPStapling:     f.ocspStapling,
		Translate: translate.Config{
			RootNamespaces: f.rootNamespaces, IngressClass: f.ingressClass, AffinityCookie: f.affinityCookie, DisablePermitInsecure: f.noClearText, MinTLS: model.TLSVersion(f.minTLS), ReservedPorts: f.reservedPorts(), RefusedEndpoints: f.refusedEndpoints,
			IngressRoutePort: f.ingressRoutePort, IngressRouteTLSPort: f.ingressRouteTLSPort,
		},
		XDS:           xds.Options{AccessLog: f.accessLog, MinTLS: model.TLSVersion(f.minTLS)},
		HistoryFile:   f.keptIn("revisions"),
		ChangesFile:   f.keptIn("changes"),
		Collector:     f.traceCollector,
		AuthorityFile: f.authorityFile(),
		MayWrite:      api.Healthy,
		Registerer:    metrics,
	})
	if err != nil {
		return err
	}
	shown.show(p, api, judge)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.Run(ctx) })
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-api.Done():
			return fmt.Errorf("the API ended: %w", api.Err())
		}
	})
	group.Go(func() error { return beside(ctx, api) })
	return group.Wait()
}

// consoleAt is where others are told that the console is: a listener at every address is
// reached at the machine's.
func consoleAt(listens net.Addr, advertise netip.Addr) string {
	at, err := netip.ParseAddrPort(listens.String())
	if err != nil || !at.Addr().IsUnspecified() {
		return listens.String()
	}
	return netip.AddrPortFrom(advertise, at.Port()).String()
}

// outside reports whether the API is one that exists.
func (f *planeFlags) outside() bool { return f.kubeconfig != "" || f.inCluster }

// lease is how leadership is kept: where the API is this plane's own, no other one waits for it. The
// zero value is what planes that share one do.
func (f *planeFlags) lease() (t plane.LeaseTimes) {
	if f.outside() || len(f.etcdServers) > 0 {
		return t
	}
	return plane.LeaseOfOne
}

// keptIn is the file in which something outlives a plane with a database of its own; planes that
// share one keep it there.
func (f *planeFlags) keptIn(name string) string {
	if f.outside() || len(f.etcdServers) > 0 {
		return ""
	}
	return filepath.Join(f.dataDir, name)
}

// authorityFile is where a restore leaves agents' authorities for a plane with a database of its own.
func (f *planeFlags) authorityFile() string {
	if f.outside() || len(f.etcdServers) > 0 {
		return ""
	}
	return filepath.Join(f.dataDir, restoredAuthority)
}

// gatewayChannel is the channel of the Gateway API's definitions to install.
func (f *planeFlags) gatewayChannel() crd.Channel {
	switch {
	case f.channel != "":
		return crd.Channel(f.channel)
	case f.outside():
		return crd.Standard
	}
	return crd.Experimental
}

func (f *planeFlags) startAPI(ctx context.Context, bind, advertise netip.Addr, log *slog.Logger) (embedded.API, error) {
	if os.Getenv("GOGC") == "" {
		// A plane, and an API server still more, allocates much and keeps little.
		debug.SetGCPercent(50)
	}
	if f.outside() {
		embedded.LogTo(log)
		return embedded.Outside(ctx, f.kubeconfig)
	}
	return embedded.Start(ctx, embedded.Config{
		DataDir:          f.dataDir,
		BindAddress:      bind,
		AdvertiseAddress: advertise,
		Port:             f.apiPort,
		EtcdServers:      f.etcdServers,
		EtcdCAFile:       f.etcdCAFile,
		EtcdCertFile:     f.etcdCertFile,
		EtcdKeyFile:      f.etcdKeyFile,
		Stamp: &embedded.Stamp{
			Annotation: v1alpha1.AnnotationChangedBy, Namespace: plane.Namespace,
			Groups: []string{v1alpha1.GroupVersion.Group, gatewayv1.GroupName, contourv1beta1.GroupVersion.Group},
		},
		Log: log,
	})
}

// identity names this plane in the election. One with an API of its own is the
// only one, and leads again at once after a restart; those that share an API are
// told apart by their processes.
func (f *planeFlags) identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "plane"
	}
	if f.kubeconfig == "" && !f.inCluster && len(f.etcdServers) == 0 {
		return host
	}
	return fmt.Sprintf("%s-%d-%x", host, os.Getpid(), time.Now().UnixNano()&0xffffff)
}

// ownPort is a port at which something of ours listens, and the setting that chooses it, mostly a flag.
type ownPort struct {
	by   string
	port uint16
}

// ownPorts are those of ours on machines. A listener that took one while its owner
// restarts would keep that owner, plane or agent, from coming back.
func (f *planeFlags) ownPorts() []ownPort {
	ports := []ownPort{{"--agent-port", f.agentPort}}
	if !f.outside() {
		ports = append(ports, ownPort{"--api-port", f.apiPort})
	}
	for _, c := range []struct{ by, address string }{{"--console-address", f.consoleAddress}, {"--read-address", f.readAddress}, {"the agents' console", defaultAgentConsole}} {
		if _, text, err := net.SplitHostPort(c.address); err == nil {
			if port, err := strconv.ParseUint(text, 10, 16); err == nil {
				ports = append(ports, ownPort{c.by, uint16(port)})
			}
		}
	}
	return slices.DeleteFunc(ports, func(c ownPort) bool { return c.port == 0 })
}

// reservedPorts are those that no listener may have.
func (f *planeFlags) reservedPorts() []uint16 {
	var ports []uint16
	for _, c := range f.ownPorts() {
		ports = append(ports, c.port)
	}
	return ports
}

// newRegistry is a metrics registry with the process's own figures in it.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
)

const (
	// storagePrefix keeps our keys apart from those of a Kubernetes cluster in the same etcd.
	storagePrefix  = "/fairlead"
	tokenIssuer    = "https://kubernetes.default.svc"
	readyInterval  = 50 * time.Millisecond
	etcdProbeLimit = 5 * time.Second
	watchGrace     = 2 * time.Second // for the watches that a stop has told to end
)

// listen takes the API's port, or says who could take another.
func listen(ctx context.Context, c Config) (net.Listener, error) {
	addr := netip.AddrPortFrom(c.BindAddress, c.Port).String()
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("the API's port %d on %s is in use: stop what listens there, or choose another port with --api-port: %w", c.Port, c.BindAddress, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is not an address of this machine: choose another to bind the API to: %w", c.BindAddress, err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("the API may not listen on port %d: choose one above 1023 with --api-port, or run as root: %w", c.Port, err)
	case err != nil:
		return nil, fmt.Errorf("listen for the API on %s: %w", addr, err)
	}
	return ln, nil
}

// apiServerFlags is kube-apiserver's command line for c.
func apiServerFlags(c Config, p *pki, etcdServers []string) []string {
	flags := []string{
		"--etcd-servers=" + strings.Join(etcdServers, ","),
		"--etcd-prefix=" + storagePrefix,
		"--bind-address=" + c.BindAddress.String(),
		"--advertise-address=" + c.AdvertiseAddress.String(),
		"--tls-cert-file=" + p.path(leafAPIServer+".pem"),
		"--tls-private-key-file=" + p.path(leafAPIServer+".pem"),
		"--client-ca-file=" + p.path(clusterCA+".crt"),
		"--requestheader-client-ca-file=" + p.path(frontProxyCA+".crt"),
		"--requestheader-allowed-names=" + leafFrontProxy,
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + p.path(leafFrontProxy+".pem"),
		"--proxy-client-key-file=" + p.path(leafFrontProxy+".pem"),
		"--service-account-issuer=" + tokenIssuer,
		"--service-account-key-file=" + p.path(serviceAccountCA+".key"),
		"--service-account-signing-key-file=" + p.path(serviceAccountCA+".key"),
		"--service-cluster-ip-range=" + c.serviceRangesFlag(),
		"--authorization-mode=RBAC",
		"--anonymous-auth=false",
		"--profiling=false",
		// Teams share this API: nobody may block the deletion of what he may not touch.
		"--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
		// These look after pods, nodes and volumes, and nothing runs pods here.
		"--disable-admission-plugins=StorageObjectInUseProtection,DefaultStorageClass,PersistentVolumeClaimResize," +
			"RuntimeClass,TaintNodesByCondition,DefaultTolerationSeconds",
		// The cache keeps each object of the last 100,000 changes as a tree of maps, a kilobyte of YAML
		// as ten of memory. Few watch this API, and etcd is in this process.
		"--watch-cache=false",
		// Nobody looks up the "kubernetes" Service from inside, so its endpoints are not kept.
		"--endpoint-reconciler-type=none",
		// Without it an open watch holds up the end until a minute has passed.
		"--shutdown-watch-termination-grace-period=" + watchGrace.String(),
	}
	flags = append(flags, c.auditFlags()...)
	if c.EtcdCAFile != "" {
		flags = append(flags, "--etcd-cafile="+c.EtcdCAFile)
	}
	if c.EtcdCertFile != "" {
		flags = append(flags, "--etcd-certfile="+c.EtcdCertFile, "--etcd-keyfile="+c.EtcdKeyFile)
	}
	return flags
}

// apiServerOptions turns flags into kube-apiserver's completed options, serving on ln.
func apiServerOptions(ctx context.Context, flags []string, stamp *Stamp, ln net.Listener) (options.CompletedOptions, error) {
	var none options.CompletedOptions
	o := options.NewServerRunOptions()
	fs := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	sets := o.Flags()
	for _, set := range sets.FlagSets {
		fs.AddFlagSet(set)
	}
	if err := fs.Parse(flags); err != nil {
		return none, fmt.Errorf("configure kube-apiserver: %w", err)
	}
	o.SecureServing.Listener = ln
	if stamp != nil {
		stamp.add(o)
	}
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return none, fmt.Errorf("configure kube-apiserver: %w", err)
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return none, fmt.Errorf("configure kube-apiserver: %w", err)
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return none, fmt.Errorf("configure kube-apiserver: %w", utilerrors.NewAggregate(errs))
	}
	return completed, nil
}

// runAPIServer serves until ctx ends and returns why it stopped earlier, or nil.
func runAPIServer(ctx context.Context, o options.CompletedOptions) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("kube-apiserver panicked: %v", r)
		}
	}()
	err = app.Run(ctx, o)
	switch {
	case ctx.Err() != nil:
		return nil
	case err == nil:
		return errors.New("kube-apiserver stopped by itself")
	default:
		return fmt.Errorf("kube-apiserver: %w", err)
	}
}

// awaitReady returns once /readyz says ok, or with what it said last.
func awaitReady(ctx context.Context, probe *probe) error {
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	for {
		err := probe.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API did not become ready: %w", err)
		case <-tick.C:
		}
	}
}

// probeEtcd makes sure that an outside etcd answers before kube-apiserver waits for it in silence.
func probeEtcd(ctx context.Context, c Config) error {
	cfg := clientv3.Config{Endpoints: c.EtcdServers, DialTimeout: etcdProbeLimit, Logger: zap.NewNop()}
	if c.EtcdCAFile != "" || c.EtcdCertFile != "" {
		info := transport.TLSInfo{TrustedCAFile: c.EtcdCAFile, CertFile: c.EtcdCertFile, KeyFile: c.EtcdKeyFile}
		tls, err := info.ClientConfig()
		if err != nil {
			return fmt.Errorf("read the etcd client certificate: %w", err)
		}
		cfg.TLS = tls
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return fmt.Errorf("connect to etcd at %s: %w", strings.Join(c.EtcdServers, ", "), err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, etcdProbeLimit)
	defer cancel()
	if _, err := client.Get(ctx, storagePrefix, clientv3.WithCountOnly()); err != nil {
		return fmt.Errorf("etcd at %s does not answer: check --etcd-servers, its certificates and that a majority of its members runs: %w",
			strings.Join(c.EtcdServers, ", "), err)
	}
	return nil
}

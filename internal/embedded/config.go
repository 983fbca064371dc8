package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/transport"
)

const (
	mebibyte = 1 << 20

	// What a machine that does ten times its work takes stays far below it: who begins anew on a
	// busy machine only makes it busier.
	defaultStartTimeout = 3 * time.Minute
	defaultEtcdQuota    = 4 << 30
	// etcd writes ahead into segments of 64 MiB and grows its database by 16 MiB at a time;
	// both must fit into what is left when writes are stopped.
	defaultDiskReserve = 128 * mebibyte

	// A unix socket's path is limited by sockaddr_un.sun_path (108 bytes with the final zero).
	maxSocketPath = 107
)

// Config says what Start runs. Only DataDir and Log are required.
type Config struct {
	// DataDir is created if it is missing and made private to this user.
	DataDir string
	// BindAddress is where the API listens. The zero value is 127.0.0.1.
	BindAddress netip.Addr
	// AdvertiseAddress is where others reach the API; it goes into the serving certificate and
	// into the kubeconfig's second context. The zero value is BindAddress, or the loopback
	// address of its family if BindAddress is unspecified.
	AdvertiseAddress netip.Addr
	// Port is the API's port. Zero takes a free one, which RESTConfig and the kubeconfig name.
	Port uint16

	// EtcdServers are the client URLs of an outside etcd cluster. If there are any, no etcd
	// runs in this process and the files below, if set, authenticate to that cluster.
	EtcdServers  []string
	EtcdCAFile   string
	EtcdCertFile string
	EtcdKeyFile  string
	// EtcdQuota is the size in bytes at which the database in this process refuses writes.
	// Zero means 4 GiB.
	EtcdQuota int64
	// DiskReserve is the free space in bytes below which writes are refused, so that etcd never
	// meets a full disk. Zero means 128 MiB.
	DiskReserve uint64

	// ServiceRanges are the ranges that Services take their cluster IPs from: one, or one of each
	// family. They are bookkeeping only, nothing forwards these addresses. The family of the
	// first is that of Services that name none. Empty means 10.96.0.0/12 and fd00:fa17::/108.
	ServiceRanges []netip.Prefix

	// StartTimeout bounds Start beside its context. Zero means three minutes.
	StartTimeout time.Duration

	// Stamp has the API say who changed an object last. Nil: it does not.
	Stamp *Stamp

	// Log receives what happens. Required.
	Log *slog.Logger
	// Now is the clock for certificates. Nil means time.Now.
	Now func() time.Time

	// wrapControllers, if set, sees every request of the controllers.
	wrapControllers transport.WrapperFunc
}

// complete fills in defaults and refuses what cannot work.
func (c Config) complete() (Config, error) {
	if c.Log == nil {
		return c, errors.New("config: Log is required")
	}
	if c.DataDir == "" {
		return c, errors.New("config: DataDir is required")
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c, fmt.Errorf("resolve data directory %s: %w", c.DataDir, err)
	}
	c.DataDir = dir
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = defaultStartTimeout
	}
	if c.EtcdQuota == 0 {
		c.EtcdQuota = defaultEtcdQuota
	}
	if c.DiskReserve == 0 {
		c.DiskReserve = defaultDiskReserve
	}
	if !c.BindAddress.IsValid() {
		c.BindAddress = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	c.BindAddress = c.BindAddress.Unmap()
	if !c.AdvertiseAddress.IsValid() {
		c.AdvertiseAddress = c.localAddress()
	}
	c.AdvertiseAddress = c.AdvertiseAddress.Unmap()
	if c.AdvertiseAddress.IsUnspecified() {
		return c, fmt.Errorf("config: advertise address %s is not an address others can reach: give one of this machine's", c.AdvertiseAddress)
	}
	if len(c.ServiceRanges) == 0 {
		// IPv4 first also where an IPv6 address is advertised: which VIPs a Service gets must not
		// depend on where the API is. kube-apiserver allows it without an endpoint reconciler.
		c.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:fa17::/108")}
	}
	for _, s := range c.EtcdServers {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return c, fmt.Errorf("config: etcd server %q is not a URL like https://10.0.0.1:2379 (--etcd-servers)", s)
		}
	}
	if (c.EtcdCertFile == "") != (c.EtcdKeyFile == "") {
		return c, errors.New("config: an etcd client certificate needs both its certificate file and its key file")
	}
	if p := c.socketPath(); len(c.EtcdServers) == 0 && len(p) > maxSocketPath {
		return c, fmt.Errorf("config: data directory %s is too long: etcd's socket %s has %d bytes, a unix socket allows %d",
			c.DataDir, p, len(p), maxSocketPath)
	}
	return c, nil
}

// localAddress is an address at which this machine itself reaches the API.
func (c Config) localAddress() netip.Addr {
	switch {
	case !c.BindAddress.IsUnspecified():
		return c.BindAddress
	case c.BindAddress.Is6():
		return netip.IPv6Loopback()
	default:
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
}

func (c Config) pkiDir() string         { return filepath.Join(c.DataDir, "pki") }
func (c Config) kubeconfigPath() string { return filepath.Join(c.DataDir, "admin.kubeconfig") }
func (c Config) socketPath() string     { return socketPath(c.DataDir) }

// socketPath ends in a port because etcd wants "host:port" even of a unix socket.
func socketPath(dataDir string) string { return filepath.Join(dataDir, "etcd.sock:1") }

func etcdDir(dataDir string) string { return filepath.Join(dataDir, "etcd") }

// serviceAddress is the address that the "kubernetes" Service takes: the first of the first range.
func (c Config) serviceAddress() netip.Addr { return c.ServiceRanges[0].Masked().Addr().Next() }

func (c Config) serviceRangesFlag() string {
	var s []string
	for _, p := range c.ServiceRanges {
		s = append(s, p.Masked().String())
	}
	return strings.Join(s, ",")
}

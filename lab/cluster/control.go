package cluster

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"fairlead.dev/lab"
	"fairlead.dev/lab/etcd"
	"fairlead.dev/lab/pki"
)

// startControl starts etcd, the API, the controllers and the scheduler, and returns when
// the API is ready.
func (c *Cluster) startControl(ctx context.Context) error {
	if _, err := c.Control.Dir("pki"); err != nil {
		return err
	}
	p, err := pki.New(filepath.Join(c.dir, "pki"))
	if err != nil {
		return err
	}
	controls := c.controls
	if err := c.issueAll(p, controls); err != nil {
		return err
	}
	storage, err := c.startEtcd(ctx, controls)
	if err != nil {
		return err
	}
	for _, m := range controls {
		a := &API{Machine: m, cluster: c, argv: c.apiArgv(p, m, storage)}
		c.APIs = append(c.APIs, a)
		if err := a.Start(ctx); err != nil {
			return err
		}
	}
	for _, a := range c.APIs {
		if err := a.AwaitReady(ctx); err != nil {
			return err
		}
	}
	config := func(name string) []string {
		path := filepath.Join(c.dir, name+".kubeconfig")
		return []string{
			"--kubeconfig=" + path, "--authentication-kubeconfig=" + path, "--authorization-kubeconfig=" + path,
			"--bind-address=127.0.0.1", "--leader-elect=false",
		}
	}
	if _, err := c.start(ctx, "controllers", "kube-controller-manager", append(config("controllers"),
		"--use-service-account-credentials=true", "--service-account-private-key-file="+p.Path("sa.key"),
		"--root-ca-file="+p.Path("ca.crt"),
		"--cluster-signing-cert-file="+p.Path("ca.crt"), "--cluster-signing-key-file="+p.Path("ca.key"),
		"--allocate-node-cidrs=false")...); err != nil {
		return err
	}
	_, err = c.start(ctx, "scheduler", "kube-scheduler", config("scheduler")...)
	return err
}

// startEtcd starts the members on the machines, and returns what an API needs to find them.
func (c *Cluster) startEtcd(ctx context.Context, controls []*lab.Machine) ([]string, error) {
	if len(controls) > 1 {
		var err error
		if c.Etcd, err = etcd.Start(ctx, c.tools, filepath.Join(c.dir, "etcd-pki"), controls...); err != nil {
			return nil, err
		}
		return c.Etcd.Flags(), nil
	}
	return []string{"--etcd-servers=" + storageURL}, c.StartStorage(ctx)
}

// storageURL is where a single API finds its etcd: on the same machine, whose loopback is its own.
const storageURL = "http://127.0.0.1:2379"

// StartStorage starts the etcd of a single API, again after it has ended.
func (c *Cluster) StartStorage(ctx context.Context) error {
	const peer = "http://127.0.0.1:2380"
	var err error
	c.Storage, err = c.start(ctx, "etcd", "etcd", "--data-dir="+filepath.Join(c.dir, "etcd"), "--log-level=warn", "--unsafe-no-fsync",
		"--listen-client-urls="+storageURL, "--advertise-client-urls="+storageURL,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	return err
}

// API is one kube-apiserver. Process changes when it is started again.
type API struct {
	Machine *lab.Machine
	Process *lab.Process

	cluster *Cluster
	argv    []string
}

func (c *Cluster) apiArgv(p *pki.Authority, m *lab.Machine, storage []string) []string {
	// The family of the API's own address is that of Services which ask for none.
	advertised, bound, services := m.Addr4().String(), "0.0.0.0", serviceNet.String()
	if c.ipv6 {
		advertised, bound, services = m.Addr6().String(), "::", serviceNet6.String()+","+services
	}
	return append([]string{
		c.Program("kubernetes"), "kube-apiserver",
		"--advertise-address=" + advertised, "--bind-address=" + bound, "--secure-port=" + strconv.Itoa(apiPort),
		"--tls-cert-file=" + p.Path("apiserver.crt"), "--tls-private-key-file=" + p.Path("apiserver.key"),
		"--client-ca-file=" + p.Path("ca.crt"),
		"--requestheader-client-ca-file=" + p.Path("ca.crt"), "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + p.Path("front-proxy.crt"), "--proxy-client-key-file=" + p.Path("front-proxy.key"),
		"--kubelet-client-certificate=" + p.Path("kubelet-client.crt"), "--kubelet-client-key=" + p.Path("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.Path("sa.key"), "--service-account-signing-key-file=" + p.Path("sa.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=" + services, "--allow-privileged=true",
	}, storage...)
}

// Start starts the API, again after it has ended.
func (a *API) Start(ctx context.Context) error {
	var err error
	a.Process, err = a.Machine.Start(ctx, lab.ProcessSpec{Name: "apiserver", Argv: a.argv, Env: noProxies})
	return err
}

// Server is the URL of the API, for `kubectl --server`.
func (a *API) Server() string { return server(a.Machine) }

// AwaitReady waits until the API says that it is ready.
func (a *API) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	return a.cluster.await(ctx, "the API on "+a.Machine.Name()+" to be ready", func() error {
		_, err := a.cluster.kubectl(ctx, "--server", a.Server(), "get", "--raw", "/readyz")
		return err
	})
}

func server(m *lab.Machine) string {
	return "https://" + net.JoinHostPort(m.Addr4().String(), strconv.Itoa(apiPort))
}

// issueAll makes the certificates and kubeconfigs of everybody in the cluster.
func (c *Cluster) issueAll(p *pki.Authority, controls []*lab.Machine) error {
	ips := []net.IP{net.IPv4(127, 0, 0, 1), serviceNet.Addr().Next().AsSlice(), serviceNet6.Addr().Next().AsSlice()}
	for _, m := range controls {
		ips = append(ips, m.Addr4().AsSlice(), m.Addr6().AsSlice())
	}
	if _, _, err := p.Issue("apiserver", pkix.Name{CommonName: "kube-apiserver"}, ips,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"); err != nil {
		return err
	}
	if _, _, err := p.Issue("kubelet-client", pkix.Name{CommonName: "kube-apiserver", Organization: []string{"system:masters"}}, nil); err != nil {
		return err
	}
	if _, _, err := p.Issue("front-proxy", pkix.Name{CommonName: "front-proxy"}, nil); err != nil {
		return err
	}
	if err := p.NewKey("sa.key"); err != nil {
		return err
	}
	type user struct{ file, name, group string }
	users := []user{
		{"admin", "admin", "system:masters"},
		{"controllers", "system:kube-controller-manager", ""},
		{"scheduler", "system:kube-scheduler", ""},
		{"proxy", "system:kube-proxy", ""},
	}
	for _, m := range c.Nodes {
		users = append(users, user{"node-" + m.Name(), "system:node:" + m.Name(), "system:nodes"})
	}
	for _, u := range users {
		var groups []string
		if u.group != "" {
			groups = []string{u.group}
		}
		if err := p.Kubeconfig(filepath.Join(c.dir, u.file+".kubeconfig"), server(c.Control), u.name, groups...); err != nil {
			return err
		}
	}
	return nil
}

// start runs one component on the control machine.
func (c *Cluster) start(ctx context.Context, name, component string, args ...string) (*lab.Process, error) {
	p, err := c.Control.Start(ctx, lab.ProcessSpec{
		Name: name, Argv: append([]string{c.Program("kubernetes"), component}, args...), Env: noProxies,
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", component, err)
	}
	return p, nil
}

// noProxies keeps a proxy of the host's out of the lab: it cannot reach it.
var noProxies = []string{"NO_PROXY=*", "no_proxy=*"}

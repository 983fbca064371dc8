// Package etcd runs an etcd cluster on machines of a lab, with TLS between members and to clients.
//
// It refuses clients without a certificate of its authority, as a production cluster should.
// Invariant: members keep their data in directories of their machines, so a member that was killed
// comes back with it, and all of it goes with the lab.
package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/pki"
)

const (
	clientPort = "2379"
	peerPort   = "2380"
	tick       = 50 * time.Millisecond
	// startTime is how long members may take to find each other on a host with much else to do.
	startTime = 2 * time.Minute
)

// Cluster is a running etcd cluster.
type Cluster struct {
	Members []*Member

	program   string // with all components of Kubernetes, and etcd
	authority *pki.Authority
}

// Member is one etcd, alone on its machine. Process changes when it is started again.
type Member struct {
	Machine *lab.Machine
	Process *lab.Process

	cluster *Cluster
	argv    []string
}

// Start runs a member on each machine and returns when all of them are healthy. tools is the
// directory that `tools/setup.sh cluster` fills; dir takes the certificates.
func Start(ctx context.Context, tools, dir string, machines ...*lab.Machine) (*Cluster, error) {
	c := &Cluster{program: filepath.Join(tools, "kubernetes")}
	var err error
	if c.authority, err = pki.New(dir); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	if _, _, err := c.authority.Issue("client", pkix.Name{CommonName: "fairlead"}, nil); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	var peers []string
	for _, m := range machines {
		peers = append(peers, m.Name()+"="+url(m, peerPort))
	}
	for _, m := range machines {
		member, err := c.member(m, strings.Join(peers, ","))
		if err != nil {
			return nil, fmt.Errorf("start etcd on %s: %w", m.Name(), err)
		}
		c.Members = append(c.Members, member)
	}
	for _, m := range c.Members {
		if err := m.Start(ctx); err != nil {
			return nil, err
		}
	}
	for _, m := range c.Members {
		if err := m.AwaitHealthy(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Flags lead `fairlead plane` or a kube-apiserver to the cluster: to some members, or to all.
func (c *Cluster) Flags(members ...*Member) []string {
	if len(members) == 0 {
		members = c.Members
	}
	var servers []string
	for _, m := range members {
		servers = append(servers, url(m.Machine, clientPort))
	}
	return []string{
		"--etcd-servers", strings.Join(servers, ","), "--etcd-cafile", c.authority.Path("ca.crt"),
		"--etcd-certfile", c.authority.Path("client.crt"), "--etcd-keyfile", c.authority.Path("client.key"),
	}
}

func (c *Cluster) member(m *lab.Machine, peers string) (*Member, error) {
	dir, err := m.Dir("etcd")
	if err != nil {
		return nil, err
	}
	ips := []net.IP{m.Addr4().AsSlice(), net.IPv4(127, 0, 0, 1)}
	if _, _, err := c.authority.Issue(m.Name(), pkix.Name{CommonName: m.Name()}, ips); err != nil {
		return nil, err
	}
	ca, crt, key := c.authority.Path("ca.crt"), c.authority.Path(m.Name()+".crt"), c.authority.Path(m.Name()+".key")
	client, peer := url(m, clientPort), url(m, peerPort)
	return &Member{Machine: m, cluster: c, argv: []string{
		c.program, "etcd", "--name=" + m.Name(), "--data-dir=" + dir, "--log-level=warn",
		"--initial-cluster=" + peers, "--initial-cluster-state=new",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--client-cert-auth", "--trusted-ca-file=" + ca, "--cert-file=" + crt, "--key-file=" + key,
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + ca, "--peer-cert-file=" + crt, "--peer-key-file=" + key,
	}}, nil
}

func url(m *lab.Machine, port string) string {
	return "https://" + net.JoinHostPort(m.Addr4().String(), port)
}

// Start starts the member, again after it has ended: with the data that it had.
func (m *Member) Start(ctx context.Context) error {
	var err error
	m.Process, err = m.Machine.Start(ctx, lab.ProcessSpec{Name: "etcd", Argv: m.argv, Env: []string{"NO_PROXY=*", "no_proxy=*"}})
	return err
}

// AwaitHealthy waits until the member answers a linearizable read: it is one of a majority that has
// a leader.
func (m *Member) AwaitHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	client, err := m.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for {
		err := m.healthy(ctx, client)
		if err == nil {
			return nil
		}
		if !m.Process.Running() {
			return fmt.Errorf("etcd on %s has ended: see %s", m.Machine.Name(), m.Process.Log())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for etcd on %s: %w", m.Machine.Name(), errors.Join(err, ctx.Err()))
		case <-time.After(tick):
		}
	}
}

func (m *Member) healthy(ctx context.Context, client *http.Client) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url(m.Machine, clientPort)+"/health", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return err
}

// client is one with the clients' certificate, whose connections start at the member's machine.
func (m *Member) client() (*http.Client, error) {
	a := m.cluster.authority
	certificate, err := tls.LoadX509KeyPair(a.Path("client.crt"), a.Path("client.key"))
	if err != nil {
		return nil, fmt.Errorf("read etcd's client certificate: %w", err)
	}
	ca, err := os.ReadFile(a.Path("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read etcd's authority: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: m.Machine.Dial, TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots},
	}}, nil
}

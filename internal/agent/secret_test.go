package agent

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"fairlead.dev/internal/delta"
)

const privateKey = "the private key of a certificate "

func inline(text string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}}
}

func testCertificate(t testing.TB, name, salt string) delta.Change {
	return delta.Change{Type: typeSecret, Name: name, Resource: pack(t, name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{
		TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline("chain " + salt), PrivateKey: inline(privateKey + salt)},
	}})}
}

func testAuthority(t testing.TB, name string) delta.Change {
	return delta.Change{Type: typeSecret, Name: name, Resource: pack(t, name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{
		ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline("an authority")},
	}})}
}

func testTLSListener(t testing.TB, name, secret, cluster string) delta.Change {
	context := &tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: secret}},
	}}
	proxy := &tcpproxyv3.TcpProxy{ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: cluster}}
	return delta.Change{Type: typeListener, Name: name, Resource: pack(t, name, &listenerv3.Listener{Name: name, FilterChains: []*listenerv3.FilterChain{{
		TransportSocket: &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: anyOf(t, context)}},
		Filters:         []*listenerv3.Filter{{Name: "tcp", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: anyOf(t, proxy)}}},
	}}})}
}

// TestPrivateKeysAreNotOnTheDisk: they are in the run directory, which is gone after a
// reboot. Then a listener that needs them waits for a plane; the others do not.
func TestPrivateKeysAreNotOnTheDisk(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	cert, ca := testCertificate(t, "certificate/t/a", "1"), testAuthority(t, "authority/t/ca")
	clear, secure := testListener(t, "http-80", "x"), testTLSListener(t, "https-443", cert.Name, "c1")
	world := append(whole(t, at(1, 1), 1)[:2], responseOf(t, at(1, 1), cert, ca), responseOf(t, at(1, 1), clear, secure), responseOf(t, at(1, 1), checkpointAt(t, at(1, 1))))
	boot := func() *asker {
		e := dialRelay(t, m)
		e.ask(typeCluster)
		e.until(testCluster(t, "c1", "s1", 1))
		e.ask(typeEndpoint, "s1")
		e.until(testEndpoints(t, "s1", 1))
		e.ask(typeSecret, cert.Name, ca.Name)
		e.until(ca)
		e.ask(typeListener)
		e.until(clear)
		return e
	}
	_, stop := m.start()
	c, _ := p.call()
	c.must(t, world...)
	e := boot()
	e.until(secure)
	if got := e.has[key{typeSecret, cert.Name}]; got != cert.Resource.Version {
		t.Errorf("the certificate came as %q", got)
	}
	stop()

	if files := filesWith(t, m.config.DataDir, privateKey); len(files) > 0 {
		t.Errorf("a private key is on the disk: %v", files)
	}
	if files := filesWith(t, m.config.DataDir, "an authority"); len(files) == 0 {
		t.Error("the authority is not on the disk")
	}
	files := filesWith(t, m.config.RunDir, privateKey)
	if len(files) != 1 {
		t.Fatalf("the private key is in %v", files)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode() != 0o600 {
		t.Errorf("%s: %v %v", files[0], info.Mode(), err)
	}

	// The agent alone starts anew.
	_, stop = m.start()
	p.call()
	boot().until(secure)
	stop()

	// The machine does.
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	for range 2 { // an agent that restarts meanwhile has no keys either
		a, stop := m.start()
		p.call()
		e = boot()
		if e.has[key{typeListener, secure.Name}] != "" {
			t.Error("a listener was given to Envoy without its key")
		}
		eventually(t, "it says why", func() bool {
			err := a.Readyz(t.Context())
			return err != nil && strings.Contains(err.Error(), "private keys")
		})
		eventually(t, "VIPs of http-80 alone may be announced", func() bool {
			has := a.state.listening(map[string]struct{}{"https-443": {}, "http-80": {}})
			_, clear := has["http-80"]
			return len(has) == 1 && clear
		})
		stop()
	}
	m.start()
	c, first := p.call()
	if held := first[typeSecret].GetInitialResourceVersions(); held[cert.Name] != "" || held[ca.Name] == "" {
		t.Errorf("it tells the plane that it holds %v", held)
	}
	e = boot()
	c.must(t, responseOf(t, at(1, 2), cert), responseOf(t, at(1, 2), checkpointAt(t, at(1, 2))))
	e.until(secure)
}

// filesWith are the files below a directory that hold a text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		body, err := os.ReadFile(path)
		if bytes.Contains(body, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestGateWaitsForSecrets: what names a secret or a cluster is not given to Envoy before
// these are there, for a while.
func TestGateWaitsForSecrets(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	g := NewGate()
	target := func(changes ...delta.Change) {
		t.Helper()
		if err := g.Target(changes); err != nil {
			t.Fatal(err)
		}
	}
	step := func() (out []string) {
		for _, c := range g.Step(now).Changes {
			out = append(out, c.Name)
		}
		return out
	}
	wants := func(want ...string) {
		t.Helper()
		if got := step(); !slices.Equal(got, want) {
			t.Errorf("Envoy is given %v, want %v", got, want)
		}
	}
	g.Connected(nil, nil)
	context := &tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
		ValidationContextType: &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: "ca"}},
	}}
	target(testCluster(t, "c1", "s1", 1, func(c *clusterv3.Cluster) {
		c.TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: anyOf(t, context)}}
	}), testEndpoints(t, "s1", 1), testTLSListener(t, "l1", "cert", "c1"), testTLSListener(t, "l2", "never", "never"))
	wants("s1")
	target(testAuthority(t, "ca"), testCertificate(t, "cert", "1"))
	wants("ca", "cert")
	wants("c1")
	wants() // the listener waits until the cluster is warm
	g.Observe([]delta.Event{
		{Type: typeCluster, Name: "c1", Version: g.clusters["c1"].live.Version},
		{Type: typeEndpoint, Name: "s1", Version: g.items[key{typeEndpoint, "s1"}].live.Version},
	})
	g.Warming(g.Seq(), nil)
	wants("l1")
	wants()
	now = now.Add(waitGrace)
	wants("l2") // it has other names to serve
}

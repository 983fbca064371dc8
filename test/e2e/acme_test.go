package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// Where Pebble, and what answers challenges, listen on machine os1.
const (
	acmePort  = 14000
	rootsPort = 15000
)

// acme is an authority that people get certificates from by ACME (RFC 8555): Pebble. It asks
// for challenges over the edges.
type acme struct {
	site    *site
	machine *lab.Machine
	dir     string
	roots   *x509.CertPool // of the certificates that it issues
}

// lego is a client of the authority, on the same machine.
type lego struct {
	*acme
	host   string
	solver rig.Backend // where it answers challenges
}

// startACME runs Pebble, for which hosts have the addresses of the edges: of the first its
// IPv4, of the last its IPv6 address.
func (s *site) startACME(t *testing.T, hosts ...string) *acme {
	t.Helper()
	m := s.Lab.Machine(os1.Name)
	dir, err := m.Dir("acme")
	if err != nil {
		t.Fatal(err)
	}
	a := &acme{site: s, machine: m, dir: dir}
	names := strings.Join(hosts, " ")
	edges := s.edges()
	web := newAuthority(t, "acme server")
	chain, key := web.issue(t, m.Addr4().String())
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": a.at(acmePort), "managementListenAddress": a.at(rootsPort),
		"certificate": filepath.Join(dir, "web.pem"), "privateKey": filepath.Join(dir, "web.key"),
		"httpPort": 80, "tlsPort": 443, "keyAlgorithm": "ecdsa", "retryAfter": map[string]int{"authz": 1, "order": 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"web.pem": chain, "web.key": key, "ca.pem": web.pem, "pebble.json": config,
		"etc/nsswitch.conf": []byte("hosts: files\n"),
		"etc/hosts":         fmt.Appendf(nil, "%s %s\n%s %s\n", s.Lab.Machine(edges[0]).Addr4(), names, s.Lab.Machine(edges[len(edges)-1]).Addr6(), names),
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	process, err := m.Start(t.Context(), lab.ProcessSpec{
		Name: "pebble", Argv: []string{program(t, "pebble"), "-config", filepath.Join(dir, "pebble.json")},
		// Authorities ask again for each certificate, and later than at once; that and refused
		// nonces are no business of an edge.
		Env:    []string{"PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0", "PEBBLE_AUTHZREUSE=0"},
		Mounts: map[string]string{"/etc": filepath.Join(dir, "etc")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Stop(context.Background(), stopTime) })
	client := m.HTTPClient()
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: web.pool}
	s.await(t, "Pebble to show its root", func(ctx context.Context) error {
		if !process.Running() {
			return rig.Fatal(fmt.Errorf("it has ended; %s says why", process.Log()))
		}
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.at(rootsPort)+"/roots/0", nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(q)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		root, err := io.ReadAll(answer.Body)
		if a.roots = x509.NewCertPool(); err == nil && !a.roots.AppendCertsFromPEM(root) {
			err = fmt.Errorf("it is %q", root)
		}
		return err
	})
	return a
}

// at is a port of the machine.
func (a *acme) at(port uint16) string { return netip.AddrPortFrom(a.machine.Addr4(), port).String() }

// client is one for a host; it answers challenges at a port, when there are some.
func (a *acme) client(host string, port uint16) *lego {
	return &lego{a, host, rig.Backend{Name: "solver", Cluster: os1.Name, Address: netip.AddrPortFrom(a.machine.Addr4(), port)}}
}

// certificate gets one with the command "run", and another with "renew", puts it into a
// Secret of namespace acme and returns its serial number.
func (l *lego) certificate(t *testing.T, command, secret string) string {
	t.Helper()
	dir := filepath.Join(l.dir, l.host)
	argv := []string{
		program(t, "lego"), "--path", dir, "--server", "https://" + l.at(acmePort) + "/dir", "--accept-tos", "--email", "team@example.com",
		"--domains", l.host, "--http", "--http.port", l.solver.Address.String(), command,
	}
	if command == "renew" {
		argv = append(argv, "--days", "36500", "--no-random-sleep")
	}
	c := l.machine.Command(t.Context(), argv...)
	c.Env = append(os.Environ(), "LEGO_CA_CERTIFICATES="+filepath.Join(l.dir, "ca.pem"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("lego %s: %v\n%s", command, err, out)
	}
	files := filepath.Join(dir, "certificates", l.host)
	chain, err := os.ReadFile(files + ".crt")
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(files + ".key")
	if err != nil {
		t.Fatal(err)
	}
	return l.site.setCertificate(t, "acme", secret, chain, key)
}

// program is one that tools/setup.sh installs.
func program(t *testing.T, name string) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, ".tools", "bin", name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	path, err = exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v: run tools/setup.sh test", err)
	}
	return path
}

const challengePath = "/.well-known/acme-challenge/"

// TestACME gets certificates from an authority over the edges, as cert-manager does it, for
// hosts of a Gateway and of an IngressRoute whose clear text is redirected, and renews them
// while clients ask.
func TestACME(t *testing.T) {
	s := shared(t)
	s.namespace(t, "acme")
	const shop, old = "shop.acme.test", "old.acme.test"
	a := s.startACME(t, shop, old)
	serial := func(want string) func(secureAnswer) error {
		return func(got secureAnswer) error {
			if got.serial != want {
				return fmt.Errorf("it shows certificate %s, not %s", got.serial, want)
			}
			return nil
		}
	}
	forShop, forOld := a.client(shop, 8089), a.client(old, 8090)
	s.apply(t, service("acme", "app", s.backends["os1-a"]), service("acme", "solver", forShop.solver), service("acme", "old-solver", forOld.solver))

	t.Run("Gateway", func(t *testing.T) {
		t.Parallel() // lego waits for seconds
		// As cert-manager's users write it: the Secret is still to come.
		s.apply(t, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: shop, namespace: acme, annotations: {cert-manager.io/issuer: pebble}}
spec:
  gatewayClassName: fairlead
  listeners:
  - {name: http, port: 80, protocol: HTTP, hostname: shop.acme.test}
  - {name: https, port: 443, protocol: HTTPS, hostname: shop.acme.test, tls: {certificateRefs: [{name: shop-tls}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: to-https, namespace: acme}
spec: {parentRefs: [{name: shop, sectionName: http}], rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: https, statusCode: 301}}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: acme}
spec: {parentRefs: [{name: shop, sectionName: https}], rules: [{backendRefs: [{name: app, port: 80}]}]}
`)
		t.Cleanup(func() { s.kubectl(t, "delete", "gateway", "shop", "-n", "acme") })
		s.awaitAnswer(t, request{host: shop}, 301)
		s.awaitClosed(t, shop)
		// As cert-manager writes it when a challenge is to be answered.
		s.apply(t, `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cm-acme-http-solver, namespace: acme}
spec:
  parentRefs: [{name: shop}]
  hostnames: [shop.acme.test]
  rules: [{matches: [{path: {value: /.well-known/acme-challenge/}}], backendRefs: [{name: solver, port: 80}]}]
`)
		s.awaitAnswer(t, request{host: shop, path: challengePath + "x"}, 503) // nobody solves yet
		s.awaitConditions(t, "HTTPRoute acme/cm-acme-http-solver", condition{"Accepted", "True", "Accepted", "…"}, condition{"ResolvedRefs", "True", "ResolvedRefs", "…"})
		first := forShop.certificate(t, "run", "shop-tls")
		s.awaitTLS(t, a.roots, secureRequest{server: shop}, 200, serial(first))
		s.awaitConditions(t, "Gateway acme/shop", condition{"Programmed", "True", "Programmed", "…"})
		o, err := s.get(t.Context(), "Gateway acme/shop")
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Metadata.Annotations) == 0 || o.Metadata.Annotations["cert-manager.io/issuer"] != "pebble" {
			t.Errorf("the annotations are %v", o.Metadata.Annotations)
		}

		load := s.startTLSLoad(t, a.roots, shop, "/")
		load.awaitSerial(t, first)
		load.awaitSerial(t, forShop.certificate(t, "renew", "shop-tls"))
		load.none(t)
	})

	t.Run("IngressRoute", func(t *testing.T) {
		t.Parallel()
		root := func(tls, insecure string) string {
			return fmt.Sprintf(`apiVersion: contour.heptio.com/v1beta1
kind: IngressRoute
metadata: {name: old, namespace: acme}
spec:
  virtualhost: {fqdn: old.acme.test%s}
  routes:
  - {match: /, services: [{name: app, port: 80}]}
  - {match: /.well-known/acme-challenge, %sservices: [{name: old-solver, port: 80}]}
`, tls, insecure)
		}
		// The first certificate comes before the root has TLS: with it and without the Secret
		// it would be invalid.
		s.apply(t, root("", ""))
		s.awaitAnswer(t, request{host: old, path: challengePath + "x"}, 503)
		first := forOld.certificate(t, "run", "old-tls")
		s.apply(t, root(", tls: {secretName: old-tls}", "permitInsecure: true, "))
		s.awaitIngress(t, "IngressRoute acme/old", "valid", "valid IngressRoute")
		s.awaitTLS(t, a.roots, secureRequest{server: old}, 200, serial(first))
		s.awaitAnswer(t, request{host: old}, 301)
		s.awaitAnswer(t, request{host: old, path: challengePath + "x"}, 503)

		load := s.startTLSLoad(t, a.roots, old, "/")
		load.awaitSerial(t, first)
		load.awaitSerial(t, forOld.certificate(t, "renew", "old-tls"))
		load.none(t)
	})
}

package e2e

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// finding is one line of what testssl says.
type finding struct {
	ID       string `json:"id"`
	Severity string `json:"severity"`
	Finding  string `json:"finding"`
}

// explained are the findings that are not about our TLS.
var explained = map[string]string{
	"engine_problem":   "testssl would like an OpenSSL with old ciphers; what it needs them for it does itself",
	"secure_renego":    "its OpenSSL 3 cannot ask without a server name",
	"ipv4_in_header":   "the lab's backend says who asks it",
	"security_headers": "what a page may load is for the application to say",
}

// TestTLSIsModern has testssl judge what clients find at an HTTPS listener: a name whose
// certificate Envoy is told by name, with an ECDSA key, and one below a wildcard, with an RSA
// key. A route filter adds HSTS; nothing else is set.
func TestTLSIsModern(t *testing.T) {
	s := shared(t)
	s.namespace(t, "modern")
	r := s.startResponder(t, newAuthority(t, "modern"))
	chain, key := r.issue(t, "exact.modern.test", false)
	s.setCertificate(t, "modern", "exact", chain, key)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	chain, key = r.issueTo(t, private, "*.wild.modern.test", false)
	s.setCertificate(t, "modern", "wild", chain, key)
	s.apply(t, service("modern", "app", s.backends["os1-a"]), `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: modern, namespace: modern}
spec:
  gatewayClassName: fairlead
  listeners:
  - {name: exact, port: 443, protocol: HTTPS, hostname: exact.modern.test, tls: {certificateRefs: [{name: exact}]}}
  - {name: wild, port: 443, protocol: HTTPS, hostname: "*.wild.modern.test", tls: {certificateRefs: [{name: wild}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app, namespace: modern}
spec:
  parentRefs: [{name: modern}]
  rules:
  - filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: Strict-Transport-Security, value: max-age=31536000; includeSubDomains}]}}]
    backendRefs: [{name: app, port: 80}]
`)
	t.Cleanup(func() { s.kubectl(t, "delete", "gateway", "modern", "-n", "modern") })
	m := s.Lab.Machine(client.Name)
	dir, err := m.Dir("testssl")
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, r.authority.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	var judges sync.WaitGroup
	for _, host := range []string{"exact.modern.test", "any.wild.modern.test"} {
		s.awaitTLS(t, r.authority.pool, secureRequest{server: host}, 200, nil)
		s.await(t, "a response to be stapled for "+host, func(ctx context.Context) error { return s.stapled(ctx, r, host) })
		argv := []string{
			program(t, "testssl"), "--quiet", "--color", "0", "--warnings", "batch", "--nodns", "none", "--ip", s.Lab.Machine(edge1.Name).Addr4().String(),
			"--add-ca", ca, "--jsonfile", filepath.Join(dir, host+".json"),
			"--protocols", "--std", "--pfs", "--server-preference", "--server-defaults", "--headers", // what we choose
			"--renegotiation", "--crime", "--breach", host + ":443",
		}
		judges.Go(func() {
			if out, err := m.Command(t.Context(), argv...).CombinedOutput(); err != nil {
				t.Errorf("testssl %s: %v\n%s", host, err, out)
			}
		})
	}
	judges.Wait()
	for _, host := range []string{"exact.modern.test", "any.wild.modern.test"} {
		raw, err := os.ReadFile(filepath.Join(dir, host+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var findings []finding
		seen := map[string]string{}
		if err := json.Unmarshal(raw, &findings); err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		for _, f := range findings {
			seen[f.ID] = f.Severity
			if f.Severity != "OK" && f.Severity != "INFO" && explained[f.ID] == "" {
				t.Errorf("%s: %s %s: %s", host, f.Severity, f.ID, f.Finding)
			}
		}
		// It looked, and found what is said of us.
		for _, id := range []string{"TLS1_2", "TLS1_3", "cipherlist_STRONG", "PFS", "cipher_order", "cert_chain_of_trust", "OCSP_stapling", "HSTS_time"} {
			if seen[id] != "OK" {
				t.Errorf("%s: %s is %q", host, id, seen[id])
			}
		}
	}
}

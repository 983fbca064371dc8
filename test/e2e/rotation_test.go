package e2e

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var secretKind = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// setCertificate puts a certificate into a Secret of type kubernetes.io/tls, as whoever
// renews certificates does, and returns its serial number.
func (s *site) setCertificate(t *testing.T, namespace, name string, chain, key []byte) string {
	t.Helper()
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": namespace},
		"type": "kubernetes.io/tls", "data": map[string][]byte{"tls.crt": chain, "tls.key": key},
	})
	if err != nil {
		t.Fatal(err)
	}
	force := true
	if _, err := s.api.Resource(secretKind).Namespace(namespace).Patch(t.Context(), name, types.ApplyPatchType, manifest, metav1.PatchOptions{FieldManager: "renewer", Force: &force}); err != nil {
		t.Fatal(err)
	}
	return leafOf(t, chain).SerialNumber.String()
}

// leafOf is the first certificate of a chain in PEM.
func leafOf(t *testing.T, chain []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(chain)
	if block == nil {
		t.Fatalf("no certificate in %q", chain)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// TestCertificateRotation renews a certificate twenty times while clients ask: for a name
// whose certificate Envoy is told by name, for one below a wildcard, and for a host of an
// IngressRoute. No request fails, no connection ends, new ones get the new certificate.
func TestCertificateRotation(t *testing.T) {
	s := shared(t)
	s.namespace(t, "rotation")
	ca := newAuthority(t, "rotation")
	renew := func() string {
		chain, key := ca.issue(t, "www.rotation.test", "*.wild.rotation.test", "old.rotation.test")
		return s.setCertificate(t, "rotation", "all", chain, key)
	}
	renew()
	s.apply(t, service("rotation", "app", s.backends["os1-a"]), `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: secure, namespace: rotation}
spec:
  gatewayClassName: fairlead
  listeners:
  - {name: www, port: 443, protocol: HTTPS, hostname: www.rotation.test, tls: {certificateRefs: [{name: all}]}}
  - {name: wild, port: 443, protocol: HTTPS, hostname: "*.wild.rotation.test", tls: {certificateRefs: [{name: all}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app, namespace: rotation}
spec: {parentRefs: [{name: secure}], rules: [{backendRefs: [{name: app, port: 80}]}]}
`, secureRoot("rotation", "old", "old.rotation.test", "secretName: all", "routes: [{match: /, services: [{name: app, port: 80}]}]"))
	t.Cleanup(func() { s.kubectl(t, "delete", "gateway", "secure", "-n", "rotation") })
	var loads []*tlsLoad
	for _, host := range []string{"www.rotation.test", "any.wild.rotation.test", "old.rotation.test"} {
		s.awaitTLS(t, ca.pool, secureRequest{server: host}, 200, nil)
		loads = append(loads, s.startTLSLoad(t, ca.pool, host, "/"))
	}
	for range 20 {
		serial := renew()
		for _, l := range loads {
			l.awaitSerial(t, serial)
		}
	}
	for _, l := range loads {
		l.none(t)
	}
	// Whoever follows the ends of certificates sees this one.
	serial := renew()
	s.await(t, "the plane to know the certificate "+serial, func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		for _, c := range status.Certificates {
			if c.ID == "rotation/all" && len(c.Hosts) == 3 && len(c.Owners) == 2 {
				return nil
			}
		}
		return fmt.Errorf("it knows %+v", status.Certificates)
	})
}

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// manifests are those that a page of the documentation shows: what is indented and begins
// with an API version.
func manifests(t *testing.T, page string) []string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	block := ""
	for line := range strings.Lines(string(raw) + "end\n") {
		if text, is := strings.CutPrefix(line, "    "); is {
			block += text
			continue
		}
		if strings.HasPrefix(block, "apiVersion:") {
			all = append(all, block)
		}
		block = ""
	}
	return all
}

// TestTLSGuide applies what the guide to certificates shows.
func TestTLSGuide(t *testing.T) {
	s := shared(t)
	s.namespace(t, "team")
	s.namespace(t, "certificates")
	ca := newAuthority(t, "guide")
	authorities := func(name string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: team}\ndata: {ca.crt: %q}\n", name, ca.pem)
	}
	s.apply(t,
		service("team", "shop", s.backends["os1-a"]), ca.tlsSecret(t, "team", "shop-tls", "shop.example.com"), ca.tlsSecret(t, "team", "www-tls", "www.example.com"),
		ca.tlsSecret(t, "certificates", "wildcard", "*.example.com"), authorities("staff-ca"), authorities("shop-ca"),
	)
	for _, m := range manifests(t, "docs/guides/tls.md") {
		if !strings.Contains(m, "apiVersion: cert-manager.io/") {
			s.apply(t, m)
		}
	}
	t.Cleanup(func() {
		s.kubectl(t, "delete", "gateway", "shop", "inside", "-n", "team")
		s.kubectl(t, "delete", "addresspool", "inside")
	})
	for _, gateway := range []ref{"Gateway team/shop", "Gateway team/inside"} {
		s.awaitConditions(t, gateway, condition{"Programmed", "True", "Programmed", "…"}, condition{"ResolvedRefs", "True", "ResolvedRefs", "…"})
	}
	for _, route := range []ref{"HTTPRoute team/shop", "HTTPRoute team/to-https", "HTTPRoute team/solver"} {
		s.awaitConditions(t, route, programmed, condition{"ResolvedRefs", "True", "ResolvedRefs", "…"})
	}
	s.awaitIngress(t, "IngressRoute team/www", "valid", "valid IngressRoute")
	s.awaitAnswer(t, request{host: "shop.example.com"}, 301)
	s.awaitAnswer(t, request{host: "www.example.com"}, 301)
	// The policy wants TLS of a backend that speaks none.
	s.awaitTLS(t, ca.pool, secureRequest{server: "shop.example.com"}, 503, nil)
	s.awaitTLS(t, ca.pool, secureRequest{server: "www.example.com"}, 503, nil)
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExplainManifestsWithFlagsOfAPlane holds that explain -f decides by the flags of the plane that it is given.
func TestExplainManifestsWithFlagsOfAPlane(t *testing.T) {
	certificate, key := secretFor(t, "app.example.com")
	manifest := strings.NewReplacer("CERTIFICATE", certificate, "KEY", key).Replace(`
{apiVersion: v1, kind: Secret, metadata: {name: cert}, type: kubernetes.io/tls, data: {tls.crt: CERTIFICATE, tls.key: KEY}}
---
apiVersion: contour.heptio.com/v1beta1
kind: IngressRoute
metadata: {name: app, annotations: {kubernetes.io/ingress.class: public}}
spec:
  virtualhost: {fqdn: app.example.com, tls: {secretName: cert, minimumProtocolVersion: "1.1"}}
  routes: [{match: /, permitInsecure: true, services: [{name: web, port: 80}]}]
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}
`)
	name := filepath.Join(t.TempDir(), "in.yaml")
	if err := os.WriteFile(name, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		url  string
		args []string
		says string
	}{
		{"http://app.example.com/", []string{"--ingress-class", "public"}, "-> answer   the proxy answers 503"}, // nobody is behind web
		{"http://app.example.com/", []string{"--ingress-class", "public", "--disable-permit-insecure"}, "redirects with 301 to https://app.example.com/"},
		{"http://app.example.com/", nil, `its class "public" is another controller's`},
		{"http://app.example.com:81/", []string{"--ingress-class", "public", "--ingressroute-port", "81"}, "-> listener http-81"},
		{"https://app.example.com/", []string{"--ingress-class", "public"}, "TLS 1.1 or newer"},
		{"https://app.example.com/", []string{"--ingress-class", "public", "--minimum-tls-version", "1.3"}, "no older TLS than 1.3, by --minimum-tls-version of the plane"},
		{"http://app.example.com/", []string{"--ingress-class", "public", "--root-namespaces", "roots"}, "root IngressRoute cannot be defined in this namespace"},
	} {
		out, err := execute(append([]string{"explain", "-f", name, c.url}, c.args...)...)
		if err != nil || !strings.Contains(out, c.says) {
			t.Errorf("%s %q: %v, no %q in\n%s", c.url, c.args, err, c.says, out)
		}
	}
}

// TestExplainManifestsOfAWrongType holds that explain -f and translate -f say where a value is of another type than its
// field.
func TestExplainManifestsOfAWrongType(t *testing.T) {
	name := filepath.Join(t.TempDir(), "in.yaml")
	manifest := "apiVersion: contour.heptio.com/v1beta1\nkind: IngressRoute\nmetadata: {name: app}\nspec:\n  routes:\n  - match: /\n    services: [{name: web, port: \"80\"}]\n"
	if err := os.WriteFile(name, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"translate", "-f", name}, {"explain", "-f", name, "http://app.example.com/"}} {
		out, err := execute(args...)
		if want := "warning: " + name + ":7: IngressRoute app: spec.routes[0].services[0].port: want a whole number, found the text \"80\": write it without quotes\n"; err == nil || !strings.Contains(out, want) {
			t.Errorf("%q: %v, no %s in\n%s", args, err, want, out)
		}
	}
}

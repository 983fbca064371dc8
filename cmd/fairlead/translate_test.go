package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An empty answer to a file that holds nothing looks like success; the warning says why.
func TestTranslateSaysThatThereIsNothing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "routes.yaml")
	for text, warns := range map[string]bool{
		"# nothing\n": true,
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n": false,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := execute("translate", "-f", name)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out, "nothing to translate: no resource that Fairlead reads in "+name); got != warns {
			t.Errorf("%q: warns %v, want %v:\n%s", text, got, warns, out)
		}
	}
}

// A reference to nothing is said of files as `fairlead status` says it of a plane's.
func TestTranslateSaysWhatNobodyServes(t *testing.T) {
	name := filepath.Join(t.TempDir(), "edge.yaml")
	const files = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: fairlead}
spec: {controllerName: fairlead.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: team}
spec: {gatewayClassName: fairlaed, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app, namespace: team}
spec: {parentRefs: [{name: egde}], rules: [{backendRefs: [{name: app, port: 80}]}]}
`
	if err := os.WriteFile(name, []byte(files), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := execute("translate", "-f", name)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"warning: Gateway team/edge: ClassNotFound: spec.gatewayClassName: there is no GatewayClass fairlaed",
		"warning: HTTPRoute team/app: GatewayNotFound: spec.parentRefs[0]: there is no Gateway team/egde",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
}

// TestTranslateKnowsTheFloorOfTLS holds that translate takes the plane's least version of TLS, and says what it makes
// of hosts.
func TestTranslateKnowsTheFloorOfTLS(t *testing.T) {
	certificate, key := secretFor(t, "app.example.com")
	manifest := strings.NewReplacer("CERTIFICATE", certificate, "KEY", key).Replace(`
{apiVersion: v1, kind: Secret, metadata: {name: cert}, type: kubernetes.io/tls, data: {tls.crt: CERTIFICATE, tls.key: KEY}}
---
{apiVersion: contour.heptio.com/v1beta1, kind: IngressRoute, metadata: {name: app}, spec: {virtualhost: {fqdn: app.example.com, tls: {secretName: cert, minimumProtocolVersion: "1.1"}}, routes: [{match: /, services: [{name: web, port: 80}]}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}
`)
	name := filepath.Join(t.TempDir(), "in.yaml")
	if err := os.WriteFile(name, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ floor, version, status string }{
		{"", "from TLS 1.1 of IngressRoute default/app", "valid: valid IngressRoute\n"},
		{"1.3", "from TLS 1.3 of IngressRoute default/app", `"1.1" counts as 1.3, the minimum of the plane (--minimum-tls-version)`},
	} {
		out, err := execute("translate", "-f", name, "--minimum-tls-version", c.floor)
		if err != nil || !strings.Contains(out, c.version) || !strings.Contains(out, c.status) || strings.Contains(out, "no host name below TLS 1.3") != (c.floor != "") {
			t.Errorf("floor %q: %v\n%s", c.floor, err, out)
		}
	}
	if _, err := execute("translate", "-f", name, "--minimum-tls-version", "1.1"); err == nil || !strings.Contains(err.Error(), "want 1.2 or 1.3") {
		t.Errorf("a version that is no floor: %v", err)
	}
}

// One slip of the pen hides nothing of the rest.
func TestTranslateGoesOnAfterUnknownFields(t *testing.T) {
	name := filepath.Join(t.TempDir(), "app.yaml")
	const manifest = `apiVersion: contour.heptio.com/v1beta1
kind: IngressRoute
metadata: {name: app, namespace: team}
spec:
  virtualhost: {fqdn: app.example.com, corsPolicy: {}}
  routes: [{match: /, services: [{name: web, port: 80}]}]
`
	if err := os.WriteFile(name, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := execute("translate", "-f", name)
	if err == nil || err.Error() != "1 unknown field was ignored (see the warnings)" {
		t.Errorf("it ended with %v", err)
	}
	for _, want := range []string{"warning: " + name + `:5: IngressRoute team/app: unknown field "spec.virtualhost.corsPolicy"`, "status IngressRoute team/app"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
}

// What is wrong with one object hides nothing of the others, and of what stands twice the last counts.
func TestTranslateGoesOnAfterFaults(t *testing.T) {
	name := filepath.Join(t.TempDir(), "app.yaml")
	const manifest = `{apiVersion: contour.heptio.com/v1beta1, kind: IngressRoute, metadata: {name: app, namespace: team}, spec: {virtualhost: {fqdn: first.example.com}}}
---
{apiVersion: contour.heptio.com/v1beta1, kind: IngressRoute, metadata: {name: app, namespace: team}, spec: {virtualhost: {fqdn: last.example.com}}}
---
{apiVersion: contour.heptio.com/v1beta1, kind: IngressRoute, metadata: {name: faulty, namespace: team}, spec: {routes: [{match: /, services: [{name: web, port: "80", weight: "1"}]}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: team}, spec: {port: 80}}
`
	if err := os.WriteFile(name, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args      []string
		end, says string
	}{
		{[]string{"translate", "-f", name}, "2 objects and 1 unknown field were ignored (see the warnings)", "host http-80 last.example.com"},
		{[]string{"explain", "http://last.example.com/", "-f", name}, "2 objects were ignored (see the warnings)", "-> host     last.example.com\n"},
	} {
		out, err := execute(c.args...)
		if err == nil || err.Error() != c.end {
			t.Errorf("%s ended with %v", c.args[0], err)
		}
		for _, want := range []string{
			c.says,
			"warning: " + name + ":3: IngressRoute team/app is defined twice: the definition at " + name + ":1 is ignored\n",
			"warning: " + name + ":5: IngressRoute team/faulty: spec.routes[0].services[0].port: want a whole number",
			"warning: " + name + ":5: IngressRoute team/faulty: spec.routes[0].services[0].weight: want a whole number",
			"warning: " + name + `:7: Service team/web: unknown field "spec.port"`,
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s does not say %q:\n%s", c.args[0], want, out)
			}
		}
	}
}

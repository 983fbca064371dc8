package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
)

// explained are the manifests that the tests explain.
const explained = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: fairlead}
spec: {controllerName: fairlead.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: default}
spec:
  gatewayClassName: fairlead
  listeners:
  - {name: other, port: 8080, protocol: HTTP}
  - {name: http, port: 80, protocol: HTTP}
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: default}
spec:
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: app-1, namespace: default, labels: {kubernetes.io/service-name: app}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.0.0.1], conditions: {ready: true}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app, namespace: default}
spec:
  parentRefs: [{name: edge}]
  hostnames:
  - other.example.com
  - app.example.com
  rules:
  - matches:
    - path: {value: /nowhere}
    - path: {value: /api}
      method: POST
    backendRefs: [{name: app, port: 80}]
  - backendRefs: [{name: missing, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: refused, namespace: default}
spec:
  parentRefs: [{name: edge}]
  hostnames: [refused.example.com]
  rules:
  - matches: [{path: {type: RegularExpression, value: "/("}}]
    backendRefs: [{name: app, port: 80}]
---
apiVersion: contour.heptio.com/v1beta1
kind: IngressRoute
metadata: {name: root, namespace: default}
spec:
  virtualhost: {fqdn: root.example.com}
  routes:
  - match: /
    services: [{name: app, port: 80}]
`

// Every step of an explanation of manifests says where it was decided: file and line.
func TestExplainManifests(t *testing.T) {
	name := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(name, []byte(explained), 0o600); err != nil {
		t.Fatal(err)
	}
	// line is where a text stands, the first time after another.
	line := func(after, text string) string {
		from := strings.Index(explained, after)
		at := strings.Index(explained[from:], text)
		if from < 0 || at < 0 {
			t.Fatalf("the manifests have no %q after %q", text, after)
		}
		return name + ":" + strconv.Itoa(1+strings.Count(explained[:from+at], "\n"))
	}
	explainIt := func(args ...string) v1.Explanation {
		t.Helper()
		out, err := execute(append([]string{"explain", "-o", "json", "-f", name}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		var e v1.Explanation
		if err := json.Unmarshal([]byte(out), &e); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return e
	}
	wheres := func(sources []v1.Source) string {
		var all []string
		for _, s := range sources {
			all = append(all, s.Kind+" "+s.Where)
		}
		return strings.Join(all, ", ")
	}

	e := explainIt("http://app.example.com/api/x", "--method", "POST")
	for _, c := range []struct{ what, got, want string }{
		{"answer", e.Answer.Text, "a backend answers"},
		{"listener", wheres(e.Listener.By), "Gateway " + line("kind: Gateway\n", "- {name: http,") + ", IngressRoute " + line("kind: IngressRoute", "virtualhost")},
		{"host", wheres(e.Host.By), "HTTPRoute " + line("other.example.com", "- app.example.com")},
		{"route", e.Route.By.Where, line("/nowhere", "- path")},
		{"weights", e.Route.Forward.By.Where, line("/nowhere", "backendRefs")},
		{"backends", wheres(e.Groups[0].By), "Service " + line("kind: Service", "ports:") + ", EndpointSlice " + line("kind: EndpointSlice", "endpoints:")},
		{"passed", e.Routes.Passed[0].Where, line("- matches", "- path")},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.what, c.got, c.want)
		}
	}
	if e := explainIt("http://app.example.com/else"); e.Answer.Outcomes[0].Status != 500 || e.Route.By.Where != line("backendRefs: [{name: app, port: 80}]\n  - ", "- backendRefs") ||
		len(e.Problems) != 1 || e.Problems[0].Reason != "BackendNotFound" {
		t.Errorf("%+v %+v %+v", e.Answer, e.Route, e.Problems)
	}
	// A route that is not accepted has no host; the explanation says why.
	if e := explainIt("http://refused.example.com/"); e.Answer.Outcomes[0].Status != 404 || len(e.Problems) != 1 || !strings.Contains(e.Problems[0].Message, "not a valid RE2 expression") {
		t.Errorf("%+v %+v", e.Answer, e.Problems)
	}
	if e := explainIt("http://root.example.com/x"); e.Route.By.Where != line("kind: IngressRoute", "- match") || wheres(e.Host.By) != "IngressRoute "+line("kind: IngressRoute", "virtualhost") {
		t.Errorf("%+v %+v", e.Route, e.Host)
	}
	if e := explainIt("http://root.example.com:8081/x", "--ingressroute-port", "8081"); e.Route == nil {
		t.Errorf("%+v", e.Answer)
	}
	if e := explainIt("https://app.example.com/"); e.Answer.Connects || !strings.Contains(e.Answer.Text, "nothing listens for TLS") {
		t.Errorf("%+v", e.Answer)
	}

	out, err := execute("explain", "-f", name, "http://app.example.com/api/x", "-H", "Host: root.example.com", "--from", "192.0.2.7")
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"GET http://root.example.com/api/x, from 192.0.2.7\n", "IngressRoute default/root spec.routes[0] (" + name, "10.0.0.1:8080 ready, 100%", "-> answer   a backend answers\n"} {
		if !strings.Contains(out, says) {
			t.Errorf("no %q in\n%s", says, out)
		}
	}
}

// Manifests say which VIP a pool will give, and who is to announce it.
func TestExplainManifestsWithPool(t *testing.T) {
	name := filepath.Join(t.TempDir(), "all.yaml")
	pool := explained + `---
apiVersion: fairlead.dev/v1alpha1
kind: Machine
metadata: {name: r1}
spec: {}
---
apiVersion: fairlead.dev/v1alpha1
kind: AddressPool
metadata: {name: public}
spec:
  addresses: [203.0.113.16/28]
`
	if err := os.WriteFile(name, []byte(pool), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := execute("explain", "-f", name, "http://root.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{" of AddressPool public spec.addresses (" + name, "by the root IngressRoutes that share an address\n", "for r1 to announce\n", "-> listener http-80, ", "-> answer   a backend answers\n"} {
		if !strings.Contains(out, says) {
			t.Errorf("no %q in\n%s", says, out)
		}
	}
	// The Gateway has a listener of its own, which takes what comes to its VIP.
	out, err = execute("explain", "-f", name, "http://app.example.com/api", "--method", "POST")
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"by Gateway default/edge (" + name, "-> listener http-80_default_edge, port 80, HTTP, bound to 203.0.113.", "not http-80, at other addresses", "-> answer   a backend answers\n"} {
		if !strings.Contains(out, says) {
			t.Errorf("no %q in\n%s", says, out)
		}
	}
	vip := regexp.MustCompile(`bound to ([0-9.]+)`).FindStringSubmatch(out)[1]
	out, err = execute("explain", "-f", name, "http://root.example.com/", "--vip", vip)
	if err != nil || !strings.Contains(out, "the proxy answers 404: no virtual host of http-80_default_edge has the name root.example.com") {
		t.Errorf("%v: the Gateway's VIP does not lead to its own listener:\n%s", err, out)
	}
}

func TestExplainRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"explain"}, "want fairlead explain URL"},
		{[]string{"explain", "app.example.com"}, "it has no scheme; want http://HOST"},
		{[]string{"explain", "http://a.test/", "--from", "here"}, `from "here": want an IP address`},
		{[]string{"explain", "tcp://192.0.2.1:80"}, "from: a flow needs the address of its client"},
		{[]string{"explain", "tcp://a.test:80"}, "names are not looked up"},
		{[]string{"explain", "http://a.test/", "-H", "nothing"}, `want "name: value"`},
		{[]string{"explain", "http://a.test/", "-o", "wide"}, "want text, json or yaml"},
		{[]string{"explain", "http://a.test/", "--filename="}, "want a file, a directory"},
		{[]string{"explain", "http://a.test/", "-f", ".", "--plane-console", "a:1"}, "[filename plane-console]"},
		{[]string{"explain", "http://a.test/", "--plane-console", "::1:80"}, "want a URL or host:port"},
	} {
		out, err := execute(c.args...)
		var u usageError
		if !errors.As(err, &u) || !strings.Contains(err.Error(), c.says) || out != "" {
			t.Errorf("%q: %v, prints %q; want a usage error with %q", c.args, err, out, c.says)
		}
	}
	_, err := execute("explain", "http://a.test/", "--plane-console", "127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "no plane answers") {
		t.Errorf("without a plane: %v", err)
	}
}

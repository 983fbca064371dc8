package e2e

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/examples"
	"fairlead.dev/lab/rig"
)

// The services of the examples.
const (
	newsOS1    = "os1-6f671e13-1fbd-4c6d-a1db-31a565bb019c"
	newsK8s1   = "k8s1-7877d3b4-a471-4f38-9459-69659a593b38"
	team01K8s1 = "up01-team01-app"
	team01OS1  = "up02-team01-d1b6f7a2-4c52-4f0e-9a53-2f6c0b7f9e11"
)

// newsHost is a host of the examples. Tests use it as the neighbour that must not
// notice what they do.
const newsHost = "news.example.com"

func namespace(name string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n"
}

// endpoints is the EndpointSlice of a service, as a discovery would write it.
func endpoints(namespace, service, portName string, backends ...rig.Backend) string {
	var b strings.Builder
	family, port := "IPv4", uint16(0)
	for _, e := range backends {
		if port = e.Address.Port(); e.Address.Addr().Is6() {
			family = "IPv6"
		}
	}
	fmt.Fprintf(&b, `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %[2]s-1
  namespace: %[1]s
  labels: {kubernetes.io/service-name: %[2]s, endpointslice.kubernetes.io/managed-by: tests.fairlead.dev}
addressType: %[3]s
ports: [{name: %[4]s, port: %[5]d}]
endpoints:
`, namespace, service, family, portName, port)
	for _, e := range backends {
		fmt.Fprintf(&b, "- {addresses: [%q], conditions: {ready: true}}\n", e.Address.Addr())
	}
	return b.String()
}

// service is a Service with port 80 and its backends, all of one cluster.
func service(namespace, name string, backends ...rig.Backend) string {
	s := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s}
spec:
  clusterIP: None
  ports: [{name: http, port: 80}]
`, name, namespace)
	if len(backends) == 0 {
		return s
	}
	return s + "---\n" + endpoints(namespace, name, "http", backends...)
}

// httpRoute is an HTTPRoute of the examples' Gateway; rules are YAML in flow style.
func httpRoute(namespace, name, host string, rules ...string) string {
	return httpRouteOf("edge", namespace, name, host, rules...)
}

func httpRouteOf(gateway, namespace, name, host string, rules ...string) string {
	hosts := "[]"
	if host != "" {
		hosts = fmt.Sprintf("[%q]", host)
	}
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s, namespace: %s}
spec:
  parentRefs: [{name: %s, namespace: default}]
  hostnames: %s
  rules:
  - %s
`, name, namespace, gateway, hosts, strings.Join(rules, "\n  - "))
}

// to is a rule that sends everything to one service.
func to(service string) string {
	return "{backendRefs: [{name: " + service + ", port: 80}]}"
}

// gateway is a Gateway of namespace default with one port for routes of all namespaces.
func gateway(name string, port int) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %s, namespace: default}
spec:
  gatewayClassName: fairlead
  listeners:
  - {name: http, port: %d, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
`, name, port)
}

// ingressRoute is an IngressRoute; without a host it is no root. Routes are YAML in
// flow style.
func ingressRoute(namespace, name, host string, routes ...string) string {
	root := ""
	if host != "" {
		root = "\n  virtualhost: {fqdn: " + host + "}"
	}
	return fmt.Sprintf(`apiVersion: contour.heptio.com/v1beta1
kind: IngressRoute
metadata: {name: %s, namespace: %s}
spec:%s
  routes:
  - %s
`, name, namespace, root, strings.Join(routes, "\n  - "))
}

// exampleFiles are the examples in the order in which kubectl applies them.
func exampleFiles(t *testing.T) []string {
	t.Helper()
	files, err := fs.Glob(examples.Files, "*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		raw, err := fs.ReadFile(examples.Files, f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(raw))
	}
	return all
}

// cluster are the lab's backends of a cluster.
func (s *site) cluster(name string) []rig.Backend {
	var of []rig.Backend
	for _, b := range s.backends {
		if b.Cluster == name {
			of = append(of, b)
		}
	}
	slices.SortFunc(of, func(a, b rig.Backend) int { return strings.Compare(a.Name, b.Name) })
	return of
}

// applyExamples applies the examples with the lab's backends behind their services.
func (s *site) applyExamples(t *testing.T) {
	t.Helper()
	k, o := s.cluster(k8s1.Name), s.cluster(os1.Name)
	s.apply(t, append(exampleFiles(t),
		endpoints("news-team", newsOS1, "port-80", o...), endpoints("news-team", newsK8s1, "http", k...),
		endpoints("team01", team01OS1, "port-80", o...), endpoints("team01", team01K8s1, "http", k...))...)
	for _, host := range []string{newsHost, "news.yahoo.co.jp", "team01-app.example.com"} {
		s.awaitAnswer(t, request{host: host}, 200)
	}
}

package e2e

import (
	"fmt"
	"net/netip"
	"testing"
)

// stream is the manifest of a TLSRoute or TCPRoute; spec is YAML in flow style.
func stream(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: %s\nmetadata: {name: %s, namespace: streams}\nspec: {%s}\n", kind, name, spec)
}

// TestTLSRoutes hands connections on by their server name, as they came and with TLS ended,
// at a port that IngressRoutes and other Gateways have too.
func TestTLSRoutes(t *testing.T) {
	s := shared(t)
	s.namespace(t, "streams")
	good := newAuthority(t, "good")
	backends := s.Lab.Machine(os1.Name)
	first, second := netip.AddrPortFrom(backends.Addr4(), 8543), netip.AddrPortFrom(backends.Addr4(), 8544)
	for at, name := range map[netip.AddrPort]string{first: "first", second: "second"} {
		chain, key := good.issue(t, "a.streams.test", "b.streams.test")
		serveTLS(t, backends, at, name, chain, key)
	}
	encrypted := func(name string, at netip.AddrPort) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: streams}
spec: {clusterIP: None, ports: [{name: tls, port: 443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: streams, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: tls, port: %[2]d}]
endpoints: [{addresses: [%[3]q]}]
`, name, at.Port(), at.Addr())
	}
	s.apply(t, encrypted("first", first), encrypted("second", second), service("streams", "plain", s.backends["os1-a"]),
		good.tlsSecret(t, "streams", "end", "end.streams.test"), `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: streams, namespace: streams}
spec:
  gatewayClassName: fairlead
  listeners:
  - {name: pass, port: 443, protocol: TLS, hostname: "*.streams.test", tls: {mode: Passthrough}}
  - {name: end, port: 443, protocol: TLS, hostname: end.streams.test, tls: {mode: Terminate, certificateRefs: [{name: end}]}}
  - {name: tcp, port: 5432, protocol: TCP}
`,
		stream("TLSRoute", "older", "parentRefs: [{name: streams}], hostnames: [a.streams.test], rules: [{backendRefs: [{name: first, port: 443}]}]"),
		stream("TLSRoute", "ended", "parentRefs: [{name: streams, sectionName: end}], hostnames: [end.streams.test], rules: [{backendRefs: [{name: plain, port: 80}]}]"),
		stream("TCPRoute", "sql", "parentRefs: [{name: streams, sectionName: tcp}], rules: [{backendRefs: [{name: plain, port: 80}]}]"))
	for _, route := range []ref{"TLSRoute streams/older", "TLSRoute streams/ended"} {
		s.awaitConditions(t, route, condition{"Accepted", "True", "Accepted", "the route is accepted"}, programmed)
	}
	from := func(backend string) func(secureAnswer) error {
		return func(a secureAnswer) error {
			if a.backend != backend {
				return fmt.Errorf("%s answers with the certificate for %s", a.backend, a.certificate)
			}
			return nil
		}
	}
	s.awaitTLS(t, good.pool, secureRequest{server: "a.streams.test"}, 200, from("first"))
	s.awaitTLS(t, good.pool, secureRequest{server: "end.streams.test", host: "any.host"}, 200, from("os1-a"))
	s.awaitClosed(t, "c.streams.test")

	// A TCP listener needs a VIP, and says so.
	s.awaitConditions(t, "TCPRoute streams/sql", condition{"Accepted", "True", "Accepted", "the route is accepted"},
		condition{"fairlead.dev/Programmed", "False", "AddressNotAssigned", "…make an AddressPool…"})

	// Who comes later has what is left.
	s.apply(t, stream("TLSRoute", "younger", "parentRefs: [{name: streams}], hostnames: [a.streams.test, b.streams.test], rules: [{backendRefs: [{name: second, port: 443}]}]"))
	s.awaitConditions(t, "TLSRoute streams/younger", programmed,
		condition{"fairlead.dev/ListenerConflict", "True", "ListenerLost", "server name a.streams.test belongs to the older TLSRoute streams/older"})
	s.awaitTLS(t, good.pool, secureRequest{server: "b.streams.test"}, 200, from("second"))
	s.awaitTLS(t, good.pool, secureRequest{server: "a.streams.test"}, 200, from("first"))
	s.kubectl(t, "--namespace", "streams", "delete", "tlsroute", "older")
	s.awaitTLS(t, good.pool, secureRequest{server: "a.streams.test"}, 200, from("second"))

	// A reference that leads nowhere closes connections, and nobody else's answer comes.
	s.apply(t, stream("TLSRoute", "younger", "parentRefs: [{name: streams}], hostnames: [a.streams.test], rules: [{backendRefs: [{name: gone, port: 443}]}]"))
	s.awaitConditions(t, "TLSRoute streams/younger", condition{"ResolvedRefs", "False", "BackendNotFound", "…Service streams/gone not found"})
	s.awaitClosed(t, "a.streams.test")
	s.awaitClosed(t, "b.streams.test")
}

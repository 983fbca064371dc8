package translate

import (
	"fmt"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

// passing is a Gateway that hands on connections for some names, and a TLSRoute of its own that takes names below these.
func passing(namespace, created string, names []string) string {
	var listeners, hosts []string
	for i, name := range names {
		listeners = append(listeners, fmt.Sprintf(`{name: l%d, port: 443, protocol: TLS, hostname: "*.%s", tls: {mode: Passthrough}}`, i, name))
		hosts = append(hosts, "www."+name)
	}
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: %[1]s, creationTimestamp: %[2]q}
spec: {gatewayClassName: fairlead, listeners: [%[3]s]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: route, namespace: %[1]s, creationTimestamp: "2020-01-01T00:00:00Z"}
spec: {parentRefs: [{name: edge}], hostnames: [%[4]s], rules: [{backendRefs: [{name: app, port: 443}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: %[1]s}
spec: {ports: [{port: 443}]}
`, namespace, created, strings.Join(listeners, ", "), strings.Join(hosts, ", "))
}

// TestOldestGatewayKeepsItsNames holds that of several Gateways whose listeners have one hostname only the oldest's
// TLSRoutes have names below it, whatever came first, and that the next one's have them when it goes.
func TestOldestGatewayKeepsItsNames(t *testing.T) {
	var names []string
	for i := range 16 { // of few, chance would give each to the right one now and then
		names = append(names, fmt.Sprintf("n%d.test", i))
	}
	old := passing("z", "2024-01-01T00:00:00Z", names)
	young, next := passing("a", "2024-01-03T00:00:00Z", names), passing("m", "2024-01-02T00:00:00Z", names)
	gateway := func(namespace string) snapshot.Key {
		return snapshot.Key{Kind: snapshot.KindGateway, Name: snapshot.Name{Namespace: namespace, Name: "edge"}}
	}
	for _, order := range [][]string{{old, young, next}, {young, next, old}} {
		s := snapshot.New()
		readYAML(t, s, []byte(ourClass+strings.Join(order, "---")))
		tr := full(input.Config{}, s)
		served := func(namespace string) {
			t.Helper()
			want := model.Object{Kind: "TLSRoute", Namespace: namespace, Name: "route"}
			for _, name := range names {
				host := tr.result().TLSHosts[model.HostKey{Listener: "https-443", Host: "www." + name}]
				if host == nil || host.Owner != want {
					t.Fatalf("www.%s: %+v, want it for %s", name, host, want)
				}
			}
		}
		served("z")
		s.Delete(gateway("z"))
		tr.Apply(s, []snapshot.Key{gateway("z")})
		served("m")
		readYAML(t, s, []byte(old))
		tr.Apply(s, []snapshot.Key{gateway("z")})
		served("z")
	}
}

package translate

import (
	"crypto/elliptic"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/certificate/certificatetest"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/input"
)

// randomPairs are certificates with their keys, of two kinds of key; they are valid in 2026.
var randomPairs = sync.OnceValue(func() [2]map[string][]byte {
	var list [2]map[string][]byte
	for i, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384()} {
		var t testing.T
		chain, key := certificatetest.Pair(&t, certificatetest.Key(&t, curve), "x.example.com", "*.example.com")
		list[i] = map[string][]byte{snapshot.CertificateKey: chain, snapshot.PrivateKeyKey: key}
	}
	return list
})

func (g generator) secret(o *corev1.Secret) {
	if g.chance(30) {
		o.Data = map[string][]byte{snapshot.PasswordKey: []byte(g.word("secret", "other", ""))}
		return
	}
	o.Type = corev1.SecretTypeTLS
	if g.chance(10) {
		o.Type = corev1.SecretTypeOpaque
	}
	o.Data = map[string][]byte{}
	for k, v := range randomPairs()[g.IntN(2)] {
		o.Data[k] = v
	}
	switch {
	case g.chance(10):
		o.Data[snapshot.PrivateKeyKey] = randomPairs()[g.IntN(2)][snapshot.PrivateKeyKey]
	case g.chance(5):
		o.Data[snapshot.CertificateKey] = []byte(g.word("", "x"))
	}
	if g.chance(20) {
		o.Data[snapshot.AuthorityKey] = []byte(g.word(authorityPEM(), "x"))
	}
}

// now moves the time on or back: before, while and after the certificates are valid.
func (g generator) now() time.Time {
	return time.Date(2025+g.IntN(3), 6, 1, 0, 0, 0, 0, time.UTC)
}

func (g generator) listener(i int) gatewayv1.Listener {
	l := gatewayv1.Listener{
		Name: gatewayv1.SectionName(fmt.Sprintf("l%d", i)), Port: pick(g, int32(80), 80, 443, 443, 8080, 0, 15000),
		Protocol: gatewayv1.HTTPProtocolType, Hostname: some(g, gatewayv1.Hostname(g.host())),
	}
	if l.Port == 443 || g.chance(10) {
		l.Protocol = gatewayv1.HTTPSProtocolType
	}
	if g.chance(10) && (!g.near || g.chance(20)) {
		l.Protocol = pick(g, gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType, gatewayv1.TLSProtocolType, gatewayv1.TCPProtocolType, gatewayv1.UDPProtocolType, "Odd")
	}
	if g.balanced && g.chance(60) {
		l.Protocol = pick(g, gatewayv1.TLSProtocolType, gatewayv1.TLSProtocolType, gatewayv1.TCPProtocolType, gatewayv1.TCPProtocolType, gatewayv1.UDPProtocolType)
		l.Port = pick(g, l.Port, 53, 90)
	}
	if g.balanced && (l.Protocol == gatewayv1.TCPProtocolType || l.Protocol == gatewayv1.UDPProtocolType) && g.chance(95) {
		l.TLS = nil
	} else if l.Protocol != gatewayv1.HTTPProtocolType && g.chance(95) {
		l.TLS = &gatewayv1.ListenerTLSConfig{}
		for range 1 + g.IntN(2) {
			l.TLS.CertificateRefs = append(l.TLS.CertificateRefs, g.secretRef())
		}
		if g.balanced && l.Protocol == gatewayv1.TLSProtocolType && g.chance(50) {
			mode := gatewayv1.TLSModePassthrough
			l.TLS.Mode = &mode
		}
		if g.chance(10) {
			l.TLS.Mode = some(g, pick(g, gatewayv1.TLSModeTerminate, gatewayv1.TLSModePassthrough))
			l.TLS.Options = map[gatewayv1.AnnotationKey]gatewayv1.AnnotationValue{
				gatewayv1.AnnotationKey(pick(g, gateway.OptionMinTLS, gateway.OptionMinTLS, "fairlead.dev/odd", "example.com/x")): gatewayv1.AnnotationValue(g.word("1.3", "1.0", "2")),
			}
		}
	}
	if g.chance(70) {
		from := pick(g, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromSame, gatewayv1.NamespacesFromSelector, "Odd")
		l.AllowedRoutes = &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: &from}}
		if g.chance(80) {
			l.AllowedRoutes.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": g.word("red", "blue")}}
		}
		if g.chance(20) {
			l.AllowedRoutes.Kinds = []gatewayv1.RouteGroupKind{{Kind: gatewayv1.Kind(g.word("HTTPRoute", "GRPCRoute", "TCPRoute"))}}
		}
	}
	return l
}

func (g generator) secretRef() gatewayv1.SecretObjectReference {
	ref := gatewayv1.SecretObjectReference{Name: gatewayv1.ObjectName(g.name()), Namespace: some(g, gatewayv1.Namespace(g.namespace()))}
	if g.chance(5) {
		ref.Kind = some(g, gatewayv1.Kind("ConfigMap"))
		ref.Group = some(g, gatewayv1.Group("example.com"))
	}
	return ref
}

func (g generator) gatewayTLS() *gatewayv1.GatewayTLSConfig {
	c := &gatewayv1.GatewayTLSConfig{}
	if g.chance(50) {
		c.Frontend = &gatewayv1.FrontendTLSConfig{Default: g.tlsConfig()}
		if g.chance(50) {
			c.Frontend.PerPort = []gatewayv1.TLSPortConfig{{Port: 443, TLS: g.tlsConfig()}}
		}
	}
	if g.chance(50) {
		ref := g.secretRef()
		c.Backend = &gatewayv1.GatewayBackendTLS{ClientCertificateRef: &ref}
	}
	return c
}

func (g generator) tlsConfig() gatewayv1.TLSConfig {
	if g.chance(20) {
		return gatewayv1.TLSConfig{}
	}
	v := &gatewayv1.FrontendTLSValidation{Mode: pick(g, "", gatewayv1.AllowValidOnly, gatewayv1.AllowInsecureFallback, "Odd")}
	for range g.IntN(3) {
		v.CACertificateRefs = append(v.CACertificateRefs, gatewayv1.ObjectReference{
			Kind: pick(g, gatewayv1.Kind("ConfigMap"), "ConfigMap", "Secret", "Service"), Name: gatewayv1.ObjectName(g.name()),
			Namespace: some(g, gatewayv1.Namespace(g.namespace())),
		})
	}
	return gatewayv1.TLSConfig{Validation: v}
}

func (g generator) allowedListeners() *gatewayv1.AllowedListeners {
	from := pick(g, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromSame, gatewayv1.NamespacesFromSelector, gatewayv1.NamespacesFromNone)
	return &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: &from, Selector: g.selector()}}
}

func (g generator) listenerSet(o *gatewayv1.ListenerSet) {
	o.Spec.ParentRef = gatewayv1.ParentGatewayReference{
		Name: gatewayv1.ObjectName(g.name()), Namespace: some(g, gatewayv1.Namespace(g.namespace())),
	}
	if g.chance(5) {
		o.Spec.ParentRef.Kind = some(g, gatewayv1.Kind("Service"))
	}
	for i := range 1 + g.IntN(3) {
		l := g.listener(i)
		o.Spec.Listeners = append(o.Spec.Listeners, gatewayv1.ListenerEntry(l))
	}
}

// TestWorldsHaveListeners holds that generated worlds have what they are generated for:
// comparing worlds in which nothing is served would prove nothing.
func TestWorldsHaveListeners(t *testing.T) {
	found := map[string]int{}
	for seed := range uint64(150) {
		w := newWorld(t, seed, "")
		for range 40 {
			w.change(5)
			result := w.tr.result()
			for _, l := range result.Listeners {
				found[field.When(l.ID.Own(), "own ")+string(l.Protocol)]++
				if l.ClientValidation != nil {
					found["client validation"]++
				}
			}
			for _, h := range result.TLSHosts {
				found[field.When(h.Owner.Kind != "IngressRoute" && len(h.Certificates) > 0, "certificate")]++
				found[field.When(h.Owner.Kind == "ListenerSet" && len(h.Certificates) > 0, "certificate of a set")]++
				found[field.When(h.Owner.Kind != "IngressRoute" && len(h.Certificates) == 0, "no certificate")]++
			}
			for k, h := range result.VirtualHosts {
				found[field.When(input.IsTLS(k.Listener) && len(h.Routes) > 0, "routes with TLS")]++
				found[field.When(k.Listener.Own() && len(h.Routes) > 0, "routes of an own listener")]++
			}
			for _, s := range result.Statuses {
				if s.ListenerSet != nil && slices.ContainsFunc(s.ListenerSet.Listeners, func(l gatewayv1.ListenerEntryStatus) bool { return l.AttachedRoutes > 0 }) {
					found["attached to a set"]++
				}
			}
			for range w.tr.host.PortKeepers.All() {
				found["ports lost"]++
			}
			found["certificates"] += len(result.Certificates)
		}
	}
	haveAll(t, found,
		"HTTP", "own HTTP", "HTTPS", "own HTTPS", "client validation", "certificate", "certificate of a set", "no certificate",
		"routes with TLS", "routes of an own listener", "attached to a set", "certificates", "ports lost",
	)
}

// base is what near worlds begin with: sound resources that refer to each other, so that
// changes have something to spoil.
const base = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: one}
spec: {controllerName: fairlead.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: one, namespace: a}
spec:
  gatewayClassName: one
  allowedListeners: {namespaces: {from: All}}
  tls: {frontend: {default: {validation: {caCertificateRefs: [{group: "", kind: ConfigMap, name: one}]}}}}
  listeners:
  - {name: l0, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
  - {name: l1, port: 443, protocol: HTTPS, hostname: "*.example.com", tls: {certificateRefs: [{name: one}]}, allowedRoutes: {namespaces: {from: All}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: two, namespace: a}
spec:
  gatewayClassName: one
  listeners:
  - {name: l0, port: 80, protocol: HTTP, hostname: "*.example.com", allowedRoutes: {namespaces: {from: All}}}
  - {name: l1, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: two}]}, allowedRoutes: {namespaces: {from: All}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: one, namespace: a}
spec:
  parentRef: {name: one}
  listeners:
  - {name: l0, port: 80, protocol: HTTP, hostname: x.example.com, allowedRoutes: {namespaces: {from: All}}}
  - {name: l1, port: 443, protocol: HTTPS, hostname: x.example.com, tls: {certificateRefs: [{name: one}]}, allowedRoutes: {namespaces: {from: All}}}
---
apiVersion: v1
kind: Secret
metadata: {name: one, namespace: a}
type: kubernetes.io/tls
stringData: {tls.crt: CERTIFICATE x.example.com, tls.key: KEY x.example.com}
---
apiVersion: v1
kind: Secret
metadata: {name: two, namespace: a}
type: kubernetes.io/tls
stringData: {tls.crt: CERTIFICATE y.example.com, tls.key: KEY y.example.com}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: one, namespace: a}
data: {ca.crt: CERTIFICATE one}
---
apiVersion: v1
kind: Service
metadata: {name: one, namespace: a}
spec: {ports: [{name: web, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: two, namespace: a}
spec: {ports: [{name: web, port: 80}]}
---
apiVersion: fairlead.dev/v1alpha1
kind: Machine
metadata: {name: one}
status: {addresses: [10.0.0.9]}
`

const basePool = `
apiVersion: fairlead.dev/v1alpha1
kind: AddressPool
metadata: {name: one}
spec: {addresses: [192.0.2.0/29]}
`

// lay puts what near worlds begin with into one.
func (w *world) lay() {
	s := snapshot.New()
	readYAML(w.t, s, []byte(base))
	if w.g.chance(50) {
		readYAML(w.t, s, []byte(basePool))
	}
	keys := s.Keys()
	for _, k := range keys {
		from := world{snapshot: s}
		w.set(from.object(k).(metav1.Object), k)
	}
	w.apply(keys)
	w.record()
}

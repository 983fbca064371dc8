package translate

import (
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/certificate/certificatetest"
)

// authorityPEM is a CA certificate, the same for a whole run.
var authorityPEM = sync.OnceValue(func() string {
	var t testing.T
	chain, _ := certificatetest.Sign(&t, certificatetest.Key(&t, elliptic.P256()), &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0),
		IsCA: true, BasicConstraintsValid: true,
	})
	return string(chain)
})

func (g generator) parentRefs() []gatewayv1.ParentReference {
	var refs []gatewayv1.ParentReference
	for range 1 + g.IntN(2) {
		ref := gatewayv1.ParentReference{Name: gatewayv1.ObjectName(g.name()), Namespace: some(g, gatewayv1.Namespace(g.namespace()))}
		if g.chance(30) {
			ref.SectionName = some(g, gatewayv1.SectionName(pick(g, "l0", "l1")))
			ref.Port = some(g, int32(80))
		}
		switch {
		case g.chance(5):
			ref.Kind = some(g, gatewayv1.Kind("Service"))
		case g.chance(20):
			ref.Kind = some(g, gatewayv1.Kind("ListenerSet"))
		}
		refs = append(refs, ref)
	}
	return refs
}

func (g generator) hostnames() []gatewayv1.Hostname {
	var names []gatewayv1.Hostname
	for range g.IntN(3) {
		host := g.host()
		if g.chance(90) {
			host = strings.ToLower(pick(g, "x.example.com", "y.example.com", "*.example.com"))
		}
		names = append(names, gatewayv1.Hostname(host))
	}
	return names
}

func (g generator) backendRef() gatewayv1.BackendRef {
	ref := gatewayv1.BackendRef{}
	ref.Name, ref.Port = gatewayv1.ObjectName(g.name()), some(g, g.port())
	if g.chance(90) {
		port := int32(80)
		ref.Port = &port
	}
	if g.chance(20) {
		ref.Namespace = some(g, gatewayv1.Namespace(g.namespace()))
	}
	ref.Weight = some(g, pick(g, int32(0), 1, 50, 50, 1_000_000))
	return ref
}

func (g generator) duration() *gatewayv1.Duration {
	return some(g, gatewayv1.Duration(g.rare("1.5s", "1s", "0s", "2s", "2m")))
}

// rare is seldom the first, mostly one of the others.
func (g generator) rare(first string, others ...string) string {
	if g.chance(5) {
		return first
	}
	return g.word(others...)
}

func (g generator) headers() []gatewayv1.HTTPHeader {
	var list []gatewayv1.HTTPHeader
	for range g.IntN(3) {
		list = append(list, gatewayv1.HTTPHeader{Name: gatewayv1.HTTPHeaderName(g.rare("Host", "X-A", "x-b", "x-c", "x-d", "x-e", "x-f")), Value: g.word("1", "2", "%")})
	}
	return list
}

func (g generator) filter() gatewayv1.HTTPRouteFilter {
	f := gatewayv1.HTTPRouteFilter{Type: pick(g,
		gatewayv1.HTTPRouteFilterRequestHeaderModifier, gatewayv1.HTTPRouteFilterResponseHeaderModifier, gatewayv1.HTTPRouteFilterRequestMirror,
		gatewayv1.HTTPRouteFilterRequestMirror, gatewayv1.HTTPRouteFilterRequestRedirect, gatewayv1.HTTPRouteFilterURLRewrite, gatewayv1.HTTPRouteFilterURLRewrite, gatewayv1.HTTPRouteFilterCORS,
		gatewayv1.HTTPRouteFilterExtensionRef)}
	switch {
	case g.chance(3):
		f.Type = "Odd"
	case g.chance(3):
		return f
	}
	edits := &gatewayv1.HTTPHeaderFilter{Set: g.headers(), Add: g.headers()}
	if g.chance(30) {
		edits.Remove = []string{g.word("X-D", "x-e")}
	}
	path := &gatewayv1.HTTPPathModifier{Type: pick(g, gatewayv1.FullPathHTTPPathModifier, gatewayv1.PrefixMatchHTTPPathModifier)}
	full, prefix := g.rare("x", "/", "/new"), g.rare("x", "", "/", "/new/")
	path.ReplaceFullPath, path.ReplacePrefixMatch = &full, &prefix
	if path.Type == gatewayv1.PrefixMatchHTTPPathModifier && g.chance(60) {
		path = nil
	}
	f.RequestHeaderModifier, f.ResponseHeaderModifier = edits, edits
	f.RequestMirror = &gatewayv1.HTTPRequestMirrorFilter{BackendRef: g.backendRef().BackendObjectReference, Percent: some(g, int32(g.IntN(102)))}
	f.RequestMirror.BackendRef.Port = ptr(int32(80))
	if f.RequestMirror.Percent == nil && g.chance(50) {
		f.RequestMirror.Fraction = &gatewayv1.Fraction{Numerator: int32(g.IntN(3)), Denominator: some(g, int32(2))}
	}
	f.RequestRedirect = &gatewayv1.HTTPRequestRedirectFilter{
		Scheme: some(g, g.word("http", "https")), Hostname: some(g, gatewayv1.PreciseHostname(g.rare("*", "x.example.com"))), Path: path,
		Port: some(g, int32(8443)), StatusCode: some(g, pick(g, 301, 302, 308)),
	}
	f.URLRewrite = &gatewayv1.HTTPURLRewriteFilter{Hostname: some(g, gatewayv1.PreciseHostname(g.rare("*", "x.example.com"))), Path: path}
	f.CORS = &gatewayv1.HTTPCORSFilter{
		AllowOrigins:     []gatewayv1.CORSOrigin{gatewayv1.CORSOrigin(g.rare("x", "*", "https://a.example.com", "https://*.example.com:443"))},
		AllowMethods:     []gatewayv1.HTTPMethodWithWildcard{gatewayv1.HTTPMethodWithWildcard(g.word("*", "GET"))},
		AllowHeaders:     []gatewayv1.HTTPHeaderName{gatewayv1.HTTPHeaderName(g.word("*", "x-a"))},
		AllowCredentials: some(g, true), MaxAge: int32(g.IntN(3)),
	}
	f.ExtensionRef = &gatewayv1.LocalObjectReference{Group: "example.com", Kind: "Filter", Name: "x"}
	return f
}

func (g generator) filters() []gatewayv1.HTTPRouteFilter {
	var list []gatewayv1.HTTPRouteFilter
	if g.chance(50) {
		return nil
	}
	for range 1 + g.IntN(5)/4 {
		list = append(list, g.filter())
	}
	return list
}

func (g generator) session() *gatewayv1.SessionPersistence {
	if g.chance(80) {
		return nil
	}
	s := &gatewayv1.SessionPersistence{SessionName: some(g, g.word("a", "b"))}
	switch {
	case g.chance(30):
		s.Type = ptr(gatewayv1.HeaderBasedSessionPersistence)
	case g.chance(30):
		s.AbsoluteTimeout, s.CookieConfig = g.duration(), &gatewayv1.CookieConfig{LifetimeType: some(g, gatewayv1.PermanentCookieLifetimeType)}
	}
	return s
}

func (g generator) httpRoute(o *gatewayv1.HTTPRoute) {
	o.Spec.ParentRefs, o.Spec.Hostnames = g.parentRefs(), g.hostnames()
	for range g.IntN(3) {
		rule := gatewayv1.HTTPRouteRule{Filters: g.filters(), SessionPersistence: g.session(), Name: some(g, gatewayv1.SectionName(pick(g, "r0", "r1")))}
		for range g.IntN(3) {
			rule.Matches = append(rule.Matches, g.match())
		}
		for range g.IntN(3) {
			ref := gatewayv1.HTTPBackendRef{BackendRef: g.backendRef()}
			if g.chance(10) {
				ref.Filters = g.filters()
			}
			rule.BackendRefs = append(rule.BackendRefs, ref)
		}
		if g.chance(20) {
			rule.Timeouts = &gatewayv1.HTTPRouteTimeouts{Request: g.duration(), BackendRequest: g.duration()}
		}
		if g.chance(20) {
			rule.Retry = &gatewayv1.HTTPRouteRetry{Attempts: some(g, 1+g.IntN(3)), Backoff: g.duration()}
			rule.Retry.Codes = []gatewayv1.HTTPRouteRetryStatusCode{pick(g, gatewayv1.HTTPRouteRetryStatusCode(500), 500, 503, 503, 200)}
		}
		o.Spec.Rules = append(o.Spec.Rules, rule)
	}
}

func (g generator) grpcRoute(o *gatewayv1.GRPCRoute) {
	o.Spec.ParentRefs, o.Spec.Hostnames = g.parentRefs(), g.hostnames()
	for range g.IntN(3) {
		rule := gatewayv1.GRPCRouteRule{SessionPersistence: g.session(), Name: some(g, gatewayv1.SectionName(pick(g, "r0", "r1")))}
		for _, f := range g.filters() {
			rule.Filters = append(rule.Filters, gatewayv1.GRPCRouteFilter{
				Type: gatewayv1.GRPCRouteFilterType(f.Type), RequestHeaderModifier: f.RequestHeaderModifier, ResponseHeaderModifier: f.ResponseHeaderModifier,
				RequestMirror: f.RequestMirror, ExtensionRef: f.ExtensionRef,
			})
		}
		for range g.IntN(3) {
			m := gatewayv1.GRPCRouteMatch{}
			if g.chance(80) {
				m.Method = &gatewayv1.GRPCMethodMatch{
					Type:    some(g, pick(g, gatewayv1.GRPCMethodMatchExact, gatewayv1.GRPCMethodMatchRegularExpression)),
					Service: some(g, g.word("a.Shop", "a.Cart", "a/b")), Method: some(g, g.word("Buy", "List", "")),
				}
			}
			if g.chance(30) {
				m.Headers = []gatewayv1.GRPCHeaderMatch{{Name: gatewayv1.GRPCHeaderName(g.word("x-a", "x-b")), Value: g.word("1", "2"), Type: some(g, gatewayv1.GRPCHeaderMatchRegularExpression)}}
			}
			rule.Matches = append(rule.Matches, m)
		}
		for range g.IntN(3) {
			rule.BackendRefs = append(rule.BackendRefs, gatewayv1.GRPCBackendRef{BackendRef: g.backendRef()})
		}
		o.Spec.Rules = append(o.Spec.Rules, rule)
	}
}

func (g generator) backendTLS(o *gatewayv1.BackendTLSPolicy) {
	for range 1 + g.IntN(5)/4 {
		ref := gatewayv1.LocalPolicyTargetReferenceWithSectionName{SectionName: some(g, gatewayv1.SectionName(pick(g, "web", "web", "web", "admin", "odd")))}
		ref.Kind, ref.Name = gatewayv1.Kind(g.rare("Pod", "Service")), gatewayv1.ObjectName(g.name())
		o.Spec.TargetRefs = append(o.Spec.TargetRefs, ref)
	}
	v := &o.Spec.Validation
	v.Hostname = gatewayv1.PreciseHostname(g.word("b.example.com", "c.example.com"))
	for range 1 + g.IntN(2) {
		v.CACertificateRefs = append(v.CACertificateRefs, gatewayv1.LocalObjectReference{
			Kind: gatewayv1.Kind(g.rare("Pod", "ConfigMap", "ConfigMap", "ConfigMap", "Secret")), Name: gatewayv1.ObjectName(g.name()),
		})
	}
	if g.chance(40) {
		v.CACertificateRefs = nil
		v.WellKnownCACertificates = ptr(gatewayv1.WellKnownCACertificatesType(g.rare("Odd", "System")))
	}
	if g.chance(20) {
		v.SubjectAltNames = []gatewayv1.SubjectAltName{{Type: pick(g, gatewayv1.HostnameSubjectAltNameType, gatewayv1.URISubjectAltNameType, "Odd"), Hostname: "d.example.com", URI: "spiffe://a/b"}}
	}
}

// TestWorldsHaveRoutes holds that generated worlds reach what the other tests are to compare.
func TestWorldsHaveRoutes(t *testing.T) {
	seen := map[string]int{}
	note := func(is bool, what string) {
		if is {
			seen[what]++
		}
	}
	look := func(w *world) {
		result := w.tr.result()
		for _, h := range result.VirtualHosts {
			for _, r := range h.Routes {
				note(r.Owner.Kind == string(snapshot.KindGRPCRoute), "GRPCRoute")
				note(r.Redirect != nil, "redirect")
				note(r.CORS != nil, "cors")
				note(r.RequestHeaders != nil, "edits")
				if f := r.Forward; f != nil {
					note(len(f.Mirrors) > 0, "mirror")
					note(f.Retry != nil && r.Owner.Kind == string(snapshot.KindHTTPRoute), "retry")
					note(f.Sticky != nil, "session")
					note(f.Path != nil && r.Owner.Kind == string(snapshot.KindHTTPRoute), "rewrite")
				}
			}
		}
		for _, g := range result.Groups {
			note(g.Protocol == model.BackendHTTP2, "HTTP/2 backends")
			note(g.TLS != nil, "TLS backends")
		}
		note(w.tr.graph.Sizes()["accepted routes"].Values > 0, "rejected")
		for _, f := range w.tr.route.Routes.All() {
			note(f.Partial != "", "partially invalid")
		}
		for _, s := range result.Statuses {
			if s.BackendTLSPolicy != nil {
				for _, a := range s.BackendTLSPolicy.Ancestors {
					note(true, "ancestor "+string(*a.AncestorRef.Kind))
				}
			}
		}
	}
	for seed := range uint64(90) {
		w := newWorld(t, seed, "")
		for i := range 120 {
			if w.change(5); i%10 == 0 {
				look(w)
			}
		}
	}
	haveAll(t, seen,
		"GRPCRoute", "redirect", "cors", "edits", "mirror", "retry", "session", "rewrite", "HTTP/2 backends", "TLS backends", "rejected", "partially invalid",
		"ancestor Gateway", "ancestor Service",
	)
	t.Log(seen)
}

package translate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"sync"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// authorityPEM is a CA certificate, the same for a whole run.
var authorityPEM = sync.OnceValue(func() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
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
		if g.chance(80) {
			host = strings.ToLower(pick(g, "x.example.com", "y.example.com", "*.example.com"))
		}
		names = append(names, gatewayv1.Hostname(host))
	}
	return names
}

func (g generator) backendRef() gatewayv1.BackendRef {
	ref := gatewayv1.BackendRef{}
	ref.Name, ref.Port = gatewayv1.ObjectName(g.name()), some(g, g.port())
	if g.chance(80) {
		ref.Port = some(g, int32(80))
	}
	ref.Namespace = some(g, gatewayv1.Namespace(g.namespace()))
	ref.Weight = some(g, pick(g, int32(0), 1, 50, 50, 1_000_000))
	return ref
}

func (g generator) duration() *gatewayv1.Duration {
	return some(g, gatewayv1.Duration(g.word("1s", "0s", "500ms", "2m", "x", "-1s", "1.5s")))
}

func (g generator) headers() []gatewayv1.HTTPHeader {
	var list []gatewayv1.HTTPHeader
	for range g.IntN(3) {
		list = append(list, gatewayv1.HTTPHeader{Name: gatewayv1.HTTPHeaderName(g.word("X-A", "x-b", "x-c", "x-d", "Host")), Value: g.word("1", "2", "%")})
	}
	return list
}

func (g generator) filter() gatewayv1.HTTPRouteFilter {
	f := gatewayv1.HTTPRouteFilter{Type: pick(g,
		gatewayv1.HTTPRouteFilterRequestHeaderModifier, gatewayv1.HTTPRouteFilterResponseHeaderModifier, gatewayv1.HTTPRouteFilterRequestMirror,
		gatewayv1.HTTPRouteFilterRequestMirror, gatewayv1.HTTPRouteFilterRequestRedirect, gatewayv1.HTTPRouteFilterURLRewrite, gatewayv1.HTTPRouteFilterCORS,
		gatewayv1.HTTPRouteFilterExtensionRef, "Odd")}
	if g.chance(5) {
		return f
	}
	edits := &gatewayv1.HTTPHeaderFilter{Set: g.headers(), Add: g.headers()}
	if g.chance(30) {
		edits.Remove = []string{g.word("X-D", "x-e")}
	}
	path := &gatewayv1.HTTPPathModifier{Type: pick(g, gatewayv1.FullPathHTTPPathModifier, gatewayv1.PrefixMatchHTTPPathModifier)}
	path.ReplaceFullPath, path.ReplacePrefixMatch = some(g, g.path()), some(g, g.path())
	if g.chance(50) {
		path = nil
	}
	f.RequestHeaderModifier, f.ResponseHeaderModifier = edits, edits
	f.RequestMirror = &gatewayv1.HTTPRequestMirrorFilter{BackendRef: g.backendRef().BackendObjectReference, Percent: some(g, int32(g.IntN(102)))}
	if f.RequestMirror.Percent == nil && g.chance(50) {
		f.RequestMirror.Fraction = &gatewayv1.Fraction{Numerator: int32(g.IntN(3)), Denominator: some(g, int32(2))}
	}
	f.RequestRedirect = &gatewayv1.HTTPRequestRedirectFilter{
		Scheme: some(g, g.word("http", "https")), Hostname: some(g, gatewayv1.PreciseHostname(g.host())), Path: path,
		Port: some(g, g.port()), StatusCode: some(g, pick(g, 301, 302, 308, 200)),
	}
	f.URLRewrite = &gatewayv1.HTTPURLRewriteFilter{Hostname: some(g, gatewayv1.PreciseHostname(g.host())), Path: path}
	f.CORS = &gatewayv1.HTTPCORSFilter{
		AllowOrigins:     []gatewayv1.CORSOrigin{gatewayv1.CORSOrigin(g.word("*", "https://a.example.com", "https://*.example.com:443", "x"))},
		AllowMethods:     []gatewayv1.HTTPMethodWithWildcard{gatewayv1.HTTPMethodWithWildcard(g.word("*", "GET"))},
		AllowHeaders:     []gatewayv1.HTTPHeaderName{gatewayv1.HTTPHeaderName(g.word("*", "x-a"))},
		AllowCredentials: some(g, true), MaxAge: int32(g.IntN(3)),
	}
	f.ExtensionRef = &gatewayv1.LocalObjectReference{Group: "example.com", Kind: "Filter", Name: "x"}
	return f
}

func (g generator) filters() []gatewayv1.HTTPRouteFilter {
	var list []gatewayv1.HTTPRouteFilter
	if g.chance(70) {
		return nil
	}
	for range 1 + g.IntN(2) {
		list = append(list, g.filter())
	}
	return list
}

func (g generator) session() *gatewayv1.SessionPersistence {
	if g.chance(90) {
		return nil
	}
	return &gatewayv1.SessionPersistence{
		SessionName: some(g, g.word("a", "b")), AbsoluteTimeout: g.duration(),
		Type:         some(g, pick(g, gatewayv1.CookieBasedSessionPersistence, gatewayv1.HeaderBasedSessionPersistence)),
		CookieConfig: some(g, gatewayv1.CookieConfig{LifetimeType: some(g, gatewayv1.PermanentCookieLifetimeType)}),
	}
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
		if g.chance(10) {
			rule.Timeouts = &gatewayv1.HTTPRouteTimeouts{Request: g.duration(), BackendRequest: g.duration()}
		}
		if g.chance(10) {
			rule.Retry = &gatewayv1.HTTPRouteRetry{Attempts: some(g, g.IntN(4)), Backoff: g.duration()}
			rule.Retry.Codes = []gatewayv1.HTTPRouteRetryStatusCode{pick(g, gatewayv1.HTTPRouteRetryStatusCode(500), 503, 200)}
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
	for range 1 + g.IntN(2) {
		ref := gatewayv1.LocalPolicyTargetReferenceWithSectionName{SectionName: some(g, gatewayv1.SectionName(pick(g, "web", "admin", "odd")))}
		ref.Kind, ref.Name = pick(g, gatewayv1.Kind("Service"), "Service", "Service", "Pod"), gatewayv1.ObjectName(g.name())
		o.Spec.TargetRefs = append(o.Spec.TargetRefs, ref)
	}
	v := &o.Spec.Validation
	v.Hostname = gatewayv1.PreciseHostname(g.word("b.example.com", "c.example.com"))
	for range g.IntN(3) {
		v.CACertificateRefs = append(v.CACertificateRefs, gatewayv1.LocalObjectReference{
			Kind: pick(g, gatewayv1.Kind("ConfigMap"), "ConfigMap", "Secret", "Pod"), Name: gatewayv1.ObjectName(g.name()),
		})
	}
	if g.chance(30) {
		v.WellKnownCACertificates = some(g, pick(g, gatewayv1.WellKnownCACertificatesSystem, "Odd"))
	}
	if g.chance(20) {
		v.SubjectAltNames = []gatewayv1.SubjectAltName{{Type: pick(g, gatewayv1.HostnameSubjectAltNameType, gatewayv1.URISubjectAltNameType, "Odd"), Hostname: "d.example.com", URI: "spiffe://a/b"}}
	}
}

package translate

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
)

// policyKinds are the kinds that change in a world about policies.
var policyKinds = []snapshot.Kind{
	snapshot.KindRoutePolicy, snapshot.KindRoutePolicy, snapshot.KindRoutePolicy, snapshot.KindClientPolicy, snapshot.KindClientPolicy, snapshot.KindBackendPolicy,
	snapshot.KindHTTPRoute, snapshot.KindGRPCRoute, snapshot.KindIngressRoute, snapshot.KindService, snapshot.KindGateway, snapshot.KindListenerSet,
	snapshot.KindGatewayClass, snapshot.KindReferenceGrant, snapshot.KindAddressPool, snapshot.KindBackendTLSPolicy,
}

// newPolicyWorld is a world about policies: most of what they are attached to and ask is
// there from the start.
func newPolicyWorld(t testing.TB, seed uint64, strange string) *world {
	w := newWorld(t, seed, strange)
	w.g.near, w.g.kinds = true, policyKinds
	w.config.RootNamespaces = nil
	w.tr = New(w.config)
	ground := `
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
  listeners: [{name: l0, port: 80, protocol: HTTP}, {name: l1, port: 8080, protocol: HTTP, hostname: "*.example.com"}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: one, namespace: a}
spec: {parentRef: {name: one}, listeners: [{name: l0, port: 81, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: two, namespace: a}
spec:
  parentRefs: [{name: one}, {kind: ListenerSet, name: one}]
  hostnames: [x.example.com]
  rules: [{name: r0, backendRefs: [{name: one, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: two, namespace: a}
spec: {parentRefs: [{name: one}], hostnames: [z.example.com], rules: [{name: r1, backendRefs: [{name: one, port: 80}]}]}
---
apiVersion: contour.heptio.com/v1beta1
kind: IngressRoute
metadata: {name: two, namespace: a}
spec: {virtualhost: {fqdn: w.example.com}, routes: [{match: /, services: [{name: one, port: 80}]}, {match: /b, delegate: {name: one}}]}
---
apiVersion: contour.heptio.com/v1beta1
kind: IngressRoute
metadata: {name: one, namespace: a}
spec: {routes: [{match: /b, services: [{name: two, port: 80}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: one, namespace: a}
spec: {ports: [{name: web, port: 80}, {name: udp, port: 81, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: two, namespace: a}
spec: {ports: [{name: web, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: one, namespace: b}
spec: {ports: [{name: web, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: one, namespace: fairlead-system}
spec: {ports: [{name: web, port: 80}]}
`
	w.add(ground)
	return w
}

// TestPoliciesIncrementalIsFull changes worlds about policies at random and compares after
// each change; at the end nothing is remembered of what was deleted.
func TestPoliciesIncrementalIsFull(t *testing.T) {
	incrementalIsFull(t, newPolicyWorld)
}

// FuzzPolicies follows worlds about policies with strange texts in all places.
func FuzzPolicies(f *testing.F) {
	fuzzWorlds(f, newPolicyWorld, "", "x", "\xff", "a/b", "/\x00", "10.0.0.0/99", "\n", "é", "999999h")
}

func (g generator) targets(kinds ...snapshot.Kind) []gatewayv1.LocalPolicyTargetReferenceWithSectionName {
	var refs []gatewayv1.LocalPolicyTargetReferenceWithSectionName
	for range 1 + g.IntN(2) {
		ref := gatewayv1.LocalPolicyTargetReferenceWithSectionName{}
		kind := pick(g, kinds...)
		if g.chance(3) {
			kind = snapshot.KindMachine
		}
		ref.Kind, ref.Name = gatewayv1.Kind(kind), gatewayv1.ObjectName(g.name())
		switch kind {
		case snapshot.KindService:
		case snapshot.KindIngressRoute:
			ref.Group = "contour.heptio.com"
		default:
			ref.Group = gatewayv1.GroupName
		}
		if g.chance(20) {
			section := gatewayv1.SectionName(g.word("l0", "l1", "web", "admin", "r0", ""))
			ref.SectionName = &section
		}
		refs = append(refs, ref)
	}
	return refs
}

func (g generator) serviceRef() gatewayv1.BackendObjectReference {
	port := gatewayv1.PortNumber(80)
	ref := gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(g.name()), Port: &port}
	if g.chance(5) {
		ref.Port = some(g, gatewayv1.PortNumber(81))
	}
	if g.chance(20) {
		ref.Namespace = some(g, gatewayv1.Namespace(g.namespace()))
	}
	if g.chance(5) {
		ref.Kind = some(g, gatewayv1.Kind("Pod"))
	}
	return ref
}

func (g generator) policyDuration() gatewayv1.Duration {
	if g.chance(5) {
		return gatewayv1.Duration(g.word("x", "100h"))
	}
	return gatewayv1.Duration(g.word("", "1s", "2s", "500ms"))
}

func (g generator) routePolicy(o *v1alpha1.RoutePolicy) {
	o.Spec.TargetRefs = g.targets(snapshot.KindGateway, snapshot.KindListenerSet, snapshot.KindHTTPRoute, snapshot.KindHTTPRoute, snapshot.KindGRPCRoute, snapshot.KindIngressRoute)
	if g.chance(40) {
		o.Spec.RateLimit = &v1alpha1.RateLimit{Requests: int64(g.IntN(4)), Per: g.policyDuration(), Burst: some(g, int64(1+g.IntN(2)))}
	}
	if g.chance(30) {
		o.Spec.GlobalRateLimit = &v1alpha1.GlobalRateLimit{Service: g.serviceRef(), Domain: g.word("edge", "edge", "edge", ""), Timeout: g.policyDuration(), FailOpen: g.chance(50)}
		for range 1 + g.IntN(2) {
			o.Spec.GlobalRateLimit.Descriptor = append(o.Spec.GlobalRateLimit.Descriptor, v1alpha1.RateLimitEntry{
				Key: g.word("a", "b"), Header: g.word("X-A", "x-b"), ClientAddress: g.chance(5), Value: pick(g, "", "", "", "", g.word("v")),
			})
		}
	}
	if g.chance(40) {
		o.Spec.Authorization = &v1alpha1.Authorization{
			Service: g.serviceRef(), Protocol: v1alpha1.AuthorizationProtocol(g.word("", "GRPC", "HTTP", "HTTP")), Timeout: g.policyDuration(), FailOpen: g.chance(50),
		}
		if g.chance(30) {
			o.Spec.Authorization.HTTP = &v1alpha1.AuthorizationHTTPOptions{PathPrefix: g.path(), RequestHeaders: []string{g.word("X-A", "x-b")}}
		}
	}
	if g.chance(30) {
		o.Spec.Addresses = &v1alpha1.AddressFilter{Allow: []string{g.word("10.0.0.0/8", "::/0", "10.0.0.1", "::ffff:10.0.0.0/104", "x")}, Deny: []string{g.word("10.0.0.0/9")}}
	}
	o.Spec.MaxRequestBytes = some(g, int64(g.IntN(3)))
	if n := o.Spec.MaxRequestBytes; n != nil { // without further draws
		is := *n == 1
		o.Spec.GRPCWeb = &is
		o.Spec.AccessLog = &v1alpha1.RouteAccessLog{Requests: []v1alpha1.LoggedRequests{v1alpha1.LogErrors, v1alpha1.LogNone, "Some"}[*n]}
		o.Spec.Compression = []*v1alpha1.Compression{
			{Algorithms: []v1alpha1.CompressionAlgorithm{"br", "lzma", "br"}, ContentTypes: []string{"text/HTML", "text", "application/grpc"}},
			{},
			{Disabled: true},
		}[*n]
	}
}

func (g generator) clientPolicy(o *v1alpha1.ClientPolicy) {
	o.Spec.TargetRefs = g.targets(snapshot.KindGatewayClass, snapshot.KindGateway, snapshot.KindListenerSet)
	o.Spec.TrustedHops = some(g, int32(g.IntN(8)-1))
	if n := o.Spec.TrustedHops; n != nil { // without further draws
		is := *n%2 == 0
		o.Spec.Forwarded = &v1alpha1.ClientForwarded{Host: &is}
		o.Spec.ErrorPages = []v1alpha1.ErrorPage{{Statuses: []intstr.IntOrString{intstr.FromInt32(400 + *n), intstr.FromString("5xx")}, Body: "page"}}
	}
	o.Spec.AcceptProxyProtocol, o.Spec.HTTP3 = some(g, g.chance(50)), some(g, g.chance(50))
	o.Spec.Limits = some(g, v1alpha1.ClientLimits{MaxConnections: some(g, int32(g.IntN(9))), MaxStreams: some(g, int32(1+g.IntN(3)))})
	o.Spec.Timeouts = some(g, v1alpha1.ClientTimeouts{Headers: some(g, g.policyDuration()), Idle: some(g, g.policyDuration())})
	o.Spec.TLS = some(g, v1alpha1.ClientTLS{MinVersion: g.word("", "1.2", "1.3")})
	if g.chance(40) {
		o.Spec.AccessLog = &v1alpha1.AccessLog{
			Destination: v1alpha1.LogDestination(g.word("", "File", "OTLP", "Off")), Collector: some(g, g.serviceRef()), ErrorsOnly: g.chance(50),
			Fields: []v1alpha1.AccessLogField{v1alpha1.AccessLogField(g.word("time", "status"))},
		}
		if n := o.Spec.TrustedHops; n != nil { // without further draws
			percent := intstr.FromInt32(*n * 30)
			o.Spec.AccessLog.SamplePercent, o.Spec.AccessLog.Fields = &percent, nil
			o.Spec.AccessLog.Template = []string{"{status} {request.referer}", "{status} {request.cookie}"}[(*n+1)%2]
		}
	}
	if g.chance(40) {
		percent := pick(g, intstr.FromInt32(5), intstr.FromInt32(101), intstr.FromString(g.word("0.5", "NaN")))
		o.Spec.Tracing = &v1alpha1.Tracing{Collector: g.serviceRef(), SamplePercent: &percent, ServiceName: g.word("", "edge")}
	}
}

func (g generator) backendPolicy(o *v1alpha1.BackendPolicy) {
	o.Spec.TargetRefs = g.targets(snapshot.KindService)
	o.Spec.SendProxyProtocol = some(g, g.chance(50))
	o.Spec.OutlierDetection = some(g, v1alpha1.OutlierDetection{ConsecutiveErrors: some(g, int32(g.IntN(3))), Interval: g.policyDuration()})
	o.Spec.CircuitBreaker = some(g, v1alpha1.CircuitBreaker{MaxRequests: some(g, int32(g.IntN(3)))})
	o.Spec.RetryBudget = some(g, v1alpha1.RetryBudget{Percent: int32(g.IntN(3))})
	if b := o.Spec.RetryBudget; b != nil { // without further draws: other worlds lack what they are made for
		o.Spec.IdleTimeout = []gatewayv1.Duration{"", "4s", "x"}[b.Percent]
		o.Spec.RetryMethods = [][]v1alpha1.RetryMethod{{"PUT", "GET"}, {"POST"}, {"PUT", "POST"}}[b.Percent]
	}
}

// TestWorldsHavePolicies holds that worlds about policies show what policies do.
func TestWorldsHavePolicies(t *testing.T) {
	found := map[string]int{}
	for seed := range uint64(40) {
		w := newPolicyWorld(t, seed, "")
		for range 40 {
			w.change(4)
			result := w.tr.result()
			for k, h := range result.VirtualHosts {
				found[field.When(h.Policy != nil, "host")]++
				found[field.When(h.Policy != nil && k.Listener.Own(), "host of an own listener")]++
				found[field.When(len(h.Policy.Groups()) > 0, "service of a host")]++
				for _, r := range h.Routes {
					found[field.When(r.Policy != nil, "route "+r.Owner.Kind)]++
				}
			}
			for _, l := range result.Listeners {
				found[field.When(l.Clients != nil, field.When(l.ID.Own(), "own ")+"clients")]++
				found[field.When(len(l.Groups()) > 0, "collector")]++
			}
			for _, g := range result.Groups {
				found[field.When(g.Outlier != nil, "outlier")]++
			}
			for _, s := range result.Statuses {
				if s.Policy != nil {
					for _, a := range s.Policy.Ancestors {
						found[a.Conditions[0].Reason]++
						found[a.Conditions[1].Reason]++
					}
				}
			}
		}
	}
	haveAll(t, found,
		"host", "host of an own listener", "service of a host", "route HTTPRoute", "route GRPCRoute", "route IngressRoute", "clients", "own clients",
		"collector", "outlier", "Accepted", "Invalid", "Conflicted", "TargetNotFound", "TargetNotPermitted", "SharedListener",
		"ResolvedRefs", "BackendNotFound", "InvalidKind", "RefNotPermitted", "UnsupportedProtocol",
	)
}

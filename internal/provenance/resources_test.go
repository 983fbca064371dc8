package provenance

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

// manifests are resources of each kind that decides something.
const manifests = `
kind: GatewayClass
metadata: {name: fairlead}
spec: {controllerName: fairlead.dev/gateway}
---
kind: Gateway
metadata: {name: edge, namespace: infra}
spec:
  gatewayClassName: fairlead
  allowedListeners: {namespaces: {from: All}}
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
  - {name: again, port: 80, protocol: HTTP, hostname: again.example.com}
  - {name: any, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: missing}]}, allowedRoutes: {namespaces: {from: All}}}
  - {name: named, port: 443, protocol: HTTPS, hostname: secure.example.com, tls: {certificateRefs: [{name: missing}]}}
  - {name: tls, port: 8443, protocol: TLS, hostname: tls.example.com, tls: {mode: Passthrough}, allowedRoutes: {namespaces: {from: All}}}
---
kind: ListenerSet
metadata: {name: ours, namespace: team}
spec:
  parentRef: {name: edge, namespace: infra}
  listeners:
  - {name: secure, port: 443, protocol: HTTPS, hostname: set.example.com, tls: {certificateRefs: [{name: missing}]}}
  - {name: app, port: 80, protocol: HTTP, hostname: set.example.com}
---
kind: HTTPRoute
metadata: {name: app, namespace: team}
spec:
  parentRefs: [{name: edge, namespace: infra}]
  hostnames: [www.example.com, app.example.com]
  rules: [{name: login, matches: [{path: {value: /login}}], backendRefs: [{name: web, port: 80}]}, {backendRefs: [{name: web, port: 80}]}]
---
kind: HTTPRoute
metadata: {name: unnamed, namespace: team}
spec:
  parentRefs: [{kind: ListenerSet, name: ours, sectionName: app}]
  rules: [{backendRefs: [{name: web, port: 80}]}]
---
kind: GRPCRoute
metadata: {name: call, namespace: team}
spec:
  parentRefs: [{name: edge, namespace: infra}]
  hostnames: [grpc.example.com]
  rules: [{name: calls, backendRefs: [{name: web, port: 81}]}]
---
kind: TLSRoute
metadata: {name: pass, namespace: team}
spec:
  parentRefs: [{name: edge, namespace: infra}]
  hostnames: [tls.example.com]
  rules: [{backendRefs: [{name: web, port: 80}]}]
---
kind: IngressRoute
metadata: {name: root, namespace: team}
spec:
  virtualhost: {fqdn: root.example.com}
  routes: [{match: /, services: [{name: web, port: 80}]}, {match: /child, delegate: {name: child}}]
---
kind: IngressRoute
metadata: {name: child, namespace: team}
spec:
  routes: [{match: /child, services: [{name: web, port: 80}]}]
---
kind: IngressRoute
metadata: {name: foreign, namespace: team, annotations: {kubernetes.io/ingress.class: other}}
spec:
  virtualhost: {fqdn: root.example.com}
  routes: [{match: /, services: [{name: web, port: 80}]}]
---
kind: RoutePolicy
metadata: {name: gateway, namespace: infra}
spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}], maxRequestBytes: 1048576}
---
kind: RoutePolicy
metadata: {name: route, namespace: team}
spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: app}], maxRequestBytes: 2097152}
---
kind: RoutePolicy
metadata: {name: rule, namespace: team}
spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: app, sectionName: login}], maxRequestBytes: 3145728}
---
kind: RoutePolicy
metadata: {name: calls, namespace: team}
spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: GRPCRoute, name: call, sectionName: calls}], maxRequestBytes: 4194304}
---
kind: ClientPolicy
metadata: {name: everybody, namespace: fairlead-system}
spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: GatewayClass, name: fairlead}], trustedHops: 0}
---
kind: BackendPolicy
metadata: {name: service, namespace: team}
spec: {targetRefs: [{group: "", kind: Service, name: web}], sendProxyProtocol: false}
---
kind: BackendPolicy
metadata: {name: port, namespace: team}
spec: {targetRefs: [{group: "", kind: Service, name: web, sectionName: admin}], sendProxyProtocol: false}
---
kind: Service
metadata: {name: web, namespace: team}
spec: {ports: [{name: http, port: 80}, {name: admin, port: 81}]}
---
kind: EndpointSlice
metadata: {name: web-1, namespace: team, labels: {kubernetes.io/service-name: web}}
---
kind: EndpointSlice
metadata: {name: web-2, namespace: team, labels: {kubernetes.io/service-name: web}}
---
kind: EndpointSlice
metadata: {name: api-1, namespace: team, labels: {kubernetes.io/service-name: api}}
---
kind: EndpointSlice
metadata: {name: web-1, namespace: other, labels: {kubernetes.io/service-name: web}}
`

// resources are the manifests and their translation. Each call has maps of its own.
func resources(t *testing.T) Resources {
	t.Helper()
	s := snapshot.New()
	for text := range strings.SplitSeq(manifests, "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Fatal(err)
		}
		resource, _ := snapshot.ResourceOf(snapshot.Kind(kind.Kind))
		o := resource.New()
		if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if _, err := s.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	translator := translate.New(translate.Config{ControllerName: translate.ControllerName})
	changes := translator.Apply(s, s.Keys())
	return Resources{Snapshot: s, Statuses: changes.Statuses, Translator: translator}
}

func objectOf(text string) model.Object {
	kind, name, _ := strings.Cut(text, " ")
	namespace, name, _ := strings.Cut(name, "/")
	return model.Object{Kind: kind, Namespace: namespace, Name: name}
}

// expect compares texts in any order.
func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func sourceTexts(list []explain.Source) []string {
	texts := make([]string, 0, len(list))
	for _, s := range list {
		texts = append(texts, s.String())
	}
	return texts
}

func policyTexts(list []explain.Says) []string {
	texts := make([]string, 0, len(list))
	for _, s := range list {
		texts = append(texts, s.String())
	}
	return texts
}

func TestListenerBy(t *testing.T) {
	w := resources(t).World()
	for id, want := range map[model.ListenerID][]string{
		// Of two sections at one port the first is named.
		"http-80":    {"Gateway infra/edge spec.listeners[0]", "ListenerSet team/ours spec.listeners[1]", "IngressRoute team/root spec.virtualhost"},
		"https-443":  {"Gateway infra/edge spec.listeners[2]", "ListenerSet team/ours spec.listeners[0]"},
		"https-8443": {"Gateway infra/edge spec.listeners[4]"},
		"http-81":    nil,
	} {
		t.Run(string(id), func(t *testing.T) { expect(t, sourceTexts(w.ListenerBy(id)), want...) })
	}
}

func TestHostBy(t *testing.T) {
	k := resources(t)
	upper := model.HostKey{Listener: "http-80", Host: "upper.example.com"} // hosts are lower case
	k.Statuses[objectOf("HTTPRoute team/upper")] = &translate.Status{Hosts: []model.HostKey{upper}}
	k.Snapshot.HTTPRoutes[snapshot.Name{Namespace: "team", Name: "upper"}] = &gatewayv1.HTTPRoute{
		Spec: gatewayv1.HTTPRouteSpec{Hostnames: []gatewayv1.Hostname{"Upper.Example.com"}},
	}
	w := k.World()
	for host, want := range map[model.HostKey][]string{
		{Listener: "http-80", Host: "www.example.com"}:    {"HTTPRoute team/app spec.hostnames[0]"},
		{Listener: "http-80", Host: "app.example.com"}:    {"HTTPRoute team/app spec.hostnames[1]"},
		{Listener: "http-80", Host: "set.example.com"}:    {"HTTPRoute team/unnamed spec.parentRefs"},
		{Listener: "http-80", Host: "grpc.example.com"}:   {"GRPCRoute team/call spec.hostnames[0]"},
		{Listener: "https-8443", Host: "tls.example.com"}: {"TLSRoute team/pass spec.hostnames[0]"},
		{Listener: "http-80", Host: "root.example.com"}:   {"IngressRoute team/root spec.virtualhost.fqdn"},
		upper: {"HTTPRoute team/upper spec.hostnames[0]"},
		{Listener: "http-80", Host: "no.example.com"}:  nil,
		{Listener: "http-81", Host: "www.example.com"}: nil,
	} {
		t.Run(host.Host+" at "+string(host.Listener), func(t *testing.T) { expect(t, sourceTexts(w.HostBy(host)), want...) })
	}
}

// TestGone: a status may outlive its object. No source is made of such an object.
func TestGone(t *testing.T) {
	k := resources(t)
	host := model.HostKey{Listener: "http-80", Host: "gone.example.com"}
	for _, o := range []string{"HTTPRoute team/gone", "GRPCRoute team/gone", "TLSRoute team/gone", "IngressRoute team/gone", "IngressRoute team/child", "Gateway team/gone", "ListenerSet team/gone"} {
		k.Statuses[objectOf(o)] = &translate.Status{Hosts: []model.HostKey{host}, Listeners: []model.ListenerID{"gone-80"}}
	}
	w := k.World()
	expect(t, sourceTexts(w.HostBy(host)))
	expect(t, sourceTexts(w.ListenerBy("gone-80")))
	for _, o := range []string{"HTTPRoute team/gone", "GRPCRoute team/gone"} {
		route, _ := w.PoliciesOf(model.HostKey{}, &model.Route{Name: strings.Replace(o, " ", "/", 1) + "/rules/0/matches/0", Owner: objectOf(o)})
		expect(t, policyTexts(route))
	}
}

func TestTLSBy(t *testing.T) {
	w := resources(t).World()
	for name, c := range map[string]struct {
		host  model.HostKey
		owner string
		want  []string
	}{
		"IngressRoute":                 {model.HostKey{Listener: "https-443", Host: "root.example.com"}, "IngressRoute team/root", []string{"IngressRoute team/root spec.virtualhost.tls"}},
		"TLSRoute":                     {model.HostKey{Listener: "https-8443", Host: "tls.example.com"}, "TLSRoute team/pass", []string{"TLSRoute team/pass spec.rules[0]"}},
		"TCPRoute":                     {model.HostKey{Listener: "tcp-90", Host: "*"}, "TCPRoute team/stream", []string{"TCPRoute team/stream spec.rules[0]"}},
		"hostname of a Gateway":        {model.HostKey{Listener: "https-443", Host: "secure.example.com"}, "Gateway infra/edge", []string{"Gateway infra/edge spec.listeners[3].tls"}},
		"hostname in upper case":       {model.HostKey{Listener: "https-443", Host: "SECURE.example.com"}, "Gateway infra/edge", []string{"Gateway infra/edge spec.listeners[3].tls"}},
		"Gateway without a hostname":   {model.HostKey{Listener: "https-443", Host: "*"}, "Gateway infra/edge", []string{"Gateway infra/edge spec.listeners[2].tls"}},
		"hostname of a ListenerSet":    {model.HostKey{Listener: "https-443", Host: "set.example.com"}, "ListenerSet team/ours", []string{"ListenerSet team/ours spec.listeners[0].tls"}},
		"section without TLS":          {model.HostKey{Listener: "http-80", Host: "again.example.com"}, "Gateway infra/edge", nil},
		"hostname at another listener": {model.HostKey{Listener: "https-8443", Host: "secure.example.com"}, "Gateway infra/edge", nil},
		"hostname of nobody":           {model.HostKey{Listener: "https-443", Host: "no.example.com"}, "Gateway infra/edge", nil},
		"owner without a status":       {model.HostKey{Listener: "https-443", Host: "secure.example.com"}, "Gateway infra/gone", nil},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, sourceTexts(w.TLSBy(model.TLSHost{HostKey: c.host, Owner: objectOf(c.owner)})), c.want...)
		})
	}
}

func TestClientsBy(t *testing.T) {
	w := resources(t).World()
	expect(t, sourceTexts(w.ClientsBy("http-80")), "ClientPolicy fairlead-system/everybody spec")
	expect(t, sourceTexts(w.ClientsBy("http-80_team_gone")))
}

func TestBackendsAndSetBy(t *testing.T) {
	w := resources(t).World()
	slices80 := []string{"EndpointSlice team/web-1 endpoints", "EndpointSlice team/web-2 endpoints"}
	for id, want := range map[model.SetID]struct{ policies, slices []string }{
		"team/web/80": {[]string{"BackendPolicy team/service spec"}, slices80},
		"team/web/81": {[]string{"BackendPolicy team/port spec", "BackendPolicy team/service spec"}, slices80},
		// A port that the Service does not have is no named one.
		"team/web/82":  {[]string{"BackendPolicy team/service spec"}, slices80},
		"other/web/80": {nil, []string{"EndpointSlice other/web-1 endpoints"}},
		"team/api/80":  {nil, []string{"EndpointSlice team/api-1 endpoints"}},
		"team/gone/80": {},
		"team/web":     {},
		"":             {},
	} {
		t.Run(string(id), func(t *testing.T) {
			expect(t, sourceTexts(w.BackendsBy(id)), want.policies...)
			expect(t, sourceTexts(w.SetBy(id)), want.slices...)
		})
	}
}

// TestPoliciesOf expects policies in their order: those of a rule go before those of its route.
func TestPoliciesOf(t *testing.T) {
	w := resources(t).World()
	route := func(owner, rest string) *model.Route {
		return &model.Route{Name: strings.Replace(owner, " ", "/", 1) + rest, Owner: objectOf(owner)}
	}
	ofRoute := []string{"RoutePolicy team/route"}
	ofRule := []string{"RoutePolicy team/rule", "RoutePolicy team/route"}
	for name, c := range map[string]struct {
		route *model.Route
		want  []string
	}{
		"no route":                   {nil, nil},
		"named rule":                 {route("HTTPRoute team/app", "/rules/0/matches/0"), ofRule},
		"rule without a name":        {route("HTTPRoute team/app", "/rules/1/matches/0"), ofRoute},
		"rule that is gone":          {route("HTTPRoute team/app", "/rules/2/matches/0"), ofRoute},
		"rule without a number":      {route("HTTPRoute team/app", "/rules/x/matches/0"), ofRoute},
		"route of no rule":           {route("HTTPRoute team/app", ""), ofRoute},
		"named rule of a GRPCRoute":  {route("GRPCRoute team/call", "/rules/0/matches/0"), []string{"RoutePolicy team/calls"}},
		"GRPCRoute, rule gone":       {route("GRPCRoute team/call", "/rules/1/matches/0"), nil},
		"route of another kind":      {route("IngressRoute team/root", "/rules/0"), nil},
		"route with no RoutePolicy":  {route("HTTPRoute team/unnamed", "/rules/0/matches/0"), nil},
		"name of a route beside its": {&model.Route{Name: "HTTPRoute/team/other/rules/0/matches/0", Owner: objectOf("HTTPRoute team/app")}, ofRoute},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := w.PoliciesOf(model.HostKey{}, c.route)
			if texts := policyTexts(got); !slices.Equal(texts, c.want) {
				t.Errorf("got %q, want %q", texts, c.want)
			}
		})
	}
	got, host := w.PoliciesOf(model.HostKey{Listener: "http-80", Host: "www.example.com"}, route("HTTPRoute team/app", "/rules/0/matches/0"))
	expect(t, policyTexts(host), "RoutePolicy infra/gateway")
	if len(got) != 2 || got[0].Policy.MaxRequestBytes != 3<<20 || host[0].Policy.MaxRequestBytes != 1<<20 {
		t.Errorf("the policies are %+v and %+v", got, host)
	}
	_, host = w.PoliciesOf(model.HostKey{Listener: "http-80", Host: "no.example.com"}, nil)
	expect(t, policyTexts(host))
}

// TestNamedBy: whoever names a host is named, also where nobody is served.
func TestNamedBy(t *testing.T) {
	k := resources(t)
	wild := gatewayv1.Hostname("*.Example.ORG")
	k.Snapshot.HTTPRoutes[snapshot.Name{Namespace: "team", Name: "wild"}] = &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "wild"}, Spec: gatewayv1.HTTPRouteSpec{Hostnames: []gatewayv1.Hostname{wild}},
	}
	w := k.World()
	for host, want := range map[string][]string{
		"www.example.com":    {"HTTPRoute team/app"},
		"tls.example.com":    {"TLSRoute team/pass", "Gateway infra/edge"},
		"secure.example.com": {"Gateway infra/edge"},
		"set.example.com":    {"ListenerSet team/ours"},
		"root.example.com":   {"IngressRoute team/root", "IngressRoute team/foreign"},
		"a.example.org":      {"HTTPRoute team/wild"},
		"a.b.example.org":    {"HTTPRoute team/wild"},
		// A wildcard stands for at least one character.
		".example.org":   nil,
		"example.org":    nil,
		"no.example.com": nil,
	} {
		t.Run(host, func(t *testing.T) {
			var got []string
			for _, o := range w.NamedBy(host) {
				got = append(got, o.String())
			}
			expect(t, got, want...)
		})
	}
}

func TestOfOthers(t *testing.T) {
	w := resources(t).World()
	got := w.OfOthers("root.example.com")
	if len(got) != 1 || got[0].Class != "other" || got[0].String() != "IngressRoute team/foreign spec.virtualhost.fqdn" {
		t.Errorf("got %+v", got)
	}
	if got := w.OfOthers("www.example.com"); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
}

package translate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
)

// generator makes resources out of small pools of names and values, good and bad,
// so that they meet.
type generator struct {
	*rand.Rand
	strange string // a text that stands wherever a text may, sometimes
}

func pick[T any](g generator, list ...T) T { return list[g.IntN(len(list))] }

func some[T any](g generator, v T) *T {
	if g.IntN(2) == 0 {
		return nil
	}
	return &v
}

func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g generator) word(list ...string) string {
	if g.strange != "" && g.chance(5) {
		return g.strange
	}
	return pick(g, list...)
}

func (g generator) namespace() string { return pick(g, "a", "b", "c") }
func (g generator) name() string      { return g.word("one", "two", "three", "four") }

func (g generator) host() string {
	return g.word("x.example.com", "y.example.com", "X.example.com", "z.other.com", "*.example.com", "*.com", "", "bad_host", "x.example.com:80")
}

func (g generator) path() string {
	return g.word("/", "/a", "/a/", "/a/b", "/ab", "/b", "a", "", "/a b", "/é")
}

func (g generator) port() int32 { return pick(g, int32(80), 80, 80, 81, 0, 70000) }

// kinds are the kinds that a generated world holds, those that matter more often.
var kinds = []snapshot.Kind{
	snapshot.KindMachine, snapshot.KindNamespace, snapshot.KindService, snapshot.KindService, snapshot.KindEndpointSlice,
	snapshot.KindEndpointSlice, snapshot.KindGatewayClass, snapshot.KindGateway, snapshot.KindGateway, snapshot.KindHTTPRoute,
	snapshot.KindHTTPRoute, snapshot.KindHTTPRoute, snapshot.KindReferenceGrant, snapshot.KindIngressRoute,
	snapshot.KindIngressRoute, snapshot.KindIngressRoute, snapshot.KindIngressRoute, snapshot.KindTLSCertificateDelegation,
}

func (g generator) key() snapshot.Key {
	kind := pick(g, kinds...)
	n := snapshot.Name{Namespace: g.namespace(), Name: pick(g, "one", "two", "three", "four")}
	switch kind {
	case snapshot.KindMachine, snapshot.KindGatewayClass:
		n.Namespace = ""
	case snapshot.KindNamespace:
		n = snapshot.Name{Name: g.namespace()}
	}
	return snapshot.Key{Kind: kind, Name: n}
}

func (g generator) object(k snapshot.Key) metav1.Object {
	o := newObject(k.Kind)
	o.SetNamespace(k.Name.Namespace)
	o.SetName(k.Name.Name)
	o.SetGeneration(int64(g.IntN(3)))
	o.SetCreationTimestamp(metav1.NewTime(time.Unix(int64(g.IntN(4)), 0)))
	switch o := o.(type) {
	case *v1alpha1.Machine:
		o.Spec.Cordoned = g.chance(30)
		o.Spec.DrainTime = some(g, metav1.Duration{Duration: time.Duration(g.IntN(90)) * time.Second})
		for range g.IntN(3) {
			o.Status.Addresses = append(o.Status.Addresses, g.address())
		}
	case *corev1.Namespace:
		o.Labels = map[string]string{"team": pick(g, "red", "blue")}
	case *corev1.Service:
		g.service(o)
	case *discoveryv1.EndpointSlice:
		g.slice(o)
	case *gatewayv1.GatewayClass:
		o.Spec.ControllerName = pick(g, ControllerName, ControllerName, ControllerName, "example.com/other")
		if g.chance(10) {
			o.Spec.ParametersRef = &gatewayv1.ParametersReference{Kind: "ConfigMap", Name: "x"}
		}
	case *gatewayv1.Gateway:
		g.gateway(o)
	case *gatewayv1.HTTPRoute:
		g.httpRoute(o)
	case *gatewayv1.ReferenceGrant:
		o.Spec.From = []gatewayv1.ReferenceGrantFrom{{Group: gatewayv1.GroupName, Kind: "HTTPRoute", Namespace: gatewayv1.Namespace(g.namespace())}}
		o.Spec.To = []gatewayv1.ReferenceGrantTo{{Kind: "Service", Name: some(g, gatewayv1.ObjectName(g.name()))}}
	case *contourv1beta1.IngressRoute:
		g.ingressRoute(o)
	}
	return o
}

func (g generator) address() string {
	return g.word("10.0.0.1", "10.0.0.2", "::ffff:10.0.0.1", "2001:db8::1", "127.0.0.1", "fe80::1", "224.0.0.1", "x", "")
}

func (g generator) service(o *corev1.Service) {
	if g.chance(10) {
		o.Spec.Type = corev1.ServiceTypeExternalName
	}
	for range g.IntN(3) {
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{
			Name: pick(g, "", "web", "admin"), Port: pick(g, int32(80), 81), Protocol: pick(g, "", corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP),
			AppProtocol: some(g, pick(g, "http", "kubernetes.io/ws", "kubernetes.io/h2c")),
		})
	}
}

func (g generator) slice(o *discoveryv1.EndpointSlice) {
	if g.chance(90) {
		o.Labels = map[string]string{labelServiceName: pick(g, "one", "two", "three")}
	}
	o.AddressType = pick(g, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	for range g.IntN(4) {
		e := discoveryv1.Endpoint{Zone: some(g, g.word("z1", "z2"))}
		if g.chance(95) {
			e.Addresses = []string{g.address()}
		}
		e.Conditions = discoveryv1.EndpointConditions{Ready: some(g, g.chance(50)), Serving: some(g, g.chance(50)), Terminating: some(g, g.chance(50))}
		o.Endpoints = append(o.Endpoints, e)
	}
	for range g.IntN(3) {
		o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: some(g, pick(g, "", "web", "admin")), Port: some(g, pick(g, int32(8080), 8081, 0)), Protocol: some(g, corev1.ProtocolTCP)})
	}
}

func (g generator) gateway(o *gatewayv1.Gateway) {
	o.Spec.GatewayClassName = gatewayv1.ObjectName(pick(g, "one", "one", "two"))
	for i := range g.IntN(4) {
		l := gatewayv1.Listener{
			Name: gatewayv1.SectionName(fmt.Sprintf("l%d", i)), Port: pick(g, int32(80), 80, 8080, 0, 15000),
			Protocol: pick(g, gatewayv1.HTTPProtocolType, gatewayv1.HTTPProtocolType, gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType, gatewayv1.TCPProtocolType),
			Hostname: some(g, gatewayv1.Hostname(g.host())),
		}
		if g.chance(70) {
			from := pick(g, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromSame, gatewayv1.NamespacesFromSelector, "Odd")
			l.AllowedRoutes = &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: &from}}
			if g.chance(80) {
				l.AllowedRoutes.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": g.word("red", "blue")}}
			}
			if g.chance(20) {
				l.AllowedRoutes.Kinds = []gatewayv1.RouteGroupKind{{Kind: gatewayv1.Kind(g.word("HTTPRoute", "TCPRoute"))}}
			}
		}
		o.Spec.Listeners = append(o.Spec.Listeners, l)
	}
	if g.chance(5) {
		o.Spec.Addresses = []gatewayv1.GatewaySpecAddress{{Value: "192.0.2.1"}}
	}
}

func (g generator) httpRoute(o *gatewayv1.HTTPRoute) {
	for range 1 + g.IntN(2) {
		ref := gatewayv1.ParentReference{Name: gatewayv1.ObjectName(g.name()), Namespace: some(g, gatewayv1.Namespace(g.namespace()))}
		if g.chance(30) {
			ref.SectionName = some(g, gatewayv1.SectionName(pick(g, "l0", "l1")))
			ref.Port = some(g, int32(80))
		}
		if g.chance(5) {
			ref.Kind = some(g, gatewayv1.Kind("Service"))
		}
		o.Spec.ParentRefs = append(o.Spec.ParentRefs, ref)
	}
	for range g.IntN(3) {
		host := g.host()
		if g.chance(80) {
			host = strings.ToLower(pick(g, "x.example.com", "y.example.com", "*.example.com"))
		}
		o.Spec.Hostnames = append(o.Spec.Hostnames, gatewayv1.Hostname(host))
	}
	for range g.IntN(3) {
		rule := gatewayv1.HTTPRouteRule{}
		for range g.IntN(3) {
			rule.Matches = append(rule.Matches, g.match())
		}
		for range g.IntN(3) {
			ref := gatewayv1.HTTPBackendRef{}
			ref.Name, ref.Port = gatewayv1.ObjectName(g.name()), some(g, g.port())
			if g.chance(80) {
				ref.Port = some(g, int32(80))
			}
			ref.Namespace = some(g, gatewayv1.Namespace(g.namespace()))
			ref.Weight = some(g, pick(g, int32(0), 1, 50, 50, 1_000_000))
			rule.BackendRefs = append(rule.BackendRefs, ref)
		}
		if g.chance(10) {
			rule.Timeouts = &gatewayv1.HTTPRouteTimeouts{Request: some(g, gatewayv1.Duration(g.word("1s", "0s", "x", "-1s")))}
		}
		if g.chance(3) {
			rule.Filters = []gatewayv1.HTTPRouteFilter{{Type: gatewayv1.HTTPRouteFilterRequestRedirect}}
		}
		o.Spec.Rules = append(o.Spec.Rules, rule)
	}
}

func (g generator) match() gatewayv1.HTTPRouteMatch {
	m := gatewayv1.HTTPRouteMatch{Method: some(g, pick(g, gatewayv1.HTTPMethodGet, gatewayv1.HTTPMethodPost))}
	if g.chance(80) {
		path := pick(g, "/", "/a", "/a/b")
		if g.chance(5) {
			path = g.path()
		}
		m.Path = &gatewayv1.HTTPPathMatch{
			Type:  some(g, pick(g, gatewayv1.PathMatchExact, gatewayv1.PathMatchPathPrefix, gatewayv1.PathMatchRegularExpression)),
			Value: &path,
		}
	}
	for range g.IntN(2) {
		m.Headers = append(m.Headers, gatewayv1.HTTPHeaderMatch{
			Name: gatewayv1.HTTPHeaderName(g.word("X-A", "x-b")), Value: g.word("1", "2"),
			Type: some(g, gatewayv1.HeaderMatchRegularExpression),
		})
		m.QueryParams = append(m.QueryParams, gatewayv1.HTTPQueryParamMatch{Name: gatewayv1.HTTPHeaderName(g.word("q", "r")), Value: g.word("1", "2")})
	}
	return m
}

func (g generator) ingressRoute(o *contourv1beta1.IngressRoute) {
	if g.chance(40) {
		o.Spec.VirtualHost = &contourv1beta1.VirtualHost{Fqdn: pick(g, "x.example.com", "y.example.com", "w.example.com")}
		if g.chance(10) {
			o.Spec.VirtualHost.Fqdn = g.host()
		}
		if g.chance(5) {
			o.Spec.VirtualHost.TLS = &contourv1beta1.TLS{SecretName: "x"}
		}
	}
	for range g.IntN(4) {
		r := contourv1beta1.Route{Match: pick(g, "/", "/a", "/a/b", "/b"), EnableWebsockets: g.chance(10)}
		if g.chance(5) {
			r.Match = g.path()
		}
		if g.chance(5) {
			r.PrefixRewrite = g.path()
			r.TimeoutPolicy = &contourv1beta1.TimeoutPolicy{Request: g.word("1s", "infinity", "x")}
			r.RetryPolicy = &contourv1beta1.RetryPolicy{NumRetries: int32(g.IntN(4) - 1), PerTryTimeout: g.word("", "1s", "y")}
		}
		if g.chance(50) {
			r.Delegate = &contourv1beta1.Delegate{Name: g.name(), Namespace: pick(g, "", g.namespace())}
		}
		if r.Delegate == nil || g.chance(3) {
			for range 1 + g.IntN(2) {
				s := contourv1beta1.Service{Name: g.name(), Port: 80, Strategy: pick(g, "", "Random", "Cookie", "Other")}
				if g.chance(5) {
					s.Port = g.port()
				}
				if g.chance(20) {
					s.Weight = some(g, int32(g.IntN(4)))
				}
				if g.chance(20) {
					s.HealthCheck = &contourv1beta1.HealthCheck{Path: g.word("/ok", "/healthz"), IntervalSeconds: int64(g.IntN(3))}
				}
				r.Services = append(r.Services, s)
			}
		}
		o.Spec.Routes = append(o.Spec.Routes, r)
	}
}

package translate

import (
	"fmt"
	"hash/fnv"
	"maps"
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
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
)

// generator makes resources out of small pools of names and values, good and bad,
// so that they meet.
type generator struct {
	*rand.Rand
	strange string // a text that stands wherever a text may, sometimes
	// near worlds have few names and few kinds, those around Gateways, so that long chains of
	// references hold.
	near bool
	// kinds of a world about policies; others when empty.
	kinds []snapshot.Kind
	// balanced worlds have many listeners without proxies.
	balanced bool
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

func (g generator) namespace() string {
	if g.near {
		return pick(g, "a", "a", "a", "b")
	}
	return pick(g, "a", "b", "c")
}

func (g generator) name() string {
	if g.near {
		return g.word("one", "two")
	}
	return g.word("one", "two", "three", "four")
}

func (g generator) host() string {
	if g.near && g.chance(90) {
		return pick(g, "x.example.com", "y.example.com", "*.example.com", "")
	}
	return g.word("x.example.com", "y.example.com", "X.example.com", "z.other.com", "*.example.com", "*.com", "", "bad_host", "x.example.com:80")
}

func (g generator) path() string {
	return g.word("/", "/a", "/a/", "/a/b", "/ab", "/b", "a", "", "/a b", "/é", "/a%2Fb")
}

func (g generator) port() int32 {
	if g.near && g.chance(95) {
		return 80
	}
	return pick(g, int32(80), 80, 80, 81, 0, 70000)
}

// kinds are the kinds that a generated world holds, those that matter more often.
var kinds = []snapshot.Kind{
	snapshot.KindMachine, snapshot.KindNamespace, snapshot.KindService, snapshot.KindService, snapshot.KindEndpointSlice,
	snapshot.KindEndpointSlice, snapshot.KindGatewayClass, snapshot.KindGateway, snapshot.KindGateway, snapshot.KindHTTPRoute,
	snapshot.KindHTTPRoute, snapshot.KindHTTPRoute, snapshot.KindReferenceGrant, snapshot.KindIngressRoute,
	snapshot.KindIngressRoute, snapshot.KindIngressRoute, snapshot.KindIngressRoute, snapshot.KindTLSCertificateDelegation,
	snapshot.KindGRPCRoute, snapshot.KindGRPCRoute, snapshot.KindBackendTLSPolicy, snapshot.KindConfigMap,
	snapshot.KindAddressPool, snapshot.KindAddressPool, snapshot.KindAddressPool, snapshot.KindBGPPeer, snapshot.KindBGPPeer, snapshot.KindSecret,
	snapshot.KindSecret, snapshot.KindListenerSet,
}

// nearKinds are those of near worlds.
var nearKinds = []snapshot.Kind{
	snapshot.KindGatewayClass, snapshot.KindGateway, snapshot.KindGateway, snapshot.KindGateway, snapshot.KindListenerSet, snapshot.KindListenerSet, snapshot.KindSecret,
	snapshot.KindSecret, snapshot.KindSecret, snapshot.KindConfigMap, snapshot.KindConfigMap, snapshot.KindHTTPRoute, snapshot.KindHTTPRoute, snapshot.KindHTTPRoute,
	snapshot.KindGRPCRoute, snapshot.KindGRPCRoute, snapshot.KindIngressRoute, snapshot.KindIngressRoute, snapshot.KindReferenceGrant, snapshot.KindNamespace,
	snapshot.KindService, snapshot.KindService, snapshot.KindAddressPool, snapshot.KindMachine, snapshot.KindClientPolicy, snapshot.KindRoutePolicy,
	snapshot.KindBackendTLSPolicy, snapshot.KindBackendTLSPolicy, snapshot.KindBackendPolicy,
}

func (g generator) key() snapshot.Key {
	kind := pick(g, kinds...)
	if len(g.kinds) > 0 {
		kind = pick(g, g.kinds...)
	} else if g.near {
		kind = pick(g, nearKinds...)
	}
	n := snapshot.Name{Namespace: g.namespace(), Name: pick(g, "one", "two", "three", "four")}
	if g.near {
		n.Name = pick(g, "one", "two")
	}
	switch kind {
	case snapshot.KindMachine, snapshot.KindGatewayClass, snapshot.KindAddressPool, snapshot.KindBGPPeer:
		n.Namespace = ""
	case snapshot.KindSecret:
		n.Namespace = pick(g, v1alpha1.SystemNamespace, g.namespace(), g.namespace())
	case snapshot.KindClientPolicy:
		n.Namespace = pick(g, v1alpha1.SystemNamespace, "a", "b")
	case snapshot.KindNamespace:
		n = snapshot.Name{Name: g.namespace()}
	case snapshot.KindEndpointSlice:
		if n == (snapshot.Name{Namespace: "b", Name: "two"}) {
			n = input.APIService
		}
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
	case *v1alpha1.AddressPool:
		g.pool(o)
	case *v1alpha1.BGPPeer:
		g.peer(o)
	case *v1alpha1.RoutePolicy:
		g.routePolicy(o)
	case *v1alpha1.ClientPolicy:
		g.clientPolicy(o)
	case *v1alpha1.BackendPolicy:
		g.backendPolicy(o)
	case *v1alpha1.LoadBalancerPolicy:
		g.balancePolicy(o)
	case *gatewayv1.TLSRoute:
		o.Spec.ParentRefs, o.Spec.Hostnames = g.parentRefs(), g.hostnames()
		for range g.rules() {
			o.Spec.Rules = append(o.Spec.Rules, gatewayv1.TLSRouteRule{Name: some(g, gatewayv1.SectionName("r0")), BackendRefs: g.streamRefs()})
		}
	case *gatewayv1.TCPRoute:
		o.Spec.ParentRefs = g.parentRefs()
		for range g.rules() {
			o.Spec.Rules = append(o.Spec.Rules, gatewayv1.TCPRouteRule{Name: some(g, gatewayv1.SectionName("r0")), BackendRefs: g.streamRefs()})
		}
	case *gatewayv1.UDPRoute:
		o.Spec.ParentRefs = g.parentRefs()
		for range g.rules() {
			o.Spec.Rules = append(o.Spec.Rules, gatewayv1.UDPRouteRule{Name: some(g, gatewayv1.SectionName("r0")), BackendRefs: g.streamRefs()})
		}
	case *corev1.Secret:
		g.secret(o)
	case *corev1.ConfigMap:
		if g.chance(80) {
			o.Data = map[string]string{snapshot.AuthorityKey: g.word(authorityPEM(), "", "x")}
		}
	case *v1alpha1.Machine:
		o.Labels = g.labels()
		if g.chance(40) {
			o.Spec.RouterID = g.word("192.0.2.9", "192.0.2.10", "0.0.0.0")
		}
		o.Spec.Cordoned = g.chance(30)
		if g.balanced && g.chance(15) {
			o.Spec.Role = v1alpha1.RoleBackend
		}
		if g.balanced && g.chance(10) {
			o.Spec.TunnelAddresses = []string{g.address()}
		}
		o.Spec.DrainTime = some(g, metav1.Duration{Duration: time.Duration(g.IntN(90)) * time.Second})
		for range g.IntN(3) {
			o.Status.Addresses = append(o.Status.Addresses, g.address())
		}
	case *corev1.Namespace:
		o.Labels = map[string]string{"team": pick(g, "red", "blue")}
		// It follows from the rest, so that it leaves the generator as it was.
		o.Annotations = map[string]string{v1alpha1.AnnotationAllowEndpoints: []string{"", "10.0.0.0/31, 2001:db8::1", "x"}[o.Generation]}
	case *corev1.Service:
		g.service(o)
	case *discoveryv1.EndpointSlice:
		g.slice(o)
		if k.Name == input.APIService {
			apiSlice(o)
		}
	case *gatewayv1.GatewayClass:
		o.Spec.ControllerName = pick(g, input.ControllerName, input.ControllerName, input.ControllerName, input.ControllerName, input.ControllerName, "example.com/other")
		if g.near {
			o.Spec.ControllerName = input.ControllerName
		} else if g.chance(10) {
			o.Spec.ParametersRef = &gatewayv1.ParametersReference{Kind: "ConfigMap", Name: "x"}
		}
	case *gatewayv1.Gateway:
		g.gateway(o)
	case *gatewayv1.ListenerSet:
		g.listenerSet(o)
	case *gatewayv1.HTTPRoute:
		g.httpRoute(o)
	case *gatewayv1.GRPCRoute:
		g.grpcRoute(o)
	case *gatewayv1.BackendTLSPolicy:
		g.backendTLS(o)
	case *gatewayv1.ReferenceGrant:
		o.Spec.From = []gatewayv1.ReferenceGrantFrom{{Group: gatewayv1.GroupName, Kind: pick(g, gatewayv1.Kind("HTTPRoute"), "GRPCRoute", "Gateway", "ListenerSet"), Namespace: gatewayv1.Namespace(g.namespace())}}
		o.Spec.To = []gatewayv1.ReferenceGrantTo{{Kind: pick(g, gatewayv1.Kind("Service"), "Secret", "ConfigMap"), Name: some(g, gatewayv1.ObjectName(g.name()))}}
	case *contourv1beta1.IngressRoute:
		g.ingressRoute(o)
	case *contourv1beta1.TLSCertificateDelegation:
		g.delegations(o)
	}
	measure(o)
	return o
}

// measure has most Services and routes ask for metrics of their own, more than the world's bound. It draws nothing: worlds with known seeds stay as they are.
func measure(o metav1.Object) {
	if (o.GetCreationTimestamp().Unix()+o.GetGeneration())%3 == 0 {
		return
	}
	what := v1alpha1.MetricsOfRoute
	switch o.(type) {
	case *corev1.Service:
		what = v1alpha1.MetricsOfBackend
	case *gatewayv1.HTTPRoute, *gatewayv1.GRPCRoute, *contourv1beta1.IngressRoute:
	default:
		return
	}
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationMetrics] = what
	o.SetAnnotations(annotations)
}

func (g generator) address() string {
	return g.word("10.0.0.1", "10.0.0.2", "::ffff:10.0.0.1", "2001:db8::1", "127.0.0.1", "fe80::1", "224.0.0.1", "x", "")
}

func (g generator) service(o *corev1.Service) {
	if g.chance(50) {
		o.Spec.Type = corev1.ServiceTypeLoadBalancer
		class := pick(g, v1alpha1.LoadBalancerClass, v1alpha1.LoadBalancerClass, v1alpha1.LoadBalancerClass, "example.com/other")
		o.Spec.LoadBalancerClass = &class
		o.Spec.IPFamilies = pick(g, nil, []corev1.IPFamily{corev1.IPv6Protocol}, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol})
		o.Spec.IPFamilyPolicy = some(g, pick(g, corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack))
		g.annotate(o)
		if g.balanced {
			g.balance(o)
		}
	}
	if g.balanced && g.chance(10) {
		o.Spec.ClusterIPs = []string{g.vip()}
	}
	if g.balanced && g.chance(20) {
		o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: g.vip()}}
	}
	if g.balanced && g.chance(50) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.AnnotationShareVIP, g.word("s", "s", "s", "a/s", "a/s", "b/s", "Bad Key"))
	}
	if g.balanced && g.chance(20) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.AnnotationDrainedBackends, g.word("10.0.0.1", "10.0.0.2, 10.0.0.1", ",", "x"))
	}
	if g.chance(10) {
		o.Spec.Type = corev1.ServiceTypeExternalName
	}
	if g.chance(20) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, "contour.heptio.com/upstream-protocol."+pick(g, backend.UpstreamH2, backend.UpstreamH2C, backend.UpstreamTLS), g.word("80", "web", "81,admin"))
	}
	if g.chance(60) { // most routes are for it
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "web", Port: 80})
	}
	for range g.IntN(3) {
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{
			Name: pick(g, "", "web", "admin"), Port: pick(g, int32(80), 81), Protocol: pick(g, "", corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP),
			AppProtocol: some(g, pick(g, "http", "kubernetes.io/ws", "kubernetes.io/h2c", "https")),
		})
	}
}

func (g generator) slice(o *discoveryv1.EndpointSlice) {
	if g.chance(90) {
		o.Labels = map[string]string{field.LabelServiceName: pick(g, "one", "two", "three")}
	}
	o.AddressType = pick(g, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	for range g.IntN(4) {
		e := discoveryv1.Endpoint{Zone: some(g, g.word("z1", "z2"))}
		if g.balanced {
			e.NodeName = some(g, g.word("one", "two", "gone"))
		}
		if g.chance(95) {
			e.Addresses = []string{g.address()}
		}
		if g.balanced && g.chance(10) {
			e.Addresses = []string{g.vip()}
		}
		e.Conditions = discoveryv1.EndpointConditions{Ready: some(g, g.chance(50)), Serving: some(g, g.chance(50)), Terminating: some(g, g.chance(50))}
		o.Endpoints = append(o.Endpoints, e)
	}
	for range g.IntN(3) {
		o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: some(g, pick(g, "", "web", "admin")), Port: some(g, pick(g, int32(8080), 8081, 0)), Protocol: some(g, corev1.ProtocolTCP)})
		if g.balanced && g.chance(30) {
			o.Ports[len(o.Ports)-1].Protocol = some(g, corev1.ProtocolUDP)
		}
	}
	rate(o)
}

// rate gives endpoints weights and makes one a backup. It follows from the rest, so that it leaves the generator as
// it was.
func rate(o *discoveryv1.EndpointSlice) {
	var weights, backups []string
	for i, e := range o.Endpoints {
		switch {
		case len(e.Addresses) == 0 || e.Zone == nil:
		case e.Conditions.Serving == nil:
			weights = append(weights, e.Addresses[0]+[]string{"=0", "=3", "=many"}[i%3])
		default:
			backups = append(backups, e.Addresses[0])
		}
	}
	if len(weights)+len(backups) > 0 {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.AnnotationWeights, strings.Join(weights, ","))
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.AnnotationBackups, strings.Join(backups, ","))
	}
}

// apiSlice makes an EndpointSlice the Kubernetes API's, mostly. It follows from the rest, as above.
func apiSlice(o *discoveryv1.EndpointSlice) {
	if o.Generation > 0 {
		o.Labels = map[string]string{field.LabelServiceName: input.APIService.Name}
	}
	o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0.9"}}, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})
	o.Ports = append(o.Ports, discoveryv1.EndpointPort{Port: ptr(int32(8080))})
}

func (g generator) gateway(o *gatewayv1.Gateway) {
	o.Spec.GatewayClassName = gatewayv1.ObjectName(pick(g, "one", "one", "two"))
	for i := range g.IntN(4) {
		o.Spec.Listeners = append(o.Spec.Listeners, g.listener(i))
	}
	g.annotate(o)
	// It follows from the rest, so that it leaves the generator as it was.
	if hosts := []string{"", v1alpha1.HostsShared, v1alpha1.HostsOfNamespaces, v1alpha1.HostsOfNamespaces}[len(o.Spec.Listeners)]; hosts != "" {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.AnnotationHosts, hosts)
	}
	if g.chance(50) {
		o.Spec.AllowedListeners = g.allowedListeners()
	}
	if g.chance(20) {
		o.Spec.TLS = g.gatewayTLS()
	}
	if g.chance(30) {
		for range 1 + g.IntN(2) {
			a := gatewayv1.GatewaySpecAddress{Value: g.word("", g.vip(), g.vip(), g.vip())}
			if g.chance(10) {
				a.Type = some(g, gatewayv1.HostnameAddressType)
			}
			o.Spec.Addresses = append(o.Spec.Addresses, a)
		}
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

// vip is an address that a pool may have.
func (g generator) vip() string {
	return g.word("192.0.2.0", "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.5", "10.0.0.1", "10.0.0.3", "198.51.100.255",
		"2001:db8::1", "2001:db8::2", "2001:db8::3", "::ffff:192.0.2.1", "x")
}

func (g generator) annotate(o metav1.Object) {
	annotations := map[string]string{}
	if g.chance(20) {
		annotations[v1alpha1.AnnotationPool] = g.name()
	}
	if g.chance(20) {
		annotations[v1alpha1.AnnotationAddresses] = g.vip()
		if g.chance(30) {
			annotations[v1alpha1.AnnotationAddresses] += ", " + g.vip()
		}
	}
	o.SetAnnotations(annotations)
}

func (g generator) labels() map[string]string {
	return map[string]string{"team": pick(g, "red", "blue")}
}

func (g generator) selector() *metav1.LabelSelector {
	switch {
	case g.chance(60):
		return nil
	case g.chance(10):
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Odd"}}}
	default:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"team": g.word("red", "blue")}}
	}
}

func (g generator) pool(o *v1alpha1.AddressPool) {
	for range 1 + g.IntN(2) {
		o.Spec.Addresses = append(o.Spec.Addresses, g.word("192.0.2.0/31", "192.0.2.0/31", "192.0.2.2-192.0.2.3", "192.0.2.2-192.0.2.5", "198.51.100.255/32",
			"10.0.0.0/30", "2001:db8::/126", "2001:db8::2-2001:db8::5", "2001:db8:1::/64", "192.0.2.1"))
	}
	o.Spec.AvoidBuggy = g.chance(20)
	o.Spec.Assign = pick(g, "", v1alpha1.AssignAutomatic, v1alpha1.AssignAutomatic, v1alpha1.AssignOnRequest)
	o.Spec.Announce = pick(g, "", v1alpha1.AnnounceBGP, v1alpha1.AnnounceL2)
	o.Spec.Namespaces, o.Spec.Machines = g.selector(), g.selector()
	if g.chance(30) {
		most := int32(1 + g.IntN(2))
		o.Spec.MaxMachines = &most
	}
	if g.balanced && g.chance(70) {
		o.Spec.Sharing = &v1alpha1.PoolSharing{}
		if s := g.selector(); s != nil {
			o.Spec.Sharing.Namespaces = *s
		}
	}
	o.Spec.BGP = g.attributes()
	if g.chance(20) {
		o.Spec.Interfaces = []string{g.word("eth0", "eth1")}
	}
	if g.chance(50) {
		o.Status.Assignments = g.assignments()
	}
}

// assignments are what somebody's hand may have left in a pool's status.
func (g generator) assignments() []v1alpha1.Assignment {
	var list []v1alpha1.Assignment
	for range g.IntN(4) {
		a := v1alpha1.Assignment{
			Address: g.vip(), Kind: pick(g, "Gateway", "Gateway", "Service", "IngressRoute", "Pod"),
			Namespace: g.namespace(), Name: pick(g, "one", "two", "three", "four"),
		}
		if a.Kind == "IngressRoute" && g.chance(60) {
			a.Namespace, a.Name = "", ""
		}
		list = append(list, a)
	}
	return list
}

func (g generator) attributes() v1alpha1.PathAttributes {
	var a v1alpha1.PathAttributes
	if g.chance(30) {
		a.Communities = []string{g.word("65000:1", "1:2:3", "no-export", "65536:1", "x")}
		a.MED = some(g, int64(g.IntN(3)-1))
	}
	if g.chance(10) {
		a.LocalPreference, a.Prepend = some(g, int64(100)), int32(g.IntN(19)-1)
	}
	return a
}

// reached says how some peers are reached. It follows from the rest of them, so that it leaves the generator as it was:
// the worlds of each seed are known for what they hold.
func reached(o *v1alpha1.BGPPeer) {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, o.Name, o.Spec.Address, o.Spec.LocalASN, o.Spec.PeerASN, o.Spec.HoldTime, o.Spec.KeepaliveTime)
	g := generator{Rand: rand.New(rand.NewPCG(h.Sum64(), 0))}
	if g.chance(80) {
		return
	}
	o.Spec.Role, o.Spec.StrictRole = v1alpha1.BGPRole(g.word("", "Customer", "Peer", "King")), g.chance(40)
	o.Spec.Connection, o.Spec.VRF = v1alpha1.ConnectionMode(g.word("", "Both", "None")), g.word("", "red")
	o.Spec.SourceAddress, o.Spec.TTLSecurityHops = g.word("", "10.0.0.0/24", "2001:db8::/64", "x/1"), pick(g, int32(0), 1, 255)
	if g.chance(40) {
		o.Spec.Address, o.Spec.Interface = g.word("", "", "", "10.0.0.254"), g.word("eth0", "eth0", "a/b")
	}
}

func (g generator) peer(o *v1alpha1.BGPPeer) {
	o.Spec = v1alpha1.BGPPeerSpec{
		Address:  g.word("10.0.0.254", "10.0.0.254", "2001:db8::fe", "fe80::1%eth0", "fe80::1", "0.0.0.0", "x"),
		LocalASN: pick(g, int64(65000), 65000, 23456), PeerASN: pick(g, int64(64999), 65000),
		Machines: g.selector(), HoldTime: some(g, metav1.Duration{Duration: time.Duration(g.IntN(10)) * time.Second}),
		KeepaliveTime: some(g, metav1.Duration{Duration: time.Duration(g.IntN(5)) * time.Second}), AddPath: g.chance(30),
	}
	if g.chance(40) {
		o.Spec.PasswordSecret = g.name()
	}
	if g.chance(20) {
		o.Spec.Families = []v1alpha1.Family{v1alpha1.Family(g.word("IPv4", "IPv6"))}
		o.Spec.NextHopIPv6 = g.word("", "2001:db8::7", "192.0.2.7")
	}
	if g.chance(20) {
		o.Spec.BFD = &v1alpha1.BFDSpec{}
		o.Spec.PathAttributes = g.attributes()
	}
	reached(o)
	if g.chance(40) {
		former := v1alpha1.BGPPeer{}
		if g.chance(80) {
			g.peer(&former)
		}
		former.Spec.Address = g.word("10.0.0.254", "10.0.0.253", "x")
		o.Status.InForce = &former.Spec
	}
}

func (g generator) ingressRoute(o *contourv1beta1.IngressRoute) {
	g.annotate(o)
	if g.chance(40) {
		o.Spec.VirtualHost = &contourv1beta1.VirtualHost{Fqdn: pick(g, "x.example.com", "y.example.com", "w.example.com", "v.example.com", "u.example.com", "t.example.com")}
		if g.chance(10) {
			o.Spec.VirtualHost.Fqdn = g.host()
		}
	}
	g.secure(o)
	for range g.IntN(4) {
		r := contourv1beta1.Route{Match: pick(g, "/", "/a", "/a/b", "/b", "/b%2Fc"), EnableWebsockets: g.chance(10), PermitInsecure: g.chance(20)}
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
				s := contourv1beta1.Service{Name: g.name(), Port: 80, Strategy: pick(g, "", "Random", "Cookie", "Other"), UpstreamValidation: g.validation(5)}
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

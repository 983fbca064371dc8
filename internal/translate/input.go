package translate

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
)

// objects are all objects of a kind.
type objects[O any] = memo.Input[snapshot.Name, *O]

// inputTables are the snapshot: its objects, and indexes of them by what they say.
type inputTables struct {
	config Config
	set    map[snapshot.Kind]func(*snapshot.Snapshot, snapshot.Name)

	// peersInForce are those of the snapshot, which change with the translation that they came from.
	peersInForce func(snapshot.Name) *v1alpha1.BGPPeerSpec

	now *memo.Input[memo.Unit, time.Time]
	own *memo.Input[memo.Unit, snapshot.Own]

	pools                  *objects[v1alpha1.AddressPool]
	bgpPeers               *objects[v1alpha1.BGPPeer]
	backendPolicies        *objects[v1alpha1.BackendPolicy]
	clientPolicies         *objects[v1alpha1.ClientPolicy]
	loadBalancerPolicies   *objects[v1alpha1.LoadBalancerPolicy]
	routePolicies          *objects[v1alpha1.RoutePolicy]
	machines               *objects[v1alpha1.Machine]
	namespaces             *objects[corev1.Namespace]
	secrets                *objects[corev1.Secret]
	configMaps             *objects[corev1.ConfigMap]
	services               *objects[corev1.Service]
	endpointSlices         *objects[discoveryv1.EndpointSlice]
	gatewayClasses         *objects[gatewayv1.GatewayClass]
	gateways               *objects[gatewayv1.Gateway]
	listenerSets           *objects[gatewayv1.ListenerSet]
	httpRoutes             *objects[gatewayv1.HTTPRoute]
	grpcRoutes             *objects[gatewayv1.GRPCRoute]
	tlsRoutes              *objects[gatewayv1.TLSRoute]
	tcpRoutes              *objects[gatewayv1.TCPRoute]
	udpRoutes              *objects[gatewayv1.UDPRoute]
	backendTLSPolicies     *objects[gatewayv1.BackendTLSPolicy]
	referenceGrants        *objects[gatewayv1.ReferenceGrant]
	ingressRoutes          *objects[contourv1beta1.IngressRoute]
	certificateDelegations *objects[contourv1beta1.TLSCertificateDelegation]

	labels      *memo.Table[string, map[string]string] // of namespaces
	slicesOf    *index[snapshot.Name, *discoveryv1.EndpointSlice]
	grantsIn    *index[string, *gatewayv1.ReferenceGrant]
	setsOf      *index[snapshot.Name, struct{}]                                 // ListenerSets, by Gateway
	delegations *index[snapshot.Name, *contourv1beta1.TLSCertificateDelegation] // by Secret
	allMachines *index[memo.Unit, *v1alpha1.Machine]
	allPools    *index[memo.Unit, *v1alpha1.AddressPool]
	allPeers    *index[memo.Unit, *v1alpha1.BGPPeer]
	poolNames   *memo.Table[memo.Unit, []string] // sorted
}

// index finds objects by what they say rather than by their name.
type index[K comparable, V any] = memo.Sum[K, snapshot.Name, V, memo.Parts[snapshot.Name, V]]

func newInputTables(g *memo.Graph, c Config) *inputTables {
	t := &inputTables{config: c, set: map[snapshot.Kind]func(*snapshot.Snapshot, snapshot.Name){}}
	t.now = memo.NewInput[memo.Unit, time.Time](g, "now")
	t.own = memo.NewInput[memo.Unit, snapshot.Own](g, "own endpoints")
	t.set[snapshot.KindTime] = func(s *snapshot.Snapshot, _ snapshot.Name) { t.now.Set(memo.Unit{}, s.Now) }
	t.set[snapshot.KindOwn] = func(s *snapshot.Snapshot, _ snapshot.Name) { t.own.Set(memo.Unit{}, s.Own) }
	t.pools = input(g, t, snapshot.KindAddressPool, func(s *snapshot.Snapshot) map[snapshot.Name]*v1alpha1.AddressPool { return s.AddressPools })
	t.bgpPeers = input(g, t, snapshot.KindBGPPeer, func(s *snapshot.Snapshot) map[snapshot.Name]*v1alpha1.BGPPeer { return s.BGPPeers })
	t.backendPolicies = input(g, t, snapshot.KindBackendPolicy, func(s *snapshot.Snapshot) map[snapshot.Name]*v1alpha1.BackendPolicy { return s.BackendPolicies })
	t.clientPolicies = input(g, t, snapshot.KindClientPolicy, func(s *snapshot.Snapshot) map[snapshot.Name]*v1alpha1.ClientPolicy { return s.ClientPolicies })
	t.loadBalancerPolicies = input(g, t, snapshot.KindLoadBalancerPolicy, func(s *snapshot.Snapshot) map[snapshot.Name]*v1alpha1.LoadBalancerPolicy {
		return s.LoadBalancerPolicies
	})
	t.routePolicies = input(g, t, snapshot.KindRoutePolicy, func(s *snapshot.Snapshot) map[snapshot.Name]*v1alpha1.RoutePolicy { return s.RoutePolicies })
	t.machines = input(g, t, snapshot.KindMachine, func(s *snapshot.Snapshot) map[snapshot.Name]*v1alpha1.Machine { return s.Machines })
	t.namespaces = input(g, t, snapshot.KindNamespace, func(s *snapshot.Snapshot) map[snapshot.Name]*corev1.Namespace { return s.Namespaces })
	t.secrets = input(g, t, snapshot.KindSecret, func(s *snapshot.Snapshot) map[snapshot.Name]*corev1.Secret { return s.Secrets })
	t.configMaps = input(g, t, snapshot.KindConfigMap, func(s *snapshot.Snapshot) map[snapshot.Name]*corev1.ConfigMap { return s.ConfigMaps })
	t.services = input(g, t, snapshot.KindService, func(s *snapshot.Snapshot) map[snapshot.Name]*corev1.Service { return s.Services })
	t.endpointSlices = input(g, t, snapshot.KindEndpointSlice, func(s *snapshot.Snapshot) map[snapshot.Name]*discoveryv1.EndpointSlice { return s.EndpointSlices })
	t.gatewayClasses = input(g, t, snapshot.KindGatewayClass, func(s *snapshot.Snapshot) map[snapshot.Name]*gatewayv1.GatewayClass { return s.GatewayClasses })
	t.gateways = input(g, t, snapshot.KindGateway, func(s *snapshot.Snapshot) map[snapshot.Name]*gatewayv1.Gateway { return s.Gateways })
	t.listenerSets = input(g, t, snapshot.KindListenerSet, func(s *snapshot.Snapshot) map[snapshot.Name]*gatewayv1.ListenerSet { return s.ListenerSets })
	t.httpRoutes = input(g, t, snapshot.KindHTTPRoute, func(s *snapshot.Snapshot) map[snapshot.Name]*gatewayv1.HTTPRoute { return s.HTTPRoutes })
	t.grpcRoutes = input(g, t, snapshot.KindGRPCRoute, func(s *snapshot.Snapshot) map[snapshot.Name]*gatewayv1.GRPCRoute { return s.GRPCRoutes })
	t.tlsRoutes = input(g, t, snapshot.KindTLSRoute, func(s *snapshot.Snapshot) map[snapshot.Name]*gatewayv1.TLSRoute { return s.TLSRoutes })
	t.tcpRoutes = input(g, t, snapshot.KindTCPRoute, func(s *snapshot.Snapshot) map[snapshot.Name]*gatewayv1.TCPRoute { return s.TCPRoutes })
	t.udpRoutes = input(g, t, snapshot.KindUDPRoute, func(s *snapshot.Snapshot) map[snapshot.Name]*gatewayv1.UDPRoute { return s.UDPRoutes })
	t.backendTLSPolicies = input(g, t, snapshot.KindBackendTLSPolicy, func(s *snapshot.Snapshot) map[snapshot.Name]*gatewayv1.BackendTLSPolicy { return s.BackendTLSPolicies })
	t.referenceGrants = input(g, t, snapshot.KindReferenceGrant, func(s *snapshot.Snapshot) map[snapshot.Name]*gatewayv1.ReferenceGrant { return s.ReferenceGrants })
	t.ingressRoutes = input(g, t, snapshot.KindIngressRoute, func(s *snapshot.Snapshot) map[snapshot.Name]*contourv1beta1.IngressRoute { return s.IngressRoutes })
	t.certificateDelegations = input(g, t, snapshot.KindTLSCertificateDelegation, func(s *snapshot.Snapshot) map[snapshot.Name]*contourv1beta1.TLSCertificateDelegation {
		return s.TLSCertificateDelegations
	})

	t.labels = memo.NewTable(g, "namespace labels", t.namespaceLabels, memo.Reads(t.namespaces))
	t.slicesOf = newIndex(g, "EndpointSlices of a Service", t.endpointSlices, func(_ snapshot.Name, o *discoveryv1.EndpointSlice, put func(snapshot.Name, *discoveryv1.EndpointSlice)) {
		if service, is := serviceOfSlice(o); is {
			put(service, o)
		}
	})
	t.grantsIn = newIndex(g, "ReferenceGrants in a namespace", t.referenceGrants, func(n snapshot.Name, o *gatewayv1.ReferenceGrant, put func(string, *gatewayv1.ReferenceGrant)) {
		put(n.Namespace, o)
	})
	t.setsOf = newIndex(g, "ListenerSets of a Gateway", t.listenerSets, func(_ snapshot.Name, o *gatewayv1.ListenerSet, put func(snapshot.Name, struct{})) {
		if gateway, is := gatewayOf(o); is {
			put(gateway, struct{}{})
		}
	})
	t.delegations = newIndex(g, "delegations of a Secret", t.certificateDelegations, func(n snapshot.Name, o *contourv1beta1.TLSCertificateDelegation, put func(snapshot.Name, *contourv1beta1.TLSCertificateDelegation)) {
		seen := map[string]bool{}
		for _, d := range o.Spec.Delegations {
			if !seen[d.SecretName] {
				seen[d.SecretName] = true
				put(snapshot.Name{Namespace: n.Namespace, Name: d.SecretName}, o)
			}
		}
	})
	t.allMachines = newIndex(g, "all Machines", t.machines, everyone[v1alpha1.Machine])
	t.allPools = newIndex(g, "all AddressPools", t.pools, everyone[v1alpha1.AddressPool])
	t.allPeers = newIndex(g, "all BGPPeers", t.bgpPeers, everyone[v1alpha1.BGPPeer])
	t.poolNames = memo.NewTable(g, "names of AddressPools", func(c *memo.Context, _ memo.Unit) ([]string, bool) {
		var names []string
		for n := range t.allPools.Get(c, memo.Unit{}).All() {
			names = append(names, n.Name)
		}
		slices.Sort(names)
		return names, true
	}, memo.Reads(t.allPools))
	return t
}

// input declares the objects of a kind.
func input[O any](g *memo.Graph, t *inputTables, kind snapshot.Kind, of func(*snapshot.Snapshot) map[snapshot.Name]*O) *objects[O] {
	in := memo.NewInput[snapshot.Name, *O](g, string(kind))
	t.set[kind] = func(s *snapshot.Snapshot, n snapshot.Name) {
		if o := of(s)[n]; o != nil {
			in.Set(n, o)
		} else {
			in.Delete(n)
		}
	}
	return in
}

// newIndex declares an index: find puts an object, or what of it matters, under what it says.
func newIndex[O any, K comparable, V comparable](g *memo.Graph, name string, in *objects[O], find func(n snapshot.Name, o *O, put func(K, V))) *index[K, V] {
	x := memo.NewSum[K, snapshot.Name, V](g, name).Same(func(a, b V) bool { return a == b })
	memo.NewScan(g, name+": index", in, func(c *memo.Context, n snapshot.Name, o *O) {
		find(n, o, func(k K, v V) { x.Put(c, k, n, v) })
	}, memo.Puts(x))
	return x
}

func everyone[O any](_ snapshot.Name, o *O, put func(memo.Unit, *O)) { put(memo.Unit{}, o) }

// changed takes note of an object that changed.
func (t *inputTables) changed(s *snapshot.Snapshot, k snapshot.Key) {
	t.peersInForce = func(n snapshot.Name) *v1alpha1.BGPPeerSpec { return s.PeersInForce[n] }
	if set := t.set[k.Kind]; set != nil {
		set(s, k.Name)
	}
}

// serviceOfSlice is the Service whose endpoints an EndpointSlice has.
func serviceOfSlice(o *discoveryv1.EndpointSlice) (snapshot.Name, bool) {
	name := o.Labels[labelServiceName]
	return snapshot.Name{Namespace: o.Namespace, Name: name}, name != ""
}

// namespaceLabels are the labels of a namespace, with that of its name.
func (t *inputTables) namespaceLabels(c *memo.Context, name string) (map[string]string, bool) {
	labels := map[string]string{labelNamespaceName: name}
	if o := t.namespaces.Get(c, snapshot.Name{Name: name}); o != nil {
		for k, v := range o.Labels {
			labels[k] = v
		}
	}
	return labels, true
}

// granted reports whether a ReferenceGrant lets objects of a kind and API group refer from their namespace to an
// object in another.
func (t *inputTables) granted(c *memo.Context, group string, kind snapshot.Kind, namespace string, toKind snapshot.Kind, to snapshot.Name) bool {
	for _, grant := range t.grantsIn.Get(c, to.Namespace).All() {
		from := slices.ContainsFunc(grant.Spec.From, func(f gatewayv1.ReferenceGrantFrom) bool {
			return string(f.Group) == group && f.Kind == gatewayv1.Kind(kind) && string(f.Namespace) == namespace
		})
		if from && slices.ContainsFunc(grant.Spec.To, func(t gatewayv1.ReferenceGrantTo) bool {
			return t.Group == "" && t.Kind == gatewayv1.Kind(toKind) && (t.Name == nil || *t.Name == "" || string(*t.Name) == to.Name)
		}) {
			return true
		}
	}
	return false
}

// noGrant says what granted did not find.
func noGrant(kind snapshot.Kind, namespace string, toKind snapshot.Kind, to snapshot.Name) string {
	return "no ReferenceGrant in namespace " + to.Namespace + " lets " + string(kind) + "s of namespace " + namespace + " use " + string(toKind) + " " + to.Name
}

// gatewayOf is the Gateway that a ListenerSet names, if it names one.
func gatewayOf(o *gatewayv1.ListenerSet) (snapshot.Name, bool) {
	ref := &o.Spec.ParentRef
	return snapshot.Name{Namespace: cmp.Or(string(deref(ref.Namespace)), o.Namespace), Name: string(ref.Name)},
		(ref.Group == nil || *ref.Group == gatewayv1.GroupName) && (ref.Kind == nil || *ref.Kind == gatewayv1.Kind(snapshot.KindGateway))
}

func compareNames(a, b snapshot.Name) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// sortedParts are who has a part, sorted.
func sortedParts[V any](parts memo.Parts[snapshot.Name, V]) []snapshot.Name {
	names := make([]snapshot.Name, 0, parts.Len())
	for n := range parts.All() {
		names = append(names, n)
	}
	slices.SortFunc(names, compareNames)
	return names
}

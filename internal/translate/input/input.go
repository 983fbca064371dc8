package input

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
)

// Objects are all objects of a kind.
type Objects[O any] = memo.Input[snapshot.Name, *O]

// Policies are all policies of a kind that is attached to targets.
type Policies struct {
	snapshot.Resource
	memo.Driver[snapshot.Name]
	// Get returns a policy; nil where it does not exist.
	Get func(*memo.Context, snapshot.Name) snapshot.Object
	// Scan has a function see each policy, as memo.NewScan does.
	Scan func(name string, see func(*memo.Context, snapshot.Name, snapshot.Object), options ...memo.Option)
}

// Tables are the snapshot, its objects and indexes of them by what they say, and the pins.
type Tables struct {
	Config Config
	set    map[snapshot.Kind]func(*snapshot.Snapshot, snapshot.Name)

	Now *memo.Input[memo.Unit, time.Time]
	Own *memo.Input[memo.Unit, snapshot.Own]
	// Pins are all that is pinned, by the number of the Pin. They come from the caller, not from the snapshot.
	Pins    *memo.Input[int, Pins]
	lastPin int

	Pools                  *Objects[v1alpha1.AddressPool]
	BGPPeers               *Objects[v1alpha1.BGPPeer]
	PeersInForce           *Objects[v1alpha1.BGPPeerSpec] // the settings that machines have, by BGPPeer
	BackendPolicies        *Objects[v1alpha1.BackendPolicy]
	ClientPolicies         *Objects[v1alpha1.ClientPolicy]
	LoadBalancerPolicies   *Objects[v1alpha1.LoadBalancerPolicy]
	RoutePolicies          *Objects[v1alpha1.RoutePolicy]
	Machines               *Objects[v1alpha1.Machine]
	Namespaces             *Objects[corev1.Namespace]
	Secrets                *Objects[corev1.Secret]
	ConfigMaps             *Objects[corev1.ConfigMap]
	Services               *Objects[corev1.Service]
	EndpointSlices         *Objects[discoveryv1.EndpointSlice]
	GatewayClasses         *Objects[gatewayv1.GatewayClass]
	Gateways               *Objects[gatewayv1.Gateway]
	ListenerSets           *Objects[gatewayv1.ListenerSet]
	HTTPRoutes             *Objects[gatewayv1.HTTPRoute]
	GRPCRoutes             *Objects[gatewayv1.GRPCRoute]
	TLSRoutes              *Objects[gatewayv1.TLSRoute]
	TCPRoutes              *Objects[gatewayv1.TCPRoute]
	UDPRoutes              *Objects[gatewayv1.UDPRoute]
	BackendTLSPolicies     *Objects[gatewayv1.BackendTLSPolicy]
	referenceGrants        *Objects[gatewayv1.ReferenceGrant]
	IngressRoutes          *Objects[contourv1beta1.IngressRoute]
	certificateDelegations *Objects[contourv1beta1.TLSCertificateDelegation]

	// Policies are the policies that are attached to targets, by kind, whatever their types.
	Policies []Policies

	Labels      *memo.Table[string, map[string]string] // of namespaces
	SlicesOf    *Index[snapshot.Name, *discoveryv1.EndpointSlice]
	GrantsIn    *Index[string, *gatewayv1.ReferenceGrant]
	SetsOf      *Index[snapshot.Name, struct{}]                                 // ListenerSets, by Gateway
	Delegations *Index[snapshot.Name, *contourv1beta1.TLSCertificateDelegation] // by Secret
	AllMachines *Index[memo.Unit, *v1alpha1.Machine]
	allPools    *Index[memo.Unit, *v1alpha1.AddressPool]
	AllPeers    *Index[memo.Unit, *v1alpha1.BGPPeer]
	PoolNames   *memo.Table[memo.Unit, []string] // sorted
}

// Index finds objects by what they say rather than by their name.
type Index[K comparable, V any] = memo.Sum[K, snapshot.Name, V, memo.Parts[snapshot.Name, V]]

// New adds one input for each kind of resource, and the indexes over them, to a graph.
func New(g *memo.Graph, c Config) *Tables {
	t := &Tables{Config: c, set: map[snapshot.Kind]func(*snapshot.Snapshot, snapshot.Name){}}
	t.Now = memo.NewInput[memo.Unit, time.Time](g, "now")
	t.Own = memo.NewInput[memo.Unit, snapshot.Own](g, "own endpoints")
	t.set[snapshot.KindTime] = func(s *snapshot.Snapshot, _ snapshot.Name) { t.Now.Set(memo.Unit{}, s.Now) }
	t.set[snapshot.KindOwn] = func(s *snapshot.Snapshot, _ snapshot.Name) { t.Own.Set(memo.Unit{}, s.Own) }
	t.Pins = memo.NewInput[int, Pins](g, "pins")
	t.Pools = input[v1alpha1.AddressPool](g, t, snapshot.KindAddressPool)
	t.BGPPeers = input[v1alpha1.BGPPeer](g, t, snapshot.KindBGPPeer)
	t.PeersInForce = peersInForce(g, t)
	t.BackendPolicies = input[v1alpha1.BackendPolicy](g, t, snapshot.KindBackendPolicy)
	t.ClientPolicies = input[v1alpha1.ClientPolicy](g, t, snapshot.KindClientPolicy)
	t.LoadBalancerPolicies = input[v1alpha1.LoadBalancerPolicy](g, t, snapshot.KindLoadBalancerPolicy)
	t.RoutePolicies = input[v1alpha1.RoutePolicy](g, t, snapshot.KindRoutePolicy)
	t.Machines = input[v1alpha1.Machine](g, t, snapshot.KindMachine)
	t.Namespaces = input[corev1.Namespace](g, t, snapshot.KindNamespace)
	t.Secrets = input[corev1.Secret](g, t, snapshot.KindSecret)
	t.ConfigMaps = input[corev1.ConfigMap](g, t, snapshot.KindConfigMap)
	t.Services = input[corev1.Service](g, t, snapshot.KindService)
	t.EndpointSlices = input[discoveryv1.EndpointSlice](g, t, snapshot.KindEndpointSlice)
	t.GatewayClasses = input[gatewayv1.GatewayClass](g, t, snapshot.KindGatewayClass)
	t.Gateways = input[gatewayv1.Gateway](g, t, snapshot.KindGateway)
	t.ListenerSets = input[gatewayv1.ListenerSet](g, t, snapshot.KindListenerSet)
	t.HTTPRoutes = input[gatewayv1.HTTPRoute](g, t, snapshot.KindHTTPRoute)
	t.GRPCRoutes = input[gatewayv1.GRPCRoute](g, t, snapshot.KindGRPCRoute)
	t.TLSRoutes = input[gatewayv1.TLSRoute](g, t, snapshot.KindTLSRoute)
	t.TCPRoutes = input[gatewayv1.TCPRoute](g, t, snapshot.KindTCPRoute)
	t.UDPRoutes = input[gatewayv1.UDPRoute](g, t, snapshot.KindUDPRoute)
	t.BackendTLSPolicies = input[gatewayv1.BackendTLSPolicy](g, t, snapshot.KindBackendTLSPolicy)
	t.referenceGrants = input[gatewayv1.ReferenceGrant](g, t, snapshot.KindReferenceGrant)
	t.IngressRoutes = input[contourv1beta1.IngressRoute](g, t, snapshot.KindIngressRoute)
	t.certificateDelegations = input[contourv1beta1.TLSCertificateDelegation](g, t, snapshot.KindTLSCertificateDelegation)

	t.Labels = memo.NewTable(g, "namespace labels", t.namespaceLabels, memo.Reads(t.Namespaces))
	t.SlicesOf = newIndex(g, "EndpointSlices of a Service", t.EndpointSlices, func(_ snapshot.Name, o *discoveryv1.EndpointSlice, put func(snapshot.Name, *discoveryv1.EndpointSlice)) {
		if service, is := ServiceOfSlice(o); is {
			put(service, o)
		}
	})
	t.GrantsIn = newIndex(g, "ReferenceGrants in a namespace", t.referenceGrants, func(n snapshot.Name, o *gatewayv1.ReferenceGrant, put func(string, *gatewayv1.ReferenceGrant)) {
		put(n.Namespace, o)
	})
	t.SetsOf = newIndex(g, "ListenerSets of a Gateway", t.ListenerSets, func(_ snapshot.Name, o *gatewayv1.ListenerSet, put func(snapshot.Name, struct{})) {
		if gateway, is := GatewayOf(o); is {
			put(gateway, struct{}{})
		}
	})
	t.Delegations = newIndex(g, "delegations of a Secret", t.certificateDelegations, func(n snapshot.Name, o *contourv1beta1.TLSCertificateDelegation, put func(snapshot.Name, *contourv1beta1.TLSCertificateDelegation)) {
		seen := map[string]bool{}
		for _, d := range o.Spec.Delegations {
			if !seen[d.SecretName] {
				seen[d.SecretName] = true
				put(snapshot.Name{Namespace: n.Namespace, Name: d.SecretName}, o)
			}
		}
	})
	t.AllMachines = newIndex(g, "all Machines", t.Machines, everyone[v1alpha1.Machine])
	t.allPools = newIndex(g, "all AddressPools", t.Pools, everyone[v1alpha1.AddressPool])
	t.AllPeers = newIndex(g, "all BGPPeers", t.BGPPeers, everyone[v1alpha1.BGPPeer])
	t.PoolNames = memo.NewTable(g, "names of AddressPools", func(c *memo.Context, _ memo.Unit) ([]string, bool) {
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
func input[O any](g *memo.Graph, t *Tables, kind snapshot.Kind) *Objects[O] {
	in := memo.NewInput[snapshot.Name, *O](g, string(kind))
	t.set[kind] = func(s *snapshot.Snapshot, n snapshot.Name) {
		o, _ := any(s.Get(snapshot.Key{Kind: kind, Name: n})).(*O)
		set(in, n, o)
	}
	if r, _ := snapshot.ResourceOf(kind); r.Targets != nil {
		t.Policies = append(t.Policies, policies(g, r, in))
	}
	return in
}

// peersInForce declares the settings that machines have of BGPPeers. They change with the key of the BGPPeer.
func peersInForce(g *memo.Graph, t *Tables) *Objects[v1alpha1.BGPPeerSpec] {
	in, setPeer := memo.NewInput[snapshot.Name, *v1alpha1.BGPPeerSpec](g, "settings of BGPPeers that machines have"), t.set[snapshot.KindBGPPeer]
	t.set[snapshot.KindBGPPeer] = func(s *snapshot.Snapshot, n snapshot.Name) {
		setPeer(s, n)
		set(in, n, s.PeersInForce[n])
	}
	return in
}

// set sets an object, or deletes it where it is nil.
func set[O any](in *Objects[O], n snapshot.Name, o *O) {
	if o == nil {
		in.Delete(n)
		return
	}
	in.Set(n, o)
}

// policies hides the type of policies.
func policies[O any](g *memo.Graph, r snapshot.Resource, in *Objects[O]) Policies {
	return Policies{
		Resource: r, Driver: in,
		Get: func(c *memo.Context, n snapshot.Name) snapshot.Object {
			o, _ := any(in.Get(c, n)).(snapshot.Object)
			return o
		},
		Scan: func(name string, see func(*memo.Context, snapshot.Name, snapshot.Object), options ...memo.Option) {
			memo.NewScan(g, name, in, func(c *memo.Context, n snapshot.Name, o *O) { see(c, n, any(o).(snapshot.Object)) }, options...)
		},
	}
}

// newIndex declares an index: find puts an object, or what of it matters, under what it says.
func newIndex[O any, K comparable, V comparable](g *memo.Graph, name string, in *Objects[O], find func(n snapshot.Name, o *O, put func(K, V))) *Index[K, V] {
	x := memo.NewSum[K, snapshot.Name, V](g, name).Same(func(a, b V) bool { return a == b })
	memo.NewScan(g, name+": index", in, func(c *memo.Context, n snapshot.Name, o *O) {
		find(n, o, func(k K, v V) { x.Put(c, k, n, v) })
	}, memo.Puts(x))
	return x
}

func everyone[O any](_ snapshot.Name, o *O, put func(memo.Unit, *O)) { put(memo.Unit{}, o) }

// Changed takes note of an object that changed.
func (t *Tables) Changed(s *snapshot.Snapshot, k snapshot.Key) {
	if set := t.set[k.Kind]; set != nil {
		set(s, k.Name)
	}
}

// ServiceOfSlice is the Service whose endpoints an EndpointSlice has.
func ServiceOfSlice(o *discoveryv1.EndpointSlice) (snapshot.Name, bool) {
	name := o.Labels[field.LabelServiceName]
	return snapshot.Name{Namespace: o.Namespace, Name: name}, name != ""
}

// namespaceLabels are the labels of a namespace, with that of its name.
func (t *Tables) namespaceLabels(c *memo.Context, name string) (map[string]string, bool) {
	labels := map[string]string{field.LabelNamespaceName: name}
	if o := t.Namespaces.Get(c, snapshot.Name{Name: name}); o != nil {
		for k, v := range o.Labels {
			labels[k] = v
		}
	}
	return labels, true
}

// Granted reports whether a ReferenceGrant lets objects of a kind and API group refer from their namespace to an
// object in another.
func (t *Tables) Granted(c *memo.Context, group string, kind snapshot.Kind, namespace string, toKind snapshot.Kind, to snapshot.Name) bool {
	for _, grant := range t.GrantsIn.Get(c, to.Namespace).All() {
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

// NoGrant says what Granted did not find.
func NoGrant(kind snapshot.Kind, namespace string, toKind snapshot.Kind, to snapshot.Name) string {
	objects := string(kind) + "s"
	if stem, is := strings.CutSuffix(string(kind), "Policy"); is {
		objects = stem + "Policies"
	}
	return "no ReferenceGrant in namespace " + to.Namespace + " lets " + objects + " of namespace " + namespace + " use " + string(toKind) + " " + to.Name
}

// GatewayOf is the Gateway that a ListenerSet names, if it names one.
func GatewayOf(o *gatewayv1.ListenerSet) (snapshot.Name, bool) {
	ref := &o.Spec.ParentRef
	return snapshot.Name{Namespace: cmp.Or(string(field.Deref(ref.Namespace)), o.Namespace), Name: string(ref.Name)},
		(ref.Group == nil || *ref.Group == gatewayv1.GroupName) && (ref.Kind == nil || *ref.Kind == gatewayv1.Kind(snapshot.KindGateway))
}

// CompareNames orders names by namespace, then by name.
func CompareNames(a, b snapshot.Name) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// SortedParts are who has a part, sorted.
func SortedParts[V any](parts memo.Parts[snapshot.Name, V]) []snapshot.Name {
	names := make([]snapshot.Name, 0, parts.Len())
	for n := range parts.All() {
		names = append(names, n)
	}
	slices.SortFunc(names, CompareNames)
	return names
}

// APIService is the Service of the Kubernetes API, and its EndpointSlice.
var APIService = snapshot.Name{Namespace: "default", Name: "kubernetes"}

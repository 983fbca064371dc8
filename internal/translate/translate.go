package translate

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// ControllerName is the controllerName of the GatewayClasses that are ours,
// unless the configuration says another.
const ControllerName gatewayv1.GatewayController = "fairlead.dev/gateway"

// IngressClass is the class of the IngressRoutes that are ours, unless the configuration says another: that
// which Contour has where no flag says one.
const IngressClass = "contour"

// Config is what an operator decides about translation. The zero value is usable.
type Config struct {
	// ControllerName that a GatewayClass must name to be ours; ControllerName when empty.
	ControllerName gatewayv1.GatewayController
	// RootNamespaces are where root IngressRoutes may stand; any when empty.
	RootNamespaces []string
	// IngressClass is the class of the IngressRoutes that are ours, beside those without one;
	// IngressClass when empty.
	IngressClass string
	// AffinityCookie keeps clients at a backend for services with the strategy Cookie; the proxy's when empty.
	AffinityCookie string
	// DisablePermitInsecure serves no route of an IngressRoute in clear text whose host has TLS.
	DisablePermitInsecure bool
	// MinTLS is the least version of TLS of every host name, which proxies see to; empty is none. Here it
	// changes what statuses say alone.
	MinTLS model.TLSVersion
	// IngressRoutePort is where IngressRoutes are served in clear text; 80 when 0.
	IngressRoutePort uint16
	// IngressRouteTLSPort is where IngressRoutes with TLS are served; 443 when 0.
	IngressRouteTLSPort uint16
	// GatewayAPIVersion is the release of the Gateway API whose CRDs the API serves, as they
	// say themselves; empty when it is not known.
	GatewayAPIVersion string
	// ReservedPorts are taken on every machine and refused to listeners.
	ReservedPorts []uint16
	// SecretNamespace is where the Secrets are that BGPPeers name;
	// v1alpha1.SystemNamespace when empty.
	SecretNamespace string
	// RefusedEndpoints are where endpoints are refused, unless their Namespace allows them
	// (v1alpha1.AnnotationAllowEndpoints).
	RefusedEndpoints []netip.Prefix
}

func (c Config) withDefaults() Config {
	if c.ControllerName == "" {
		c.ControllerName = ControllerName
	}
	if c.IngressRoutePort == 0 {
		c.IngressRoutePort = 80
	}
	if c.IngressRouteTLSPort == 0 {
		c.IngressRouteTLSPort = 443
	}
	c.IngressClass = cmp.Or(c.IngressClass, IngressClass)
	c.SecretNamespace = cmp.Or(c.SecretNamespace, v1alpha1.SystemNamespace)
	return c
}

func (c Config) mayBeRoot(namespace string) bool {
	return len(c.RootNamespaces) == 0 || slices.Contains(c.RootNamespaces, namespace)
}

// Changes is what one Apply changed. A nil value says that the entry is gone. The
// values are shared with the Translator and must not be changed.
type Changes struct {
	Listeners    map[model.ListenerID]*model.Listener
	VirtualHosts map[model.HostKey]*model.VirtualHost
	Certificates map[model.CertificateID]*model.Certificate
	Authorities  map[model.AuthorityID]*model.Authority
	TLSHosts     map[model.HostKey]*model.TLSHost
	Groups       map[model.GroupID]*model.BackendGroup
	Sets         map[model.SetID]*model.BackendSet
	Views        map[model.ViewID]*model.View // the plane puts its combined ones here
	Machines     map[string]*model.Machine
	Nodes        map[string]*model.Node // Decaps is not set: it is what agents report
	Frontends    map[model.FrontendKey]*model.Frontend
	Assignments  map[netip.Addr]*model.Assignment
	VIPs         map[model.VIPKey]*model.VIP
	Peers        map[model.PeerKey]*model.Peer
	Statuses     map[model.Object]*Status
}

func newChanges() Changes {
	return Changes{
		Listeners:    map[model.ListenerID]*model.Listener{},
		VirtualHosts: map[model.HostKey]*model.VirtualHost{},
		Certificates: map[model.CertificateID]*model.Certificate{},
		Authorities:  map[model.AuthorityID]*model.Authority{},
		TLSHosts:     map[model.HostKey]*model.TLSHost{},
		Groups:       map[model.GroupID]*model.BackendGroup{},
		Sets:         map[model.SetID]*model.BackendSet{},
		Views:        map[model.ViewID]*model.View{},
		Machines:     map[string]*model.Machine{},
		Nodes:        map[string]*model.Node{},
		Frontends:    map[model.FrontendKey]*model.Frontend{},
		Assignments:  map[netip.Addr]*model.Assignment{},
		VIPs:         map[model.VIPKey]*model.VIP{},
		Peers:        map[model.PeerKey]*model.Peer{},
		Statuses:     map[model.Object]*Status{},
	}
}

// Empty reports whether nothing changed.
func (c Changes) Empty() bool {
	return len(c.Listeners)+len(c.VirtualHosts)+len(c.Certificates)+len(c.Authorities)+len(c.TLSHosts)+len(c.Groups)+len(c.Sets)+len(c.Views)+len(c.Machines)+
		len(c.Nodes)+len(c.Frontends)+len(c.Assignments)+len(c.VIPs)+len(c.Peers)+len(c.Statuses) == 0
}

// Translator keeps the result of a translation and what is needed to change it
// at a cost that follows the change. It is not safe for concurrent use. It keeps
// pointers into the objects of the snapshot and never writes to them.
type Translator struct {
	config Config
	graph  graph
	index  index

	// Results of nodes, by the names in the nodes.
	namespaces  map[string]map[string]string
	allowances  map[string]*allowance // by namespace
	services    map[snapshot.Name]*serviceFact
	classes     map[string]*classFact
	addresses   []string
	gateways    map[snapshot.Name]*gatewayFact
	sets        map[snapshot.Name]*setFact
	setOutcomes map[setKey]*setOutcome
	sections    map[sectionKey]struct{} // of listeners in clear text
	parents     map[parentKey]*parentFact
	routes      map[model.Object]*routeFact  // HTTPRoutes and GRPCRoutes
	streams     map[model.Object]*streamFact // TLSRoutes, TCPRoutes and UDPRoutes
	backendTLS  map[snapshot.Name]*backendTLSFact
	ingresses   map[snapshot.Name]*ingressFact
	trees       map[snapshot.Name]*treeFact
	hosts       map[model.HostKey]*hostState

	// The same, of what brings requests to the machines.
	own          []ownAddress
	fleet        []fleetMachine
	pools        map[string]*poolFact
	records      map[string]*recordFact
	selections   map[string]*selectionFact
	peers        map[string]*peerFact
	secrets      map[string]*secretFact
	outcomes     map[model.Object]*outcome
	poolOutcomes map[string]*poolOutcome
	grants       map[netip.Addr]grant

	// The same, of frontends.
	balanced    map[snapshot.Name]*balancedFact // Services of our class
	doors       map[doorKey]*doorState
	frontendsAt map[netip.Addr]*frontendsAt

	// The same, of TLS.
	certificates map[snapshot.Name]*certificateFact // of those that somebody read
	authorities  map[authorityKey]*authorityFact    // the same
	tlsHosts     map[model.HostKey]*tlsState
	tlsServed    map[model.HostKey]*tlsClaim // what is published

	policies policyState

	// Sums over nodes.
	ports      map[model.ListenerID]map[model.Object]int64 // who asks for a listener, created when
	lostPorts  map[model.ListenerID]model.Object           // who has the port for the other protocol
	reached    map[snapshot.Name]nameSet                   // IngressRoute -> roots that delegate to it
	attached   map[parentKey]map[gatewayv1.SectionName]int32
	groups     map[model.GroupID]*groupState
	setUses    map[node]int // of sets, by groups
	balances   map[node]int // of sets, by frontends
	wants      map[model.Object]*want
	sharing    map[string]int                           // root IngressRoutes that share an address, by namespace
	sharingTLS map[string]int                           // those of them with TLS
	leadsTo    map[string]map[model.ListenerID]struct{} // pool -> where its VIPs lead
	selectedBy map[string]nameSet                       // machine -> pools that select it
	chosenBy   map[string]nameSet                       // machine -> pools whose spec.machines takes it
	peersAt    map[string]nameSet                       // valid BGPPeers, by address or interface
	peerAt     map[string][]string                      // BGPPeer -> machines in the result

	users               map[snapshot.Name]map[snapshot.Name]int            // Service -> Gateways whose routes use it
	reaches             map[snapshot.Name]int                              // Service -> its sets that are used
	rivals              map[model.HostKey][]rival                          // contested hosts: who claims them, oldest first
	contests            map[model.ListenerID]map[model.HostKey]struct{}    // contested hosts
	rejected            map[model.ListenerID]map[model.Object]model.Object // routes that are rejected, and for whom
	usesOf              map[model.Object][]serviceUse                      // what a route added to users
	counted             map[model.Object][]attachment                      // what a route added to attached
	touched             map[model.GroupID]struct{}                         // groups whose uses changed in this Apply
	certificateUses     map[model.CertificateID]int
	authorityUses       map[model.AuthorityID]int
	touchedCertificates map[model.CertificateID]struct{} // to be looked at at the end of this Apply
	touchedAuthorities  map[model.AuthorityID]struct{}

	result Changes // everything that stands, never nil values
	out    Changes // what this Apply changed
}

// New returns a Translator of an empty snapshot. Its first Apply must name every
// key of the snapshot.
func New(c Config) *Translator {
	t := &Translator{
		config:      c.withDefaults(),
		graph:       newGraph(),
		index:       newIndex(c),
		namespaces:  map[string]map[string]string{},
		allowances:  map[string]*allowance{},
		services:    map[snapshot.Name]*serviceFact{},
		classes:     map[string]*classFact{},
		gateways:    map[snapshot.Name]*gatewayFact{},
		sets:        map[snapshot.Name]*setFact{},
		setOutcomes: map[setKey]*setOutcome{},
		sections:    map[sectionKey]struct{}{},
		parents:     map[parentKey]*parentFact{},
		routes:      map[model.Object]*routeFact{},
		streams:     map[model.Object]*streamFact{},
		backendTLS:  map[snapshot.Name]*backendTLSFact{},
		ingresses:   map[snapshot.Name]*ingressFact{},
		trees:       map[snapshot.Name]*treeFact{},
		hosts:       map[model.HostKey]*hostState{},
		policies:    newPolicyState(),
		ports:       map[model.ListenerID]map[model.Object]int64{},
		lostPorts:   map[model.ListenerID]model.Object{},
		reached:     map[snapshot.Name]nameSet{},
		attached:    map[parentKey]map[gatewayv1.SectionName]int32{},
		groups:      map[model.GroupID]*groupState{},
		setUses:     map[node]int{},
		balances:    map[node]int{},

		pools:        map[string]*poolFact{},
		records:      map[string]*recordFact{},
		selections:   map[string]*selectionFact{},
		peers:        map[string]*peerFact{},
		secrets:      map[string]*secretFact{},
		outcomes:     map[model.Object]*outcome{},
		poolOutcomes: map[string]*poolOutcome{},
		grants:       map[netip.Addr]grant{},
		wants:        map[model.Object]*want{},
		sharing:      map[string]int{},
		sharingTLS:   map[string]int{},
		leadsTo:      map[string]map[model.ListenerID]struct{}{},
		selectedBy:   map[string]nameSet{},
		chosenBy:     map[string]nameSet{},
		peersAt:      map[string]nameSet{},
		peerAt:       map[string][]string{},

		balanced:    map[snapshot.Name]*balancedFact{},
		doors:       map[doorKey]*doorState{},
		frontendsAt: map[netip.Addr]*frontendsAt{},

		certificates:        map[snapshot.Name]*certificateFact{},
		authorities:         map[authorityKey]*authorityFact{},
		tlsHosts:            map[model.HostKey]*tlsState{},
		tlsServed:           map[model.HostKey]*tlsClaim{},
		certificateUses:     map[model.CertificateID]int{},
		authorityUses:       map[model.AuthorityID]int{},
		touchedCertificates: map[model.CertificateID]struct{}{},
		touchedAuthorities:  map[model.AuthorityID]struct{}{},

		users:    map[snapshot.Name]map[snapshot.Name]int{},
		reaches:  map[snapshot.Name]int{},
		rivals:   map[model.HostKey][]rival{},
		contests: map[model.ListenerID]map[model.HostKey]struct{}{},
		rejected: map[model.ListenerID]map[model.Object]model.Object{},
		usesOf:   map[model.Object][]serviceUse{},
		counted:  map[model.Object][]attachment{},
		touched:  map[model.GroupID]struct{}{},
		result:   newChanges(),
	}
	t.graph.mark(viewNode(model.SharedView))
	t.graph.mark(node{kind: nodeAssign})
	return t
}

// Full translates a whole snapshot.
func Full(c Config, s *snapshot.Snapshot) (*Translator, Changes) {
	t := New(c)
	return t, t.Apply(s, s.Keys())
}

// Apply brings the result up to the snapshot, in which the objects of the given
// keys were set, replaced or deleted since the last Apply, and returns what
// changed. Keys may repeat, and may name objects that did not change. Between two
// calls with the same Translator all other objects must have stayed the same.
func (t *Translator) Apply(s *snapshot.Snapshot, changed []snapshot.Key) Changes {
	t.out = newChanges()
	for _, k := range changed {
		t.input(s, k)
	}
	for layer := range layerCount {
		for n := range t.graph.take(layer) {
			t.graph.forget(n)
			t.compute(reader{t: t, s: s, by: n}, n)
		}
		if layer == nodeTLSServed.layer() {
			t.settleGroups()
			t.settleCertificates(s)
		}
	}
	out := t.out
	t.out = Changes{}
	return out
}

func (t *Translator) compute(r reader, n node) {
	switch n.kind {
	case nodeNamespace:
		update(t, n, t.namespaces, n.a, namespaceLabels(r, n.a))
	case nodeAllowance:
		update(t, n, t.allowances, n.a, makeAllowance(r.s.Namespaces[snapshot.Name{Name: n.a}]))
	case nodeService:
		o := r.s.Services[n.name()]
		update(t, n, t.services, n.name(), r.withRefusals(n.name(), r.withPolicies(n.name(), makeServiceFact(o))))
		t.setWant(serviceOwner(n.name()), wantOfService(o))
	case nodeClass:
		t.computeClass(r, n)
	case nodeMachine:
		t.computeMachine(r, n)
	case nodeAddresses:
		t.computeAddresses(r, n)
	case nodeGateway:
		t.computeGateway(r, n)
	case nodeListenerSet:
		update(t, n, t.sets, n.name(), makeSetFact(r, n.name()))
	case nodeParent:
		t.computeParent(r, n)
	case nodeListenerSetStatus:
		t.computeListenerSetStatus(r, n)
	case nodeCertificate:
		t.computeCertificate(r, n)
	case nodeAuthority:
		t.computeAuthority(r, n)
	case nodeTLSHost:
		t.computeTLSHost(n)
	case nodeTLSServed:
		t.computeTLSServed(n)
	case nodePolicy:
		t.computePolicy(r, n)
	case nodePolicyStatus:
		t.computePolicyStatus(r, n)
	case nodeBackendTLS:
		update(t, n, t.backendTLS, n.name(), makeBackendTLSFact(r, n.name()))
	case nodeHTTPRoute, nodeGRPCRoute:
		t.computeRoute(r, n)
	case nodeStream:
		t.computeStream(r, n)
	case nodeStreamStatus:
		t.computeStreamStatus(r, n)
	case nodeDoor:
		t.computeDoor(n)
	case nodeRivals:
		t.computeRivals(r, n)
	case nodeAccepted:
		t.computeAccepted(n)
	case nodeIngressRoute:
		before := t.ingresses[n.name()]
		update(t, n, t.ingresses, n.name(), makeIngressFact(r, n.name()))
		t.wantOfIngress(n.name(), before, t.ingresses[n.name()])
	case nodeTree:
		t.computeTree(r, n)
	case nodeHost:
		t.computeHost(r, n)
	case nodeListener:
		t.computeListener(r, n)
	case nodeHTTPStatus, nodeGRPCStatus:
		t.computeRouteStatus(r, n)
	case nodeBackendTLSStatus:
		t.computeBackendTLSStatus(r, n)
	case nodeIngressStatus:
		t.computeIngressStatus(r, n)
	case nodeGatewayStatus:
		t.computeGatewayStatus(r, n)
	case nodeSet:
		t.computeSet(r, n)
	case nodeView:
		t.computeView(n)
	default:
		t.computeEntrance(r, n)
	}
}

// computeEntrance computes the nodes of what brings requests to the machines.
func (t *Translator) computeEntrance(r reader, n node) {
	switch n.kind {
	case nodeOwn:
		t.computeOwn(r, n)
	case nodeFleet:
		t.computeFleet(r, n)
	case nodePool:
		t.computePool(r, n)
	case nodePoolRecord:
		t.computePoolRecord(r, n)
	case nodeSelection:
		t.computeSelection(r, n)
	case nodeSecret:
		t.computeSecret(r, n)
	case nodePeerSpec:
		t.computePeerSpec(r, n)
	case nodePeer:
		t.computePeer(r, n)
	case nodeAssign:
		t.computeAssign(r)
	case nodeBalanced:
		update(t, n, t.balanced, n.name(), makeBalancedFact(r, n.name()))
	case nodeFrontends:
		t.computeFrontends(r, n)
	case nodeVIP:
		t.computeVIP(r, n)
	case nodePoolStatus:
		t.computePoolStatus(r, n)
	case nodeServiceStatus:
		t.computeServiceStatus(r, n)
	}
}

// update stores a node's result, nil for none, and marks those who read the node
// when the result is another than before.
func update[K comparable, V any](t *Translator, n node, results map[K]V, k K, v V) {
	old, had := results[k]
	has := !reflect.ValueOf(&v).Elem().IsZero()
	if had == has && (!had || reflect.DeepEqual(old, v)) {
		return
	}
	if has {
		results[k] = v
	} else {
		delete(results, k)
	}
	t.graph.changed(n)
}

// publish stores a part of the result, nil for none, and notes the change.
func publish[K comparable, V any](result, out map[K]*V, k K, v *V) {
	publishBy(result, out, k, v, func(a, b *V) bool { return reflect.DeepEqual(a, b) })
}

func publishBy[K comparable, V any](result, out map[K]*V, k K, v *V, equal func(a, b *V) bool) {
	old := result[k]
	if old == nil && v == nil || old != nil && v != nil && equal(old, v) {
		return
	}
	if v == nil {
		delete(result, k)
	} else {
		result[k] = v
	}
	out[k] = v
}

package translate

import (
	"net/netip"
	"strings"
	"time"

	"fairlead.dev/internal/snapshot"
)

type nameSet map[snapshot.Name]struct{}

// index finds objects by what they say rather than by their name. It also
// remembers what each object said, to take it back when the object changes.
type index struct {
	slices      map[snapshot.Name]nameSet // by service
	serviceOf   map[snapshot.Name]snapshot.Name
	grants      map[string]nameSet // by namespace
	roots       map[string]nameSet // by host
	rootOf      map[snapshot.Name]rootEntry
	classes     map[snapshot.Name]string                    // of IngressRoutes that are another controller's
	contests    map[string]*rootsOfHost                     // made when first asked for
	delegations map[snapshot.Name]map[snapshot.Name]targets // by Secret and TLSCertificateDelegation
	delegates   map[snapshot.Name][]snapshot.Name           // the Secrets of each
	machines    nameSet
	now         time.Time // as last told
	pools       map[string]struct{}
	foreign     foreign
	suspects    suspects

	tlsSlots    map[tlsTarget]*policySlot // BackendTLSPolicies, by target
	attachedTLS map[snapshot.Name]attachedTLS

	sets      map[snapshot.Name]nameSet       // ListenerSets, by Gateway
	gatewayOf map[snapshot.Name]snapshot.Name // the Gateway of each

	routerIDs  map[netip.Addr]nameSet // Machines, by what their spec says
	routerIDOf map[string]routerID

	claims addressClaims
}

// rootEntry is what a root IngressRoute says of itself.
type rootEntry struct {
	host    string
	created int64
}

// rootsOfHost are the root IngressRoutes with one host. It is made once for all of
// them: each asks, and there may be thousands.
type rootsOfHost struct {
	names       []snapshot.Name // sorted
	byNamespace map[string]int
	keeper      snapshot.Name // the oldest
	text        string        // that there are several
}

func newIndex(c Config) index {
	return index{
		slices:      map[snapshot.Name]nameSet{},
		serviceOf:   map[snapshot.Name]snapshot.Name{},
		grants:      map[string]nameSet{},
		roots:       map[string]nameSet{},
		rootOf:      map[snapshot.Name]rootEntry{},
		classes:     map[snapshot.Name]string{},
		contests:    map[string]*rootsOfHost{},
		delegations: map[snapshot.Name]map[snapshot.Name]targets{},
		delegates:   map[snapshot.Name][]snapshot.Name{},
		machines:    nameSet{},
		pools:       map[string]struct{}{},
		foreign:     foreign{by: map[snapshot.Key]foreignEntry{}},
		suspects: suspects{
			ranges: rangesOf(c.RefusedEndpoints), by: map[snapshot.Name][]netip.AddrPort{},
		},

		tlsSlots:    map[tlsTarget]*policySlot{},
		attachedTLS: map[snapshot.Name]attachedTLS{},

		sets:      map[snapshot.Name]nameSet{},
		gatewayOf: map[snapshot.Name]snapshot.Name{},

		routerIDs:  map[netip.Addr]nameSet{},
		routerIDOf: map[string]routerID{},

		claims: addressClaims{of: map[string][]addressClaim{}, at: map[netip.Addr][]addressClaim{}},
	}
}

func put[K comparable](m map[K]nameSet, k K, n snapshot.Name) {
	if m[k] == nil {
		m[k] = nameSet{}
	}
	m[k][n] = struct{}{}
}

func drop[K comparable](m map[K]nameSet, k K, n snapshot.Name) {
	delete(m[k], n)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}

// input takes note of a changed object: it updates the indexes and marks what
// must be computed again.
func (t *Translator) input(s *snapshot.Snapshot, k snapshot.Key) {
	n := k.Name
	t.markPoliciesOf(k)
	switch k.Kind {
	case snapshot.KindMachine:
		if s.Machines[n] == nil {
			delete(t.index.machines, n)
		} else {
			t.index.machines[n] = struct{}{}
		}
		t.inputRouterID(s, n)
		t.inputClaims(s, n)
		t.graph.mark(node{kind: nodeMachine, a: n.Name})
		t.graph.mark(node{kind: nodeAddresses})
		t.graph.mark(node{kind: nodeOwn})
		t.graph.mark(node{kind: nodeFleet})
	case snapshot.KindAddressPool:
		t.inputPool(s, n)
	case snapshot.KindBGPPeer:
		t.graph.mark(node{kind: nodePeerSpec, a: n.Name})
		t.graph.mark(node{kind: nodePeer, a: n.Name})
		t.graph.mark(node{kind: nodeOwn})
	case snapshot.KindSecret:
		if n.Namespace == t.config.SecretNamespace {
			t.graph.mark(node{kind: nodeSecret, a: n.Name})
		}
		t.graph.mark(named(nodeCertificate, n))
		t.graph.mark(authorityKey{snapshot.KindSecret, n}.node())
	case snapshot.KindConfigMap:
		t.graph.mark(authorityKey{snapshot.KindConfigMap, n}.node())
	case snapshot.KindNamespace:
		t.graph.mark(node{kind: nodeNamespace, a: n.Name})
		t.graph.mark(node{kind: nodeAllowance, a: n.Name})
	case snapshot.KindService:
		t.graph.mark(named(nodeService, n))
		t.graph.mark(named(nodeServiceStatus, n))
		t.graph.mark(named(nodeBalanced, n))
		t.inputForeign(s, k)
	case snapshot.KindEndpointSlice:
		was := t.index.serviceOf[n]
		t.inputSlice(s, n)
		t.inputForeign(s, k)
		t.inputSuspectsIn(s, n, was)
		if n == apiService {
			t.inputAPI(s)
		}
	case snapshot.KindGatewayClass:
		t.graph.mark(node{kind: nodeClass, a: n.Name})
	case snapshot.KindGateway:
		t.graph.mark(named(nodeGateway, n))
		t.graph.mark(named(nodeGatewayStatus, n))
	case snapshot.KindListenerSet:
		t.inputListenerSet(s, n)
	case snapshot.KindTime:
		t.inputTime(s)
	case snapshot.KindOwn:
		t.inputAPI(s)
		t.inputOwn(s)
	case snapshot.KindHTTPRoute:
		t.graph.mark(named(nodeHTTPRoute, n))
		t.graph.mark(named(nodeHTTPStatus, n))
	case snapshot.KindGRPCRoute:
		t.graph.mark(named(nodeGRPCRoute, n))
		t.graph.mark(named(nodeGRPCStatus, n))
	case snapshot.KindTLSRoute, snapshot.KindTCPRoute, snapshot.KindUDPRoute:
		t.graph.mark(streamNode(routeOwner(k.Kind, n)))
		t.graph.mark(streamStatusNode(routeOwner(k.Kind, n)))
	case snapshot.KindBackendTLSPolicy:
		t.inputBackendTLS(s, n)
	case snapshot.KindClientPolicy, snapshot.KindRoutePolicy, snapshot.KindBackendPolicy, snapshot.KindLoadBalancerPolicy:
		t.inputPolicy(s, k)
		t.graph.changed(parametersNode(n))
	case snapshot.KindReferenceGrant:
		if s.ReferenceGrants[n] == nil {
			drop(t.index.grants, n.Namespace, n)
		} else {
			put(t.index.grants, n.Namespace, n)
		}
		t.graph.changed(node{kind: nodeGrantsIn, a: n.Namespace})
	case snapshot.KindIngressRoute:
		t.inputIngressRoute(s, n)
	case snapshot.KindTLSCertificateDelegation:
		t.inputDelegation(s, n)
	}
}

func (t *Translator) inputPool(s *snapshot.Snapshot, n snapshot.Name) {
	_, known := t.index.pools[n.Name]
	is := s.AddressPools[n] != nil
	switch {
	case is && !known:
		t.index.pools[n.Name] = struct{}{}
	case !is && known:
		delete(t.index.pools, n.Name)
	}
	if is != known {
		t.graph.changed(node{kind: nodePoolNames})
	}
	t.inputRanges(s)
	t.graph.mark(node{kind: nodePool, a: n.Name})
	t.graph.mark(node{kind: nodePoolRecord, a: n.Name})
	t.graph.mark(node{kind: nodeSelection, a: n.Name})
	t.graph.mark(node{kind: nodePoolStatus, a: n.Name})
}

func routerIDNode(id netip.Addr) node { return node{kind: nodeRouterID, a: id.String()} }

func (t *Translator) inputRouterID(s *snapshot.Snapshot, n snapshot.Name) {
	var is routerID
	if o := s.Machines[n]; o != nil {
		if id := parseRouterID(o.Spec.RouterID); id.IsValid() {
			is = routerID{id, o.CreationTimestamp.Unix()}
		}
	}
	was := t.index.routerIDOf[n.Name]
	if was == is {
		return
	}
	delete(t.index.routerIDOf, n.Name)
	if was.id.IsValid() {
		drop(t.index.routerIDs, was.id, n)
		t.graph.changed(routerIDNode(was.id))
	}
	if is.id.IsValid() {
		put(t.index.routerIDs, is.id, n)
		t.index.routerIDOf[n.Name] = is
		t.graph.changed(routerIDNode(is.id))
	}
}

func (t *Translator) inputSlice(s *snapshot.Snapshot, n snapshot.Name) {
	if old, known := t.index.serviceOf[n]; known {
		drop(t.index.slices, old, n)
		delete(t.index.serviceOf, n)
		t.graph.changed(named(nodeSlicesOf, old))
	}
	slice := s.EndpointSlices[n]
	if slice == nil || slice.Labels[labelServiceName] == "" {
		return
	}
	service := snapshot.Name{Namespace: n.Namespace, Name: slice.Labels[labelServiceName]}
	t.index.serviceOf[n] = service
	put(t.index.slices, service, n)
	t.graph.changed(named(nodeSlicesOf, service))
}

func (t *Translator) inputIngressRoute(s *snapshot.Snapshot, n snapshot.Name) {
	t.graph.mark(named(nodeIngressRoute, n))
	t.graph.mark(named(nodeTree, n))
	t.graph.mark(named(nodeIngressStatus, n))
	if class := t.config.othersClass(s, n); class != t.index.classes[n] {
		t.graph.changed(named(nodeIngressRoute, n)) // who delegates to it says so
		if delete(t.index.classes, n); class != "" {
			t.index.classes[n] = class
		}
	}
	var root rootEntry
	// A root that may not stand where it stands cannot spoil the host for one that may.
	if o := t.config.ingressRoute(s, n); o != nil && o.Spec.VirtualHost != nil && t.config.mayBeRoot(n.Namespace) {
		root = rootEntry{strings.ToLower(o.Spec.VirtualHost.Fqdn), o.CreationTimestamp.Unix()}
	}
	old := t.index.rootOf[n]
	if old == root {
		return
	}
	delete(t.index.rootOf, n)
	if old.host != "" {
		drop(t.index.roots, old.host, n)
		t.changedRoots(old.host)
	}
	if root.host != "" {
		put(t.index.roots, root.host, n)
		t.index.rootOf[n] = root
		t.changedRoots(root.host)
	}
}

func (t *Translator) changedRoots(host string) {
	delete(t.index.contests, host)
	t.graph.changed(node{kind: nodeRootsOf, a: host})
}

func (x *index) rootsOf(host string) *rootsOfHost {
	if c := x.contests[host]; c != nil {
		return c
	}
	c := &rootsOfHost{names: sortedNames(x.roots[host]), byNamespace: map[string]int{}}
	var oldest *claim
	for _, n := range c.names {
		c.byNamespace[n.Namespace]++
		of := &claim{owner: ingressOwner(n), created: x.rootOf[n].created}
		if oldest == nil || of.older(oldest) {
			oldest, c.keeper = of, n
		}
	}
	if len(c.names) > 1 {
		c.text = "fqdn " + quote(host) + " is used in multiple IngressRoutes: " + listNames(c.names)
		x.contests[host] = c
	}
	return c
}

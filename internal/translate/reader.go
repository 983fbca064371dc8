package translate

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// reader is how a node sees the snapshot and the results of lower layers. What it
// looks at, there or not, is recorded.
type reader struct {
	t  *Translator
	s  *snapshot.Snapshot
	by node
}

// labelsOf returns the labels of a namespace.
func (r reader) labelsOf(namespace string) map[string]string {
	r.t.graph.read(r.by, node{kind: nodeNamespace, a: namespace})
	if l, found := r.t.namespaces[namespace]; found {
		return l
	}
	return map[string]string{labelNamespaceName: namespace}
}

func (r reader) service(n snapshot.Name) *serviceFact {
	r.t.graph.read(r.by, named(nodeService, n))
	return r.t.services[n]
}

func (r reader) class(name string) *classFact {
	r.t.graph.read(r.by, node{kind: nodeClass, a: name})
	return r.t.classes[name]
}

func (r reader) addresses() []string {
	r.t.graph.read(r.by, node{kind: nodeAddresses})
	return r.t.addresses
}

// own returns the addresses that machines have themselves, sorted.
func (r reader) own() []ownAddress {
	r.t.graph.read(r.by, node{kind: nodeOwn})
	return r.t.own
}

// fleet returns the machines, sorted by name.
func (r reader) fleet() []fleetMachine {
	r.t.graph.read(r.by, node{kind: nodeFleet})
	return r.t.fleet
}

// keeperOf returns the oldest machine with a router id.
func (r reader) keeperOf(id netip.Addr) string {
	r.t.graph.read(r.by, routerIDNode(id))
	return r.t.index.keeperOf(id)
}

// holds says whether a machine has an address, alone.
func (r reader) holds(machine string, a netip.Addr) bool {
	r.t.graph.read(r.by, claimsNode(machine))
	return r.t.index.claims.holder(a) == machine
}

// contests are the addresses that a machine claims and does not have.
func (r reader) contests(machine string) []model.AddressContest {
	r.t.graph.read(r.by, claimsNode(machine))
	return r.t.index.claims.contests(machine)
}

// poolNames returns the names of all pools, sorted.
func (r reader) poolNames() []string {
	r.t.graph.read(r.by, node{kind: nodePoolNames})
	return slices.Sorted(maps.Keys(r.t.index.pools))
}

func (r reader) pool(name string) *poolFact {
	r.t.graph.read(r.by, node{kind: nodePool, a: name})
	return r.t.pools[name]
}

func (r reader) poolRecord(name string) *recordFact {
	r.t.graph.read(r.by, node{kind: nodePoolRecord, a: name})
	return r.t.records[name]
}

func (r reader) selection(pool string) *selectionFact {
	r.t.graph.read(r.by, node{kind: nodeSelection, a: pool})
	return r.t.selections[pool]
}

func (r reader) poolOutcome(pool string) *poolOutcome {
	r.t.graph.read(r.by, node{kind: nodePoolOutcome, a: pool})
	return r.t.poolOutcomes[pool]
}

func (r reader) outcome(owner model.Object) *outcome {
	r.t.graph.read(r.by, outcomeNode(owner))
	return r.t.outcomes[owner]
}

func (r reader) peer(name string) *peerFact {
	r.t.graph.read(r.by, node{kind: nodePeerSpec, a: name})
	return r.t.peers[name]
}

// peersAt returns the valid peers at an address or interface, sorted.
func (r reader) peersAt(a string) []string {
	r.t.graph.read(r.by, peersAtNode(a))
	var names []string
	for _, n := range sortedNames(r.t.peersAt[a]) {
		names = append(names, n.Name)
	}
	return names
}

func (r reader) secret(name string) *secretFact {
	r.t.graph.read(r.by, node{kind: nodeSecret, a: name})
	return r.t.secrets[name]
}

func (r reader) gateway(n snapshot.Name) *gatewayFact {
	r.t.graph.read(r.by, named(nodeGateway, n))
	return r.t.gateways[n]
}

func (r reader) ingress(n snapshot.Name) *ingressFact {
	r.t.graph.read(r.by, named(nodeIngressRoute, n))
	return r.t.ingresses[n]
}

func (r reader) tree(n snapshot.Name) *treeFact {
	r.t.graph.read(r.by, named(nodeTree, n))
	return r.t.trees[n]
}

// owner returns who has a virtual host.
func (r reader) owner(k model.HostKey) hostOwner {
	r.t.graph.read(r.by, hostNode(k))
	if h := r.t.hosts[k]; h != nil {
		return h.owner
	}
	return hostOwner{}
}

// rootsOf returns the root IngressRoutes with a host.
func (r reader) rootsOf(host string) *rootsOfHost {
	r.t.graph.read(r.by, node{kind: nodeRootsOf, a: host})
	return r.t.index.rootsOf(host)
}

// grantsIn returns the ReferenceGrants of a namespace, in no order.
func (r reader) grantsIn(namespace string) []*gatewayv1.ReferenceGrant {
	r.t.graph.read(r.by, node{kind: nodeGrantsIn, a: namespace})
	var grants []*gatewayv1.ReferenceGrant
	for n := range r.t.index.grants[namespace] {
		if g := r.s.ReferenceGrants[n]; g != nil {
			grants = append(grants, g)
		}
	}
	return grants
}

// slicesOf returns the EndpointSlices of a service, in no order.
func (r reader) slicesOf(service snapshot.Name) []*discoveryv1.EndpointSlice {
	r.t.graph.read(r.by, named(nodeSlicesOf, service))
	names := r.t.index.slices[service]
	found := make([]*discoveryv1.EndpointSlice, 0, len(names))
	for n := range names {
		if slice := r.s.EndpointSlices[n]; slice != nil {
			found = append(found, slice)
		}
	}
	return found
}

func compareNames(a, b snapshot.Name) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func sortedNames(set nameSet) []snapshot.Name {
	names := make([]snapshot.Name, 0, len(set))
	for n := range set {
		names = append(names, n)
	}
	slices.SortFunc(names, compareNames)
	return names
}

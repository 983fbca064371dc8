package translate

import (
	"slices"

	"fairlead.dev/internal/snapshot"
)

// nodeKind says what a node of the graph is. The order is that of the layers.
type nodeKind uint8

const (
	// Inputs: entries of the indexes over the snapshot. An object itself is read by
	// nodes of its own name only, and input marks those.
	nodeGrantsIn      nodeKind = iota // a: namespace
	nodeSlicesOf                      // a: namespace, b: service
	nodeRootsOf                       // a: lower-case host
	nodePoolNames                     // which AddressPools there are
	nodeDelegationsOf                 // a: namespace
	nodeRouterID                      // a: router id
	nodeClaims                        // a: machine: which of the addresses that it claims it has
	nodeSetsOf                        // a: namespace, b: Gateway: its ListenerSets
	nodeValidity                      // a: namespace, b: name of a Secret: whether its time has come, or gone
	nodeParameters                    // a: namespace, b: name: whether there is a ClientPolicy
	nodePoliciesOf                    // a: namespace, b: service: its BackendTLSPolicies
	nodeRefused                       // which endpoints are refused: pools' ranges and the Kubernetes API

	nodePolicyAnchor  // a: kind of policies and kind of their target, b: namespace and name of the target
	nodeClassPolicies // which ClientPolicies have a GatewayClass

	// What other nodes ask of an object, without the rest of it.
	nodeNamespace  // a: name
	nodeAllowance  // a: namespace
	nodeClass      // a: name
	nodeAddresses  // where clients reach the machines
	nodeOwn        // the addresses of all machines, with their machines
	nodeFleet      // the machines, as selectors see them
	nodePool       // a: name
	nodePoolRecord // a: name
	nodeSecret     // a: name

	nodeCertificate // a: namespace, b: name of a Secret; made when first read
	nodeAuthority   // a: ConfigMap or Secret, b: namespace, c: name; made when first read

	nodeService      // a: namespace, b: name
	nodeBackendTLS   // a: namespace, b: name
	nodePolicy       // a: kind, b: namespace, c: name
	nodePolicyStatus // a: kind, b: namespace, c: name
	nodeMachine      // a: name
	nodeSelection    // a: pool
	nodePeerSpec     // a: name: the settings in force
	nodePeersAt      // a: address; made by nodePeerSpec
	nodePeer         // a: name
	nodeIngressRoute // a: namespace, b: name

	nodeListenerSet // a: namespace, b: name: judged for itself
	nodeGateway     // a: namespace, b: name, with its ListenerSets
	nodeSetOutcome  // a: namespace, b: ListenerSet, c: Gateway; made by nodeGateway
	nodeSection     // a: namespace, b: Gateway, c: port/hostname; made by nodeGateway

	// Who has which address, and so which listeners a Gateway has.
	nodeAssign
	nodeOutcome     // a: kind, b: namespace, c: name of an owner; made by nodeAssign
	nodePoolOutcome // a: pool; made by nodeAssign
	nodeParent      // a: Gateway or ListenerSet, b: namespace, c: name: as routes see it
	nodeServerName  // a: listener, b: server name: whose listeners have it; made by nodeParent
	nodeTLSHost     // a: listener, b: server name

	nodeBalanced  // a: namespace, b: name of a Service of our class
	nodeStream    // a: kind, b: namespace, c: name of a TLSRoute, TCPRoute or UDPRoute
	nodeDoor      // a: namespace, b: Gateway, c: transport/port: whose connections it takes in
	nodeFrontends // a: address

	nodeHTTPRoute         // a: namespace, b: name
	nodeGRPCRoute         // a: namespace, b: name
	nodeTree              // a: namespace, b: name of a root
	nodeRivals            // a: listener, b: host
	nodeAccepted          // a: listener: which routes are
	nodeRejected          // a: kind, b: namespace, c: name of a route; made by the one before
	nodeHost              // a: listener, b: host
	nodeTLSServed         // a: listener, b: server name
	nodeListener          // a: listener
	nodeVIP               // a: address
	nodePoolStatus        // a: name
	nodeServiceStatus     // a: namespace, b: name
	nodeHTTPStatus        // a: namespace, b: name
	nodeGRPCStatus        // a: namespace, b: name
	nodeStreamStatus      // a: kind, b: namespace, c: name
	nodeUsersOf           // a: namespace, b: service: whose routes use it; made by the two before
	nodeIngressStatus     // a: namespace, b: name
	nodeGatewayStatus     // a: namespace, b: name
	nodeListenerSetStatus // a: namespace, b: name
	nodeSet               // a: namespace, b: service, c: port, with "/UDP" where it is of that
	nodeView              // a: view
	nodeBackendTLSStatus  // a: namespace, b: name
)

const layerCount = 16

// layer is where a kind of node stands: it reads lower layers only.
func (k nodeKind) layer() int {
	switch k {
	case nodeGrantsIn, nodeSlicesOf, nodeRootsOf, nodePoolNames, nodePolicyAnchor, nodeClassPolicies, nodeDelegationsOf, nodeRouterID, nodeClaims, nodeSetsOf, nodeValidity, nodeParameters, nodePoliciesOf, nodeRefused:
		return 0
	case nodeNamespace, nodeAllowance, nodeClass, nodeOwn, nodeFleet, nodePool, nodePoolRecord, nodeSecret,
		nodeCertificate, nodeAuthority, nodeBalanced:
		return 1
	case nodeService, nodeSelection, nodePeerSpec, nodePeersAt, nodeListenerSet, nodeBackendTLS:
		return 2
	case nodeMachine, nodeGateway, nodeSetOutcome, nodeSection, nodePeer, nodeIngressRoute, nodePolicy:
		return 3
	case nodeAssign, nodeOutcome, nodePoolOutcome:
		return 4
	case nodeParent, nodeServerName:
		return 5
	case nodeStream:
		return 6
	case nodeTLSHost, nodeDoor:
		return 7
	case nodeHTTPRoute, nodeGRPCRoute, nodeTree:
		return 8
	case nodeRivals:
		return 9
	case nodeAccepted, nodeRejected:
		return 10
	case nodeHost, nodeListener, nodePoolStatus, nodeAddresses:
		return 11
	case nodeTLSServed, nodeFrontends:
		return 12
	case nodeVIP, nodeServiceStatus:
		return 13
	case nodeHTTPStatus, nodeGRPCStatus, nodeStreamStatus, nodeIngressStatus, nodeSet, nodeUsersOf:
		return 14
	default: // nodeGatewayStatus, nodeListenerSetStatus, nodeBackendTLSStatus, nodePolicyStatus, nodeView
		return 15
	}
}

// node is one unit of computation, or one input of it.
type node struct {
	kind    nodeKind
	a, b, c string
}

func named(kind nodeKind, n snapshot.Name) node { return node{kind: kind, a: n.Namespace, b: n.Name} }

// name is the object's name of a node that named made.
func (n node) name() snapshot.Name { return snapshot.Name{Namespace: n.a, Name: n.b} }

// graph remembers what each node read when it was last computed, and which nodes
// must be computed again.
type graph struct {
	reads   map[node][]node
	readers map[node]readers
	dirty   [layerCount]map[node]struct{}
}

// readers is a set of nodes. Most have one or two, which a map takes half a kilobyte for.
type readers struct {
	few  []node
	many map[node]struct{} // instead, above fewNodes
}

const fewNodes = 8

func (s readers) len() int { return len(s.few) + len(s.many) }

// each calls f for every node, in any order.
func (s readers) each(f func(node)) {
	for _, n := range s.few {
		f(n)
	}
	for n := range s.many {
		f(n)
	}
}

// with is the set with a node, and whether it was in before.
func (s readers) with(n node) (_ readers, before bool) {
	if s.many != nil {
		_, before = s.many[n]
		s.many[n] = struct{}{}
		return s, before
	}
	if slices.Contains(s.few, n) {
		return s, true
	}
	if len(s.few) < fewNodes {
		s.few = append(s.few, n)
		return s, false
	}
	s.many = make(map[node]struct{}, 2*fewNodes)
	for _, f := range s.few {
		s.many[f] = struct{}{}
	}
	s.few, s.many[n] = nil, struct{}{}
	return s, false
}

// without is the set without a node.
func (s readers) without(n node) readers {
	if s.many != nil {
		delete(s.many, n)
		return s
	}
	if i := slices.Index(s.few, n); i >= 0 {
		last := len(s.few) - 1
		s.few[i], s.few[last] = s.few[last], node{}
		s.few = s.few[:last]
	}
	return s
}

func newGraph() graph {
	g := graph{reads: map[node][]node{}, readers: map[node]readers{}}
	for i := range g.dirty {
		g.dirty[i] = map[node]struct{}{}
	}
	return g
}

// mark asks for a node to be computed again.
func (g *graph) mark(n node) { g.dirty[n.kind.layer()][n] = struct{}{} }

// changed marks every node that read n.
func (g *graph) changed(n node) { g.readers[n].each(g.mark) }

// take returns the marked nodes of a layer and unmarks them.
func (g *graph) take(layer int) map[node]struct{} {
	nodes := g.dirty[layer]
	if len(nodes) > 0 {
		g.dirty[layer] = map[node]struct{}{}
	}
	return nodes
}

// read records that by reads of.
func (g *graph) read(by, of node) {
	readers, known := g.readers[of].with(by)
	if !known {
		g.readers[of] = readers
		g.reads[by] = append(g.reads[by], of)
	}
}

// forget takes back everything that n read.
func (g *graph) forget(n node) {
	for _, of := range g.reads[n] {
		if left := g.readers[of].without(n); left.len() > 0 {
			g.readers[of] = left
		} else {
			delete(g.readers, of)
		}
	}
	delete(g.reads, n)
}

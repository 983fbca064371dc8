package translate

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// streamFact is a TLSRoute, TCPRoute or UDPRoute judged for itself: before it is known who
// else wants the same connections.
type streamFact struct {
	created int64
	parents []streamParent
	// resolved is of all references of the rules.
	resolved routeVerdict
	// services that connections go to, sorted.
	services []snapshot.Name
	// notes are what is worth knowing of their backends.
	notes []string
}

// streamParent is one parentRef to a Gateway or ListenerSet that is ours.
type streamParent struct {
	routeParent
	doors []placedDoor // of listeners without a proxy
	names []model.HostKey
	claim map[model.HostKey]*tlsClaim // what it wants of each of names
	kept  []string                    // names that other Gateways have, with who that is
}

// placedDoor is a port of a Gateway, with the listener that has it.
type placedDoor struct {
	doorKey
	section gatewayv1.SectionName
	targets []model.Target
}

// streamSpec is what the three kinds have in common.
type streamSpec struct {
	created    int64
	generation int64
	parents    []gatewayv1.ParentReference
	hostnames  []gatewayv1.Hostname
	backends   [][]gatewayv1.BackendRef // by rule
	rules      []string                 // their names
	transport  model.Transport
}

// spec reads a TLSRoute, TCPRoute or UDPRoute; nil when there is none.
func (t *routeTables) spec(c *memo.Context, kind snapshot.Kind, n snapshot.Name) *streamSpec {
	f := &streamSpec{transport: model.TCP}
	add := func(name *gatewayv1.SectionName, refs []gatewayv1.BackendRef) {
		f.rules, f.backends = append(f.rules, string(deref(name))), append(f.backends, refs)
	}
	switch kind {
	case snapshot.KindTLSRoute:
		o := t.in.tlsRoutes.Get(c, n)
		if o == nil {
			return nil
		}
		f.created, f.generation, f.parents, f.hostnames = o.CreationTimestamp.Unix(), o.Generation, o.Spec.ParentRefs, o.Spec.Hostnames
		for _, r := range o.Spec.Rules {
			add(r.Name, r.BackendRefs)
		}
	case snapshot.KindTCPRoute:
		o := t.in.tcpRoutes.Get(c, n)
		if o == nil {
			return nil
		}
		f.created, f.generation, f.parents = o.CreationTimestamp.Unix(), o.Generation, o.Spec.ParentRefs
		for _, r := range o.Spec.Rules {
			add(r.Name, r.BackendRefs)
		}
	case snapshot.KindUDPRoute:
		o := t.in.udpRoutes.Get(c, n)
		if o == nil {
			return nil
		}
		f.created, f.generation, f.parents, f.transport = o.CreationTimestamp.Unix(), o.Generation, o.Spec.ParentRefs, model.UDP
		for _, r := range o.Spec.Rules {
			add(r.Name, r.BackendRefs)
		}
	default:
		return nil
	}
	return f
}

// doors and names of all parents, each once: of several parents that lead to the same the
// first in the route decides.
func (f *streamFact) doors() map[doorKey]*placedDoor {
	if f == nil {
		return nil
	}
	all := map[doorKey]*placedDoor{}
	for i := range f.parents {
		for j := range f.parents[i].doors {
			if d := &f.parents[i].doors[j]; all[d.doorKey] == nil {
				all[d.doorKey] = d
			}
		}
	}
	return all
}

type streamName struct {
	key    model.HostKey
	parent model.Object
}

func (f *streamFact) names() map[streamName]*tlsClaim {
	if f == nil {
		return nil
	}
	all := map[streamName]*tlsClaim{}
	for i := range f.parents {
		p := &f.parents[i]
		for k, c := range p.claim {
			if n := (streamName{k, p.parent.object()}); all[n] == nil {
				all[n] = c
			}
		}
	}
	return all
}

// makeStream judges a route, and claims the connections that it wants.
func (t *routeTables) makeStream(c *memo.Context, owner model.Object) (*streamFact, bool) {
	f := t.judgeStream(c, owner)
	if f == nil {
		return nil, false
	}
	for k, d := range f.doors() {
		t.doors.Put(c, k, owner, &doorClaim{created: f.created, targets: d.targets})
	}
	for k, wants := range f.names() {
		t.host.routeNames.Put(c, k.key, tlsClaimant{k.parent, owner}, wants)
	}
	return f, true
}

// judgeStream judges a route; nil when there is none or nothing of ours is its parent.
func (t *routeTables) judgeStream(c *memo.Context, owner model.Object) *streamFact {
	kind, name := snapshot.Kind(owner.Kind), snapshot.Name{Namespace: owner.Namespace, Name: owner.Name}
	o := t.spec(c, kind, name)
	if o == nil {
		return nil
	}
	f := &streamFact{created: o.created}
	for _, ref := range o.parents {
		if k, ok := parentOf(ref, owner.Namespace); ok {
			if p := t.gateway.parents.Get(c, k); p != nil {
				f.parents = append(f.parents, streamParent{routeParent: routeParent{ref: ref, parent: k, gateway: p.gateway, certificate: p.clientCertificate}})
			}
		}
	}
	if len(f.parents) == 0 {
		return nil
	}
	sc := streamCompiler{routeCompiler: routeCompiler{t: t, ctx: c, owner: owner, created: o.created}, spec: o, noted: map[string]bool{}}
	if sc.targets = sc.makeTargets(); sc.rule.failed {
		sc.refused = sc.rule
	}
	var hostnames []string
	if kind == snapshot.KindTLSRoute {
		hostnames = sc.hostnames(o.hostnames)
	} else {
		hostnames = []string{anyHost}
	}
	for i := range f.parents {
		p := &f.parents[i]
		sc.certificate = p.certificate
		sc.attach(p, hostnames)
		if sc.refused.failed {
			p.accepted, p.doors, p.names, p.claim, p.kept, p.sections = sc.refused, nil, nil, nil, nil, nil
		}
	}
	f.resolved, f.services, f.notes = sc.resolved, sc.services, sc.notes
	slices.SortFunc(f.services, compareNames)
	f.services = slices.Compact(f.services)
	return f
}

// streamCompiler reads one route.
type streamCompiler struct {
	routeCompiler
	spec    *streamSpec
	targets []model.Target
	noted   map[string]bool // paths of references whose groups cannot be made
}

// refs calls for each reference that has a weight with the port that it means.
func (c *streamCompiler) refs(each func(weight uint32, service snapshot.Name, port servicePort, path string, ok bool)) {
	for i, refs := range c.spec.backends {
		path := at("spec.rules", i) + ".backendRefs"
		if i > 0 {
			c.refuse(at("spec.rules", i), "only one rule can be: connections cannot be told apart")
			return
		}
		for j := range refs {
			ref, field := &refs[j], at(path, j)
			weight := int32(1)
			if ref.Weight != nil {
				weight = *ref.Weight
			}
			if weight < 0 || weight > weightLimit {
				c.refuse(field+".weight", strconv.Itoa(int(weight))+" must be in the range 0-"+strconv.Itoa(weightLimit))
				weight = 0
			}
			service, port, ok := c.servicePort(&ref.BackendObjectReference, corev1.Protocol(c.spec.transport), field)
			if weight > 0 {
				each(uint32(weight), service, port, field, ok)
			}
		}
	}
}

// makeTargets are the sets that share connections. A share whose reference is broken has no
// set.
func (c *streamCompiler) makeTargets() []model.Target {
	var targets []model.Target
	c.refs(func(weight uint32, service snapshot.Name, port servicePort, _ string, ok bool) {
		var set model.SetID
		if ok {
			set = portKey{service, port.number, c.spec.transport}.id()
		}
		if i := slices.IndexFunc(targets, func(t model.Target) bool { return t.Set == set }); i >= 0 {
			targets[i].Weight = uint32(min(uint64(targets[i].Weight)+uint64(weight), math.MaxUint32))
			return
		}
		targets = append(targets, model.Target{Set: set, Weight: weight})
	})
	slices.SortFunc(targets, func(a, b model.Target) int { return cmp.Compare(a.Set, b.Set) })
	return targets
}

// shares are the groups that share connections at a proxy. Those whose TLS ended there are
// encrypted anew where a BackendTLSPolicy says so.
func (c *streamCompiler) shares(passed bool) tcpShares {
	var s tcpShares
	quiet := *c // the targets have said what is wrong with the references
	quiet.refs(func(weight uint32, service snapshot.Name, port servicePort, path string, ok bool) {
		switch {
		case !ok:
		case passed:
			g := plainGroup(service, port.number)
			g.Protocol = model.BackendTCP
			s.add(withOptions(g), weight)
			return
		default:
			g, fault, problem := c.t.backend.makeGroup(c.ctx, service, port, groupOptions{protocol: model.BackendTCP, certificate: c.certificate})
			if fault == serviceFine {
				s.add(g, weight)
				return
			}
			if !c.noted[path] {
				c.noted[path] = true
				c.fault(fault, problem, path)
			}
		}
		s.shares = addWeight(s.shares, "", weight)
	})
	return s
}

// attach finds the listeners that a parentRef means, and what of them the route wants.
func (c *streamCompiler) attach(p *streamParent, hostnames []string) {
	f := c.t.gateway.parents.Get(c.ctx, p.parent)
	elsewhere := c.t.gateway.attach(c.ctx, &p.routeParent, attaching{
		kind: snapshot.Kind(c.owner.Kind), namespace: c.owner.Namespace, hostnames: hostnames,
		lost: func(*parentListener) string { return "" },
		want: func(l *parentListener, host string) bool {
			if l.direct() {
				p.doors = append(p.doors, placedDoor{doorKey{f.gateway, l.transport(), uint16(l.port)}, l.name, c.targets})
				return false
			}
			if !c.t.gateway.ownsClear(c.ctx, f, l, host) {
				return true
			}
			if keeper := c.t.host.keeper(c.ctx, l.id, host); keeper != nil && keeper.gateway != f.gateway {
				p.kept = append(p.kept, "server name "+host+" is "+keeper.owner.String()+"'s, whose listener has hostname "+keeper.host)
			} else {
				c.want(p, l, host)
			}
			return false
		},
	})
	if p.accepted.failed {
		p.doors, p.names, p.claim, p.kept = nil, nil, nil, nil
		return
	}
	slices.SortFunc(p.names, model.HostKey.Compare)
	p.noteElsewhere(elsewhere, p.names, "connections")
}

// want notes a server name whose connections the route wants of a listener.
func (c *streamCompiler) want(p *streamParent, l *parentListener, host string) {
	k := model.HostKey{Listener: l.id, Host: host}
	if p.claim[k] != nil {
		return
	}
	shares := c.shares(l.passthrough)
	claim := &tlsClaim{created: c.created, groups: shares.groups, host: model.TLSHost{HostKey: k, Owner: c.owner, TCP: shares.shares}}
	if !l.passthrough {
		claim.host.Certificates, claim.host.MinVersion = l.certificates, l.minTLS
	}
	if p.claim == nil {
		p.claim = map[model.HostKey]*tlsClaim{}
	}
	p.claim[k], p.names = claim, append(p.names, k)
}

// doorKey is a port of a Gateway that leads to backends without a proxy.
type doorKey struct {
	gateway   snapshot.Name
	transport model.Transport
	port      uint16
}

// doorClaim is what one route wants of a door.
type doorClaim struct {
	created int64
	targets []model.Target
}

// doorWinner is the route that has the connections of a door, and what it wants.
type doorWinner struct {
	route model.Object
	claim *doorClaim
}

// winner is the oldest route that claims a door.
func (t *routeTables) winner(c *memo.Context, k doorKey) (*doorWinner, bool) {
	var first *claim
	won := &doorWinner{}
	for route, wants := range t.doors.Get(c, k).All() {
		if mine := (&claim{owner: route, created: wants.created}); first == nil || mine.older(first) {
			first, won.route, won.claim = mine, route, wants
		}
	}
	return won, first != nil
}

package translate

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

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

// streamOf reads a TLSRoute, TCPRoute or UDPRoute; nil when there is none.
func streamOf(s *snapshot.Snapshot, kind snapshot.Kind, n snapshot.Name) *streamSpec {
	f := &streamSpec{transport: model.TCP}
	add := func(name *gatewayv1.SectionName, refs []gatewayv1.BackendRef) {
		f.rules, f.backends = append(f.rules, string(deref(name))), append(f.backends, refs)
	}
	switch kind {
	case snapshot.KindTLSRoute:
		o := s.TLSRoutes[n]
		if o == nil {
			return nil
		}
		f.created, f.generation, f.parents, f.hostnames = o.CreationTimestamp.Unix(), o.Generation, o.Spec.ParentRefs, o.Spec.Hostnames
		for _, r := range o.Spec.Rules {
			add(r.Name, r.BackendRefs)
		}
	case snapshot.KindTCPRoute:
		o := s.TCPRoutes[n]
		if o == nil {
			return nil
		}
		f.created, f.generation, f.parents = o.CreationTimestamp.Unix(), o.Generation, o.Spec.ParentRefs
		for _, r := range o.Spec.Rules {
			add(r.Name, r.BackendRefs)
		}
	case snapshot.KindUDPRoute:
		o := s.UDPRoutes[n]
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

func streamNode(o model.Object) node {
	return node{kind: nodeStream, a: o.Kind, b: o.Namespace, c: o.Name}
}

func streamStatusNode(o model.Object) node {
	return node{kind: nodeStreamStatus, a: o.Kind, b: o.Namespace, c: o.Name}
}

func (r reader) stream(o model.Object) *streamFact {
	r.t.graph.read(r.by, streamNode(o))
	return r.t.streams[o]
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

func (t *Translator) computeStream(r reader, n node) {
	owner := model.Object{Kind: n.a, Namespace: n.b, Name: n.c}
	before := t.streams[owner]
	update(t, n, t.streams, owner, makeStreamFact(r, owner))
	after := t.streams[owner]
	if before == after {
		return
	}
	t.graph.mark(streamStatusNode(owner))
	was, is := before.doors(), after.doors()
	for k := range was {
		if is[k] == nil {
			t.claimDoor(k, owner, nil)
		}
	}
	for k, d := range is {
		t.claimDoor(k, owner, &doorClaim{created: after.created, targets: d.targets})
	}
	wanted, wants := before.names(), after.names()
	for k := range wanted {
		if wants[k] == nil {
			t.claimTLS(k.key, tlsClaimant{k.parent, owner}, nil)
		}
	}
	for k, c := range wants {
		t.claimTLS(k.key, tlsClaimant{k.parent, owner}, c)
	}
}

// makeStreamFact judges a route; nil when there is none or nothing of ours is its parent.
func makeStreamFact(r reader, owner model.Object) *streamFact {
	kind, name := snapshot.Kind(owner.Kind), snapshot.Name{Namespace: owner.Namespace, Name: owner.Name}
	o := streamOf(r.s, kind, name)
	if o == nil {
		return nil
	}
	f := &streamFact{created: o.created}
	for _, ref := range o.parents {
		if k, ok := parentOf(ref, owner.Namespace); ok {
			if p := r.parent(k); p != nil {
				f.parents = append(f.parents, streamParent{routeParent: routeParent{ref: ref, parent: k, gateway: p.gateway, certificate: p.clientCertificate}})
			}
		}
	}
	if len(f.parents) == 0 {
		return nil
	}
	c := streamCompiler{routeCompiler: routeCompiler{r: r, owner: owner, created: o.created}, spec: o, noted: map[string]bool{}}
	if c.targets = c.makeTargets(); c.rule.failed {
		c.refused = c.rule
	}
	var hostnames []string
	if kind == snapshot.KindTLSRoute {
		hostnames = c.hostnames(o.hostnames)
	} else {
		hostnames = []string{anyHost}
	}
	for i := range f.parents {
		p := &f.parents[i]
		c.certificate = p.certificate
		c.attach(p, hostnames)
		if c.refused.failed {
			p.accepted, p.doors, p.names, p.claim, p.kept, p.sections = c.refused, nil, nil, nil, nil, nil
		}
	}
	f.resolved, f.services, f.notes = c.resolved, c.services, c.notes
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
			set = setOf(service, port.number, c.spec.transport)
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
			g, fault, problem := makeGroup(c.r, service, port, groupOptions{protocol: model.BackendTCP, certificate: c.certificate})
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
	r, kind := c.r, snapshot.Kind(c.owner.Kind)
	f := r.parent(p.parent)
	if f.refused != "" {
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingParent, f.refused)
		return
	}
	meant := f.meant(p.ref)
	var allowed, common, serving int
	var elsewhere, refused []string
	for _, i := range meant {
		l := &f.listeners[i]
		if !l.allows(r, kind, p.parent.name.Namespace, c.owner.Namespace) {
			continue
		}
		allowed++
		matched := false
		for _, hostname := range hostnames {
			host, ok := intersect(l.hostname, hostname)
			if !ok {
				continue
			}
			matched = true
			switch {
			case !l.serves() || l.broken():
			case l.direct():
				p.doors = append(p.doors, placedDoor{doorKey{f.gateway, l.transport(), uint16(l.port)}, l.name, c.targets})
			case !f.ownsClear(r, l, host):
				elsewhere = append(elsewhere, host)
			default:
				if keeper := r.keeper(l.id, host); keeper != nil && keeper.gateway != f.gateway {
					p.kept = append(p.kept, "server name "+host+" is "+keeper.host.Owner.String()+"'s, whose listener has hostname "+keeper.host.Host)
					continue
				}
				c.want(p, l, host)
			}
		}
		switch {
		case !matched:
			continue
		case !l.serves():
			refused = append(refused, string(l.name)+" ("+string(l.accepted.reason)+")")
		default:
			serving++
		}
		common++
		p.sections = append(p.sections, l.name)
	}
	name := f.object.String()
	switch {
	case len(meant) == 0:
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingParent, name+" has no listener"+describeSection(p.ref))
	case allowed == 0:
		p.accepted.fail(gatewayv1.RouteReasonNotAllowedByListeners,
			"no listener of "+name+describeSection(p.ref)+" allows "+string(kind)+"s of namespace "+c.owner.Namespace)
	case common == 0:
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingListenerHostname,
			"no listener of "+name+describeSection(p.ref)+" has a hostname in common with "+strings.Join(hostnames, ", "))
	case serving == 0:
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingParent,
			"no listener of "+name+describeSection(p.ref)+" that the route matches is accepted: "+strings.Join(refused, ", "))
	}
	if p.accepted.failed {
		p.sections, p.doors, p.names, p.claim, p.kept = nil, nil, nil, nil, nil
		return
	}
	slices.SortFunc(p.names, model.HostKey.Compare)
	slices.Sort(elsewhere)
	elsewhere = slices.DeleteFunc(slices.Compact(elsewhere), func(host string) bool {
		return slices.ContainsFunc(p.names, func(k model.HostKey) bool { return k.Host == host })
	})
	if len(elsewhere) > 0 {
		p.note = "; not served here, because a listener with a hostname that says more takes the connections: " + strings.Join(elsewhere, ", ")
	}
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

func (k doorKey) node() node {
	return node{kind: nodeDoor, a: k.gateway.Namespace, b: k.gateway.Name, c: string(k.transport) + "/" + strconv.Itoa(int(k.port))}
}

func doorOf(n node) doorKey {
	transport, text, _ := strings.Cut(n.c, "/")
	port, _ := strconv.ParseUint(text, 10, 16)
	return doorKey{snapshot.Name{Namespace: n.a, Name: n.b}, model.Transport(transport), uint16(port)}
}

// doorClaim is what one route wants of a door.
type doorClaim struct {
	created int64
	targets []model.Target
}

// doorState is a door in the making. The oldest route has it.
type doorState struct {
	claims map[model.Object]*doorClaim
	owner  model.Object
	won    *doorClaim
}

// claimDoor sets what a route wants of a door, nil for nothing any more.
func (t *Translator) claimDoor(k doorKey, route model.Object, c *doorClaim) {
	d := t.doors[k]
	if d == nil {
		if c == nil {
			return
		}
		d = &doorState{claims: map[model.Object]*doorClaim{}}
		t.doors[k] = d
	}
	if c == nil {
		delete(d.claims, route)
	} else {
		d.claims[route] = c
	}
	t.graph.mark(k.node())
}

func (t *Translator) computeDoor(n node) {
	k := doorOf(n)
	d := t.doors[k]
	if d == nil {
		return
	}
	var first *claim
	for route, c := range d.claims {
		if mine := (&claim{owner: route, created: c.created}); first == nil || mine.older(first) {
			first = mine
		}
	}
	if first == nil {
		delete(t.doors, k)
		t.graph.changed(n)
		return
	}
	won := d.claims[first.owner]
	if d.won == nil || d.owner != first.owner || !reflect.DeepEqual(d.won, won) {
		t.graph.changed(n)
	}
	d.owner, d.won = first.owner, won
}

// door returns which route has the connections of a door, and what it wants.
func (r reader) door(k doorKey) (route model.Object, c *doorClaim) {
	r.t.graph.read(r.by, k.node())
	if d := r.t.doors[k]; d != nil {
		return d.owner, d.won
	}
	return model.Object{}, nil
}

package route

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
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
)

// Stream is a TLSRoute, TCPRoute or UDPRoute judged for itself: before it is known who
// else wants the same connections.
type Stream struct {
	created int64
	Parents []StreamParent
	// Resolved is of all references of the rules.
	Resolved gateway.RouteResult
	// Services that connections go to, sorted.
	Services []snapshot.Name
	// Notes are what is worth knowing of its annotations and its backends.
	Notes []string
}

// StreamParent is one parentRef to a Gateway or ListenerSet that is ours.
type StreamParent struct {
	gateway.RouteParent
	Direct    []AttachedPort // of listeners without a proxy
	Names     []model.HostKey
	candidate map[model.HostKey]*host.NameCandidate // what it wants of each of names
	Kept      []string                              // names that other Gateways have, with who that is
}

// AttachedPort is a port of a Gateway, with the listener that has it.
type AttachedPort struct {
	PortKey
	Section gatewayv1.SectionName
	Targets []model.Target
}

// StreamSpec is what the three kinds have in common.
type StreamSpec struct {
	created    int64
	Generation int64
	parents    []gatewayv1.ParentReference
	hostnames  []gatewayv1.Hostname
	backends   [][]gatewayv1.BackendRef // by rule
	Rules      []string                 // their names
	notes      []string                 // of annotations, which mean nothing here
	transport  model.Transport
}

// Spec reads a TLSRoute, TCPRoute or UDPRoute; nil when there is none.
func (t *Tables) Spec(c *memo.Context, kind snapshot.Kind, n snapshot.Name) *StreamSpec {
	spec := &StreamSpec{transport: model.TCP}
	add := func(name *gatewayv1.SectionName, refs []gatewayv1.BackendRef) {
		spec.Rules, spec.backends = append(spec.Rules, string(field.Deref(name))), append(spec.backends, refs)
	}
	switch kind {
	case snapshot.KindTLSRoute:
		o := t.in.TLSRoutes.Get(c, n)
		if o == nil {
			return nil
		}
		spec.created, spec.Generation, spec.parents, spec.hostnames = o.CreationTimestamp.Unix(), o.Generation, o.Spec.ParentRefs, o.Spec.Hostnames
		spec.notes = field.UnknownAnnotations(o.Annotations)
		for _, r := range o.Spec.Rules {
			add(r.Name, r.BackendRefs)
		}
	case snapshot.KindTCPRoute:
		o := t.in.TCPRoutes.Get(c, n)
		if o == nil {
			return nil
		}
		spec.created, spec.Generation, spec.parents = o.CreationTimestamp.Unix(), o.Generation, o.Spec.ParentRefs
		spec.notes = field.UnknownAnnotations(o.Annotations)
		for _, r := range o.Spec.Rules {
			add(r.Name, r.BackendRefs)
		}
	case snapshot.KindUDPRoute:
		o := t.in.UDPRoutes.Get(c, n)
		if o == nil {
			return nil
		}
		spec.created, spec.Generation, spec.parents, spec.transport = o.CreationTimestamp.Unix(), o.Generation, o.Spec.ParentRefs, model.UDP
		spec.notes = field.UnknownAnnotations(o.Annotations)
		for _, r := range o.Spec.Rules {
			add(r.Name, r.BackendRefs)
		}
	default:
		return nil
	}
	return spec
}

// Direct and names of all parents, each once: of several parents that lead to the same the
// first in the route decides.
func (s *Stream) Direct() map[PortKey]*AttachedPort {
	if s == nil {
		return nil
	}
	all := map[PortKey]*AttachedPort{}
	for i := range s.Parents {
		for j := range s.Parents[i].Direct {
			if d := &s.Parents[i].Direct[j]; all[d.PortKey] == nil {
				all[d.PortKey] = d
			}
		}
	}
	return all
}

type streamName struct {
	key    model.HostKey
	parent model.Object
}

func (s *Stream) names() map[streamName]*host.NameCandidate {
	if s == nil {
		return nil
	}
	all := map[streamName]*host.NameCandidate{}
	for i := range s.Parents {
		p := &s.Parents[i]
		for k, c := range p.candidate {
			if n := (streamName{k, p.Parent.Object()}); all[n] == nil {
				all[n] = c
			}
		}
	}
	return all
}

// makeStream judges a route, and makes it a candidate for the connections that it wants.
func (t *Tables) makeStream(c *memo.Context, owner model.Object) (*Stream, bool) {
	stream := t.judgeStream(c, owner)
	if stream == nil {
		return nil, false
	}
	for k, d := range stream.Direct() {
		t.portCandidates.Put(c, k, owner, &PortCandidate{created: stream.created, Targets: d.Targets})
	}
	for k, wants := range stream.names() {
		t.from.Host.RouteNames.Put(c, k.key, host.NameContender{Parent: k.parent, Route: owner}, wants)
	}
	return stream, true
}

// judgeStream judges a route; nil when there is none or nothing of ours is its parent.
func (t *Tables) judgeStream(c *memo.Context, owner model.Object) *Stream {
	kind, name := snapshot.Kind(owner.Kind), snapshot.Name{Namespace: owner.Namespace, Name: owner.Name}
	spec := t.Spec(c, kind, name)
	if spec == nil {
		return nil
	}
	stream := &Stream{created: spec.created}
	for _, ref := range spec.parents {
		if k, ok := gateway.ParentOf(ref, owner.Namespace); ok {
			if p := t.from.Gateway.Parents.Get(c, k); p != nil {
				stream.Parents = append(stream.Parents, StreamParent{RouteParent: gateway.RouteParent{Ref: ref, Parent: k, Gateway: p.Gateway, Certificate: p.ClientCertificate}})
			}
		}
	}
	if len(stream.Parents) == 0 {
		return nil
	}
	sc := streamCompiler{compiler: compiler{t: t, ctx: c, owner: owner, created: spec.created, notes: spec.notes}, spec: spec, noted: map[string]bool{}}
	if sc.targets = sc.makeTargets(); sc.rule.Failed {
		sc.refused = sc.rule
	}
	var hostnames []string
	if kind == snapshot.KindTLSRoute {
		hostnames = sc.hostnames(spec.hostnames)
	} else {
		hostnames = []string{field.AnyHost}
	}
	for i := range stream.Parents {
		p := &stream.Parents[i]
		sc.certificate = p.Certificate
		sc.attach(p, hostnames)
		if sc.refused.Failed {
			p.Accepted, p.Direct, p.Names, p.candidate, p.Kept, p.Sections = sc.refused, nil, nil, nil, nil, nil
		}
	}
	stream.Resolved, stream.Services, stream.Notes = sc.resolved, sc.services, sc.notes
	slices.SortFunc(stream.Services, input.CompareNames)
	stream.Services = slices.Compact(stream.Services)
	return stream
}

// streamCompiler reads one route.
type streamCompiler struct {
	compiler
	spec    *StreamSpec
	targets []model.Target
	noted   map[string]bool // paths of references whose groups cannot be made
}

// refs calls for each reference that has a weight with the port that it means.
func (c *streamCompiler) refs(each func(weight uint32, service snapshot.Name, port backend.Port, path string, ok bool)) {
	for i, refs := range c.spec.backends {
		path := field.At("spec.rules", i) + ".backendRefs"
		if i > 0 {
			c.refuse(field.At("spec.rules", i), "only one rule can be: connections cannot be told apart")
			return
		}
		for j := range refs {
			ref, field := &refs[j], field.At(path, j)
			weight := int32(1)
			if ref.Weight != nil {
				weight = *ref.Weight
			}
			if weight < 0 || weight > backend.WeightLimit {
				c.refuse(field+".weight", strconv.Itoa(int(weight))+" must be in the range 0-"+strconv.Itoa(backend.WeightLimit))
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
	c.refs(func(weight uint32, service snapshot.Name, port backend.Port, _ string, ok bool) {
		var set model.SetID
		if ok {
			set = backend.PortKey{Service: service, Number: port.Number, Transport: c.spec.transport}.ID()
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
func (c *streamCompiler) shares(passed bool) backend.TCPShares {
	var s backend.TCPShares
	quiet := *c // the targets have said what is wrong with the references
	quiet.refs(func(weight uint32, service snapshot.Name, port backend.Port, path string, ok bool) {
		switch {
		case !ok:
		case passed:
			g := backend.PlainGroup(service, port)
			g.Protocol = model.BackendTCP
			s.Add(backend.WithOptions(g), weight)
			return
		default:
			g, fault, problem := c.t.from.Backend.MakeGroup(c.ctx, service, port, backend.GroupOptions{Protocol: model.BackendTCP, Certificate: c.certificate})
			if fault == backend.Fine {
				s.Add(g, weight)
				return
			}
			if !c.noted[path] {
				c.noted[path] = true
				c.fault(fault, problem, path)
			}
		}
		s.Shares = backend.AddWeight(s.Shares, "", weight)
	})
	return s
}

// attach finds the listeners that a parentRef means, and what of them the route wants.
func (c *streamCompiler) attach(p *StreamParent, hostnames []string) {
	parent := c.t.from.Gateway.Parents.Get(c.ctx, p.Parent)
	elsewhere := c.t.from.Gateway.Attach(c.ctx, &p.RouteParent, gateway.Attaching{
		Kind: snapshot.Kind(c.owner.Kind), Namespace: c.owner.Namespace, Hostnames: hostnames,
		Lost: func(*gateway.ParentListener) string { return "" },
		Want: func(l *gateway.ParentListener, host string) bool {
			if l.Direct() {
				p.Direct = append(p.Direct, AttachedPort{PortKey{parent.Gateway, l.Transport(), uint16(l.Port)}, l.Name, c.targets})
				return false
			}
			if !c.t.from.Gateway.OwnsClear(c.ctx, parent, l, host) {
				return true
			}
			if keeper := c.t.from.Host.Keeper(c.ctx, l.ID, host); keeper != nil && keeper.Gateway != parent.Gateway {
				p.Kept = append(p.Kept, "server name "+host+" is "+keeper.Owner.String()+"'s, whose listener has hostname "+keeper.Host)
			} else {
				c.want(p, l, host)
			}
			return false
		},
	})
	if p.Accepted.Failed {
		p.Direct, p.Names, p.candidate, p.Kept = nil, nil, nil, nil
		return
	}
	slices.SortFunc(p.Names, model.HostKey.Compare)
	p.NoteElsewhere(elsewhere, p.Names, "connections")
}

// want notes a server name whose connections the route wants of a listener.
func (c *streamCompiler) want(p *StreamParent, l *gateway.ParentListener, hostName string) {
	k := model.HostKey{Listener: l.ID, Host: hostName}
	if p.candidate[k] != nil {
		return
	}
	shares := c.shares(l.Passthrough)
	candidate := &host.NameCandidate{Created: c.created, Groups: shares.Groups, Host: model.TLSHost{HostKey: k, Owner: c.owner, TCP: shares.Shares}}
	if !l.Passthrough {
		candidate.Host.Certificates, candidate.Host.MinVersion = l.Certificates, l.MinTLS
	}
	if p.candidate == nil {
		p.candidate = map[model.HostKey]*host.NameCandidate{}
	}
	p.candidate[k], p.Names = candidate, append(p.Names, k)
}

// PortKey is a port of a Gateway that leads to backends without a proxy.
type PortKey struct {
	Gateway   snapshot.Name
	Transport model.Transport
	Port      uint16
}

// PortCandidate is what one route wants of a port without a proxy.
type PortCandidate struct {
	created int64
	Targets []model.Target
}

// PortOwner is the route that gets the connections of such a port, and what it wants.
type PortOwner struct {
	Route     model.Object
	Candidate *PortCandidate
}

// winner is the oldest candidate for such a port.
func (t *Tables) winner(c *memo.Context, k PortKey) (*PortOwner, bool) {
	var first *host.Candidate
	won := &PortOwner{}
	for route, wants := range t.portCandidates.Get(c, k).All() {
		if mine := (&host.Candidate{Owner: route, Created: wants.created}); first == nil || mine.Older(first) {
			first, won.Route, won.Candidate = mine, route, wants
		}
	}
	return won, first != nil
}

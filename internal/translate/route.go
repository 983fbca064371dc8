package translate

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

type routeVerdict = verdict[gatewayv1.RouteConditionReason]

// routeFact is an HTTPRoute or GRPCRoute judged for itself: before it is known who else
// claims its hosts.
type routeFact struct {
	parents []routeParent
	// resolved is of all references of the rules.
	resolved routeVerdict
	// partial says which rules are dropped, while others are served.
	partial string
	// services that requests go to, sorted.
	services []snapshot.Name
	// notes are what is worth knowing of their backends.
	notes []string
	// slashed are paths of matches that requests do not have.
	slashed []slashedPath
	// claims are what it wants of each host, by the certificate that backends are shown:
	// Gateways differ in that.
	claims map[model.CertificateID]*claim
}

// hosts are all hosts of all parents, sorted.
func (f *routeFact) hosts() []model.HostKey {
	if f == nil {
		return nil
	}
	var keys []model.HostKey
	for i := range f.parents {
		keys = append(keys, f.parents[i].hosts...)
	}
	slices.SortFunc(keys, model.HostKey.Compare)
	return slices.Compact(keys)
}

// claimAt is what the route wants of a host: of several parents that lead there the first
// in the route decides.
func (f *routeFact) claimAt(k model.HostKey) *claim {
	for i := range f.parents {
		p := &f.parents[i]
		if _, found := slices.BinarySearchFunc(p.hosts, k, model.HostKey.Compare); found {
			return f.claims[p.certificate]
		}
	}
	return nil
}

func routeOwner(kind snapshot.Kind, n snapshot.Name) model.Object {
	return model.Object{Kind: string(kind), Namespace: n.Namespace, Name: n.Name}
}

// routeOf is the route that a node computes.
func routeOf(n node) model.Object {
	switch n.kind {
	case nodeGRPCRoute, nodeGRPCStatus:
		return routeOwner(snapshot.KindGRPCRoute, n.name())
	default:
		return routeOwner(snapshot.KindHTTPRoute, n.name())
	}
}

func routeNode(o model.Object) node {
	kind := nodeHTTPRoute
	if o.Kind == string(snapshot.KindGRPCRoute) {
		kind = nodeGRPCRoute
	}
	return node{kind: kind, a: o.Namespace, b: o.Name}
}

func routeStatusNode(o model.Object) node {
	kind := nodeHTTPStatus
	if o.Kind == string(snapshot.KindGRPCRoute) {
		kind = nodeGRPCStatus
	}
	return node{kind: kind, a: o.Namespace, b: o.Name}
}

func (t *Translator) computeRoute(r reader, n node) {
	owner := routeOf(n)
	before := t.routes[owner]
	update(t, n, t.routes, owner, makeRouteFact(r, owner))
	after := t.routes[owner]
	if before == after {
		return
	}
	t.graph.mark(routeStatusNode(owner))
	t.movePlaces(before.places(), after.places())
	if after == nil {
		t.moveClaims(owner, before.hosts(), nil, nil)
		return
	}
	if before != nil {
		for certificate, c := range after.claims {
			if old := before.claims[certificate]; old != nil && reflect.DeepEqual(old, c) {
				after.claims[certificate] = old // the hosts need not look at it again
			}
		}
	}
	t.moveClaimsBy(owner, before.hosts(), after.hosts(), after.claimAt)
}

// makeRouteFact judges a route; nil when there is none or nothing of ours is its parent.
func makeRouteFact(r reader, owner model.Object) *routeFact {
	name := snapshot.Name{Namespace: owner.Namespace, Name: owner.Name}
	c := routeCompiler{r: r, owner: owner}
	var common *gatewayv1.CommonRouteSpec
	var hostnames []gatewayv1.Hostname
	var compile func(c *routeCompiler)
	var refused routeVerdict
	if owner.Kind == string(snapshot.KindGRPCRoute) {
		o := r.s.GRPCRoutes[name]
		if o == nil {
			return nil
		}
		c.created, c.grpc = o.CreationTimestamp.Unix(), true
		common, hostnames, compile = &o.Spec.CommonRouteSpec, o.Spec.Hostnames, func(c *routeCompiler) { c.grpcRules(o) }
	} else {
		o := r.s.HTTPRoutes[name]
		if o == nil {
			return nil
		}
		c.created = o.CreationTimestamp.Unix()
		common, hostnames, compile = &o.Spec.CommonRouteSpec, o.Spec.Hostnames, func(c *routeCompiler) { c.httpRules(o) }
	}
	f := &routeFact{claims: map[model.CertificateID]*claim{}}
	for _, ref := range common.ParentRefs {
		if k, ok := parentOf(ref, owner.Namespace); ok {
			if p := r.parent(k); p != nil {
				f.parents = append(f.parents, routeParent{ref: ref, parent: k, gateway: p.gateway, certificate: p.clientCertificate})
			}
		}
	}
	if len(f.parents) == 0 {
		return nil
	}
	hosts := c.hostnames(hostnames)
	for i := range f.parents {
		certificate := f.parents[i].certificate
		if f.claims[certificate] != nil {
			continue
		}
		c := c // each certificate makes groups of its own; all else is the same
		c.certificate = certificate
		compile(&c)
		f.claims[certificate] = &claim{owner: owner, created: c.created, entries: c.entries}
		f.resolved, f.partial, f.services, f.notes, refused = c.resolved, c.partial, c.services, c.notes, c.refused
		f.slashed = c.slashed
	}
	slices.SortFunc(f.services, compareNames)
	f.services = slices.Compact(f.services)
	for i := range f.parents {
		p := &f.parents[i]
		attach(r, p, snapshot.Kind(owner.Kind), hosts, owner.Namespace)
		if refused.failed {
			p.accepted, p.hosts, p.places, p.sections = refused, nil, nil, nil
		}
	}
	return f
}

func (r reader) httpRoute(n snapshot.Name) *routeFact {
	return r.route(routeOwner(snapshot.KindHTTPRoute, n))
}

func (r reader) grpcRoute(n snapshot.Name) *routeFact {
	return r.route(routeOwner(snapshot.KindGRPCRoute, n))
}

func (r reader) route(o model.Object) *routeFact {
	r.t.graph.read(r.by, routeNode(o))
	return r.t.routes[o]
}

// computeRouteStatus writes a route's status, now that it is known who has each host, and
// counts the route at the listeners that it attached to.
func (t *Translator) computeRouteStatus(r reader, n node) {
	object := routeOf(n)
	var o metav1.Object
	status := &Status{}
	parents := []gatewayv1.RouteParentStatus{}
	if object.Kind == string(snapshot.KindGRPCRoute) {
		if route := r.s.GRPCRoutes[n.name()]; route != nil {
			o = route
		}
	} else if route := r.s.HTTPRoutes[n.name()]; route != nil {
		o = route
	}
	if o == nil {
		t.countRoute(object, nil)
		t.useServices(object, nil)
		publish(t.result.Statuses, t.out.Statuses, object, nil)
		return
	}
	status.Generation = o.GetGeneration()
	var counted []attachment
	var uses []serviceUse
	if f := r.route(object); f != nil {
		for i := range f.parents {
			p := &f.parents[i]
			parent, attached := t.parentStatus(r, f, p, object, status.Generation)
			parents = append(parents, parent)
			if !attached {
				continue
			}
			for _, section := range p.sections {
				counted = append(counted, attachment{p.parent, section})
			}
			for _, service := range f.services {
				uses = append(uses, serviceUse{service, p.gateway})
			}
		}
		for _, k := range f.hosts() {
			if _, rejected := r.rejectedAt(object, k.Listener); !rejected && r.owner(k).has(object) {
				status.Hosts = append(status.Hosts, k)
			}
		}
		status.Listeners = listenersOf(status.Hosts)
	}
	if object.Kind == string(snapshot.KindGRPCRoute) {
		status.GRPCRoute = &gatewayv1.GRPCRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: parents}}
	} else {
		status.HTTPRoute = &gatewayv1.HTTPRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: parents}}
	}
	t.countRoute(object, counted)
	t.useServices(object, uses)
	publish(t.result.Statuses, t.out.Statuses, object, status)
}

func (t *Translator) parentStatus(r reader, f *routeFact, p *routeParent, object model.Object, gen int64) (status gatewayv1.RouteParentStatus, attached bool) {
	accepted := p.accepted
	var lost, kept []string
	for _, k := range p.hosts {
		owner := r.owner(k)
		by, rejected := r.rejectedAt(object, k.Listener)
		switch {
		case rejected && owner.conflict && owner.keeper == by:
			lost = append(lost, k.Host+" is kept by "+by.String()+", which came first")
		case rejected && by.Kind == object.Kind:
			lost = append(lost, k.Host+" is not served: "+by.String()+", which came first, is of another namespace and has a hostname of this route at the same listener, where a Gateway has its hosts each for one namespace (annotation "+v1alpha1.AnnotationHosts+")")
		case rejected:
			lost = append(lost, k.Host+" is not served: "+by.String()+", which came first, has a hostname of this route at the same listener")
		case !owner.conflict:
		case owner.has(object):
			kept = append(kept, k.Host+" ("+owner.describeLosers()+")")
		default:
			lost = append(lost, k.Host+" is kept by "+owner.keeper.String()+", which came first")
		}
	}
	if len(lost) > 0 && len(lost) == len(p.hosts) {
		accepted.fail(ReasonHostConflict, strings.Join(lost, "; "))
	}
	message := withNotes("the route is accepted"+p.note, r.slashNotes(f.slashed, p.hosts))
	reason := gatewayv1.RouteReasonAccepted
	if accepted.failed {
		reason, message = accepted.reason, accepted.message
	}
	conditions := []metav1.Condition{condition(gatewayv1.RouteConditionAccepted, !accepted.failed, reason, message, gen)}
	reason, message = gatewayv1.RouteReasonResolvedRefs, "all references are resolved"
	if f.resolved.failed {
		reason, message = f.resolved.reason, f.resolved.message
	}
	conditions = append(conditions, condition(gatewayv1.RouteConditionResolvedRefs, !f.resolved.failed, reason, withNotes(message, f.notes), gen))
	if f.partial != "" && !accepted.failed {
		conditions = append(conditions, condition(gatewayv1.RouteConditionPartiallyInvalid, true, gatewayv1.RouteReasonUnsupportedValue, f.partial, gen))
	}
	switch {
	case len(lost) > 0:
		conditions = append(conditions, condition(ConditionHostConflict, true, ReasonHostLost, strings.Join(lost, "; "), gen))
	case len(kept) > 0:
		conditions = append(conditions, condition(ConditionHostConflict, true, ReasonHostKept,
			"claimed by others too, which are not served there: "+strings.Join(kept, "; "), gen))
	}
	return gatewayv1.RouteParentStatus{ParentRef: p.ref, ControllerName: t.config.ControllerName, Conditions: conditions}, !accepted.failed
}

// listenersOf are the listeners of sorted hosts, sorted.
func listenersOf(hosts []model.HostKey) []model.ListenerID {
	var ids []model.ListenerID
	for _, k := range hosts {
		ids = append(ids, k.Listener)
	}
	return slices.Compact(ids)
}

package translate

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

type routeVerdict = verdict[gatewayv1.RouteConditionReason]

// httpRouteFact is an HTTPRoute judged for itself: before it is known who else
// claims its hosts.
type httpRouteFact struct {
	parents []routeParent
	// resolved is of all backendRefs.
	resolved routeVerdict
	// claim is what it wants of each host.
	claim *claim
}

// routeParent is one parentRef to a Gateway that is ours.
type routeParent struct {
	ref      gatewayv1.ParentReference
	gateway  snapshot.Name
	accepted routeVerdict
	note     string                  // what is worth knowing of one that is accepted
	sections []gatewayv1.SectionName // listeners it attached to
	hosts    []model.HostKey         // where it wants to be served through this parent, sorted
}

// hosts are all hosts of all parents, sorted.
func (f *httpRouteFact) hosts() []model.HostKey {
	if f == nil {
		return nil
	}
	var keys []model.HostKey
	for _, p := range f.parents {
		keys = append(keys, p.hosts...)
	}
	slices.SortFunc(keys, model.HostKey.Compare)
	return slices.Compact(keys)
}

func httpRouteOwner(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindHTTPRoute), Namespace: n.Namespace, Name: n.Name}
}

func (t *Translator) computeHTTPRoute(r reader, n node) {
	name := n.name()
	before := t.httpRoutes[name]
	update(t, n, t.httpRoutes, name, makeHTTPRouteFact(r, name))
	after := t.httpRoutes[name]
	if before == after {
		return
	}
	t.graph.mark(named(nodeHTTPStatus, name))
	var c *claim
	if after != nil {
		if before != nil && reflect.DeepEqual(before.claim, after.claim) {
			after.claim = before.claim // the hosts need not look at it again
		}
		c = after.claim
	}
	t.moveClaims(httpRouteOwner(name), before.hosts(), after.hosts(), c)
}

// makeHTTPRouteFact judges an HTTPRoute; nil when there is none or no Gateway of
// ours is its parent.
func makeHTTPRouteFact(r reader, n snapshot.Name) *httpRouteFact {
	o := r.s.HTTPRoutes[n]
	if o == nil {
		return nil
	}
	f := &httpRouteFact{}
	for _, ref := range o.Spec.ParentRefs {
		if gateway, ok := parentGateway(ref, n.Namespace); ok {
			if g := r.gateway(gateway); g != nil {
				f.parents = append(f.parents, routeParent{ref: ref, gateway: gateway})
			}
		}
	}
	if len(f.parents) == 0 {
		return nil
	}
	c := httpCompiler{r: r, owner: httpRouteOwner(n), route: o, created: o.CreationTimestamp.Unix()}
	hostnames := c.hostnames()
	c.compile()
	f.resolved = c.resolved
	for i := range f.parents {
		p := &f.parents[i]
		attach(r, p, hostnames, n.Namespace)
		if c.refused.failed {
			p.accepted, p.hosts, p.sections = c.refused, nil, nil
		}
	}
	f.claim = &claim{owner: c.owner, created: c.created, entries: c.entries}
	return f
}

// parentGateway is the Gateway that a parentRef names, if it names one.
func parentGateway(ref gatewayv1.ParentReference, namespace string) (snapshot.Name, bool) {
	if ref.Group != nil && *ref.Group != gatewayv1.GroupName || ref.Kind != nil && *ref.Kind != gatewayv1.Kind(snapshot.KindGateway) {
		return snapshot.Name{}, false
	}
	return snapshot.Name{Namespace: cmp.Or(string(deref(ref.Namespace)), namespace), Name: string(ref.Name)}, true
}

// attach finds the listeners that a parentRef means, and the hosts that the route
// and they have in common.
func attach(r reader, p *routeParent, hostnames []string, namespace string) {
	g := r.gateway(p.gateway)
	if g.accepted.failed {
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingParent, "Gateway "+p.gateway.String()+" is not accepted: "+g.accepted.message)
		return
	}
	var meant, allowed, common, serving int
	var elsewhere []string
	for i := range g.listeners {
		l := &g.listeners[i]
		if p.ref.SectionName != nil && *p.ref.SectionName != l.name || p.ref.Port != nil && int32(*p.ref.Port) != l.port {
			continue
		}
		meant++
		if !l.allows(r, p.gateway.Namespace, namespace) {
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
			case !l.serves():
			case g.owns(l, host):
				p.hosts = append(p.hosts, model.HostKey{Listener: l.id(), Host: host})
			default:
				elsewhere = append(elsewhere, host)
			}
		}
		if matched {
			common++
			p.sections = append(p.sections, l.name)
			if l.serves() {
				serving++
			}
		}
	}
	slices.SortFunc(p.hosts, model.HostKey.Compare)
	p.hosts = slices.Compact(p.hosts)
	name := "Gateway " + p.gateway.String()
	switch {
	case meant == 0:
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingParent, name+" has no listener"+describeSection(p.ref))
	case allowed == 0:
		p.accepted.fail(gatewayv1.RouteReasonNotAllowedByListeners,
			"no listener of "+name+describeSection(p.ref)+" allows HTTPRoutes of namespace "+namespace)
	case common == 0:
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingListenerHostname,
			"no listener of "+name+describeSection(p.ref)+" has a hostname in common with "+strings.Join(hostnames, ", "))
	case serving == 0:
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingParent,
			"no listener of "+name+describeSection(p.ref)+" that the route matches is accepted: "+g.refusedListeners())
	}
	if p.accepted.failed {
		p.sections = nil
		return
	}
	slices.Sort(elsewhere)
	elsewhere = slices.DeleteFunc(slices.Compact(elsewhere), func(host string) bool {
		return slices.ContainsFunc(p.hosts, func(k model.HostKey) bool { return k.Host == host })
	})
	if len(elsewhere) > 0 {
		p.note = "; not served here, because a listener with a hostname that says more takes the requests: " + strings.Join(elsewhere, ", ")
	}
}

func describeSection(ref gatewayv1.ParentReference) string {
	text := ""
	if ref.SectionName != nil {
		text += " named " + string(*ref.SectionName)
	}
	if ref.Port != nil {
		text += " at port " + strconv.Itoa(int(*ref.Port))
	}
	return text
}

// attachment is one listener of a Gateway that counts a route.
type attachment struct {
	gateway snapshot.Name
	section gatewayv1.SectionName
}

// computeHTTPStatus writes an HTTPRoute's status, now that it is known who has
// each host, and counts the route at the listeners that it attached to.
func (t *Translator) computeHTTPStatus(r reader, n node) {
	name := n.name()
	o := r.s.HTTPRoutes[name]
	object := httpRouteOwner(name)
	if o == nil {
		t.countRoute(name, nil)
		publish(t.result.Statuses, t.out.Statuses, object, nil)
		return
	}
	status := &Status{Generation: o.Generation, HTTPRoute: &gatewayv1.HTTPRouteStatus{}}
	status.HTTPRoute.Parents = []gatewayv1.RouteParentStatus{}
	var counted []attachment
	if f := r.httpRoute(name); f != nil {
		for i := range f.parents {
			p := &f.parents[i]
			parent, attached := t.parentStatus(r, f, p, object, o.Generation)
			status.HTTPRoute.Parents = append(status.HTTPRoute.Parents, parent)
			if attached {
				for _, section := range p.sections {
					counted = append(counted, attachment{p.gateway, section})
				}
			}
		}
		for _, k := range f.hosts() {
			if r.owner(k).has(object) {
				status.Hosts = append(status.Hosts, k)
			}
		}
		status.Listeners = listenersOf(status.Hosts)
	}
	t.countRoute(name, counted)
	publish(t.result.Statuses, t.out.Statuses, object, status)
}

func (t *Translator) parentStatus(r reader, f *httpRouteFact, p *routeParent, object model.Object, gen int64) (status gatewayv1.RouteParentStatus, attached bool) {
	accepted := p.accepted
	var lost, kept []string
	for _, k := range p.hosts {
		owner := r.owner(k)
		switch {
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
	message := "the route is accepted" + p.note
	reason := gatewayv1.RouteReasonAccepted
	if accepted.failed {
		reason, message = accepted.reason, accepted.message
	}
	conditions := []metav1.Condition{condition(gatewayv1.RouteConditionAccepted, !accepted.failed, reason, message, gen)}
	reason, message = gatewayv1.RouteReasonResolvedRefs, "all references are resolved"
	if f.resolved.failed {
		reason, message = f.resolved.reason, f.resolved.message
	}
	conditions = append(conditions, condition(gatewayv1.RouteConditionResolvedRefs, !f.resolved.failed, reason, message, gen))
	switch {
	case len(lost) > 0:
		conditions = append(conditions, condition(ConditionHostConflict, true, ReasonHostLost, strings.Join(lost, "; "), gen))
	case len(kept) > 0:
		conditions = append(conditions, condition(ConditionHostConflict, true, ReasonHostKept,
			"claimed by others too, which came later and are not served there: "+strings.Join(kept, "; "), gen))
	}
	return gatewayv1.RouteParentStatus{ParentRef: p.ref, ControllerName: t.config.ControllerName, Conditions: conditions}, !accepted.failed
}

// countRoute replaces what a route adds to the listeners' attached routes.
func (t *Translator) countRoute(name snapshot.Name, after []attachment) {
	slices.SortFunc(after, func(a, b attachment) int {
		return cmp.Or(compareNames(a.gateway, b.gateway), cmp.Compare(a.section, b.section))
	})
	after = slices.Compact(after) // two parentRefs may lead to one listener
	before := t.counted[name]
	if slices.Equal(before, after) {
		return
	}
	add := func(list []attachment, by int32) {
		for _, a := range list {
			if t.attached[a.gateway] == nil {
				t.attached[a.gateway] = map[gatewayv1.SectionName]int32{}
			}
			t.attached[a.gateway][a.section] += by
			if t.attached[a.gateway][a.section] == 0 {
				delete(t.attached[a.gateway], a.section)
			}
			if len(t.attached[a.gateway]) == 0 {
				delete(t.attached, a.gateway)
			}
			t.graph.mark(named(nodeGatewayStatus, a.gateway))
		}
	}
	add(before, -1)
	add(after, 1)
	if len(after) == 0 {
		delete(t.counted, name)
	} else {
		t.counted[name] = after
	}
}

// listenersOf are the listeners of sorted hosts, sorted.
func listenersOf(hosts []model.HostKey) []model.ListenerID {
	var ids []model.ListenerID
	for _, k := range hosts {
		ids = append(ids, k.Listener)
	}
	return slices.Compact(ids)
}

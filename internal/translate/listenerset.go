package translate

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// setFact is a ListenerSet judged for itself: before it is known whether its Gateway takes
// it, and who else has its ports and hostnames.
type setFact struct {
	created   int64
	gateway   snapshot.Name
	listeners []gatewayListener
}

// setKey names a ListenerSet at a Gateway.
type setKey struct{ gateway, set snapshot.Name }

func (k setKey) node() node {
	return node{kind: nodeSetOutcome, a: k.set.Namespace, b: k.set.Name, c: k.gateway.String()}
}

// setOutcome is what became of a ListenerSet at its Gateway.
type setOutcome struct {
	accepted          verdict[gatewayv1.ListenerSetConditionReason]
	listeners         []gatewayListener
	clientCertificate model.CertificateID // the Gateway's
}

// set returns a ListenerSet judged for itself, nil when there is none.
func (r reader) set(n snapshot.Name) *setFact {
	r.t.graph.read(r.by, named(nodeListenerSet, n))
	return r.t.sets[n]
}

// setOutcome returns what became of a ListenerSet; nil when the Gateway is not ours.
func (r reader) setOutcome(gateway, set snapshot.Name) *setOutcome {
	k := setKey{gateway, set}
	r.t.graph.read(r.by, k.node())
	return r.t.setOutcomes[k]
}

// setsOf returns the ListenerSets that name a Gateway, in no order.
func (r reader) setsOf(gateway snapshot.Name) nameSet {
	r.t.graph.read(r.by, named(nodeSetsOf, gateway))
	return r.t.index.sets[gateway]
}

// gatewayOf is the Gateway that a ListenerSet names, if it names one.
func gatewayOf(o *gatewayv1.ListenerSet) (snapshot.Name, bool) {
	ref := &o.Spec.ParentRef
	return snapshot.Name{Namespace: cmp.Or(string(deref(ref.Namespace)), o.Namespace), Name: string(ref.Name)},
		(ref.Group == nil || *ref.Group == gatewayv1.GroupName) && (ref.Kind == nil || *ref.Kind == gatewayv1.Kind(snapshot.KindGateway))
}

// inputListenerSet takes note of a set that changed.
func (t *Translator) inputListenerSet(s *snapshot.Snapshot, n snapshot.Name) {
	k := parentKey{snapshot.KindListenerSet, n}
	t.graph.mark(named(nodeListenerSet, n))
	t.graph.mark(k.node())
	t.graph.mark(k.statusNode())
	var after *snapshot.Name
	if o := s.ListenerSets[n]; o != nil {
		if gateway, ok := gatewayOf(o); ok {
			after = &gateway
		}
	}
	before, known := t.index.gatewayOf[n]
	if known && after != nil && before == *after || !known && after == nil {
		return
	}
	if known {
		drop(t.index.sets, before, n)
		delete(t.index.gatewayOf, n)
		t.graph.changed(named(nodeSetsOf, before))
	}
	if after != nil {
		put(t.index.sets, *after, n)
		t.index.gatewayOf[n] = *after
		t.graph.changed(named(nodeSetsOf, *after))
	}
}

func makeSetFact(r reader, n snapshot.Name) *setFact {
	o := r.s.ListenerSets[n]
	if o == nil {
		return nil
	}
	f := &setFact{created: o.CreationTimestamp.Unix()}
	f.gateway, _ = gatewayOf(o)
	b := bearer{r, snapshot.KindListenerSet, n}
	for i := range o.Spec.Listeners {
		e := &o.Spec.Listeners[i]
		l := gatewayv1.Listener{Name: e.Name, Hostname: e.Hostname, Port: e.Port, Protocol: e.Protocol, TLS: e.TLS, AllowedRoutes: e.AllowedRoutes}
		f.listeners = append(f.listeners, b.makeListener(&l, at("spec.listeners", i)))
	}
	return f
}

// takeSets judges the ListenerSets that name a Gateway, who comes first first.
func (f *gatewayFact) takeSets(r reader, n snapshot.Name, allowed *gatewayv1.AllowedListeners, m *merge) map[snapshot.Name]*setOutcome {
	names := r.setsOf(n)
	if len(names) == 0 {
		return nil
	}
	facts := make(map[snapshot.Name]*setFact, len(names))
	for set := range names {
		if s := r.set(set); s != nil {
			facts[set] = s
			f.sets = append(f.sets, set)
		}
	}
	slices.SortFunc(f.sets, func(a, b snapshot.Name) int {
		return cmp.Or(cmp.Compare(facts[a].created, facts[b].created), compareNames(a, b))
	})
	from, selector := gatewayv1.NamespacesFromNone, (*metav1.LabelSelector)(nil)
	if allowed != nil && allowed.Namespaces != nil {
		from, selector = cmp.Or(deref(allowed.Namespaces.From), gatewayv1.NamespacesFromNone), allowed.Namespaces.Selector
	}
	outcomes := make(map[snapshot.Name]*setOutcome, len(names))
	for _, set := range f.sets {
		out := &setOutcome{clientCertificate: f.clientCertificate}
		outcomes[set] = out
		if !selects(r, from, selector, n.Namespace, set.Namespace) {
			out.accepted.fail(gatewayv1.ListenerSetReasonNotAllowed,
				"Gateway "+n.String()+" takes no ListenerSets of namespace "+set.Namespace+": see its spec.allowedListeners")
			continue
		}
		out.listeners = slices.Clone(facts[set].listeners)
		f.validate("Gateway "+n.String()+": ", out.listeners)
		m.add(out.listeners)
		switch {
		case f.accepted.failed:
			out.accepted.fail(gatewayv1.ListenerSetReasonParentNotAccepted, "Gateway "+n.String()+" is not accepted ("+string(f.accepted.reason)+")")
		case !slices.ContainsFunc(out.listeners, func(l gatewayListener) bool { return l.serves() && !l.broken() }):
			out.accepted.fail(gatewayv1.ListenerSetReasonListenersNotValid, "no listener can be served: "+unservedListeners(out.listeners))
		default:
			f.attached++
			m.take(out.listeners)
		}
	}
	return outcomes
}

// unservedListeners names the listeners that are not accepted or have no certificate.
func unservedListeners(list []gatewayListener) string {
	text := ""
	for i := range list {
		l := &list[i]
		reason := l.accepted.reason
		if l.broken() {
			reason = l.resolved.reason
		}
		if !l.serves() || l.broken() {
			text += when(text != "", ", ") + string(l.name) + " (" + string(reason) + ")"
		}
	}
	return cmp.Or(text, "there is none")
}

func (t *Translator) computeListenerSetStatus(r reader, n node) {
	name := n.name()
	k := parentKey{snapshot.KindListenerSet, name}
	o := r.s.ListenerSets[name]
	if o == nil {
		publish(t.result.Statuses, t.out.Statuses, k.object(), nil)
		return
	}
	parent := r.parent(k)
	if parent == nil {
		publish(t.result.Statuses, t.out.Statuses, k.object(), nil)
		return
	}
	gen, out := o.Generation, r.setOutcome(parent.gateway, name)
	s := &Status{Generation: gen, ListenerSet: &gatewayv1.ListenerSetStatus{}, Listeners: parent.listenerIDs(), Sections: parent.served()}
	listeners := parent.final(r)
	reason, message := gatewayv1.ListenerSetReasonAccepted, "the ListenerSet is accepted"
	if out.accepted.failed {
		reason, message = out.accepted.reason, out.accepted.message
	} else if slices.ContainsFunc(listeners, func(l gatewayListener) bool { return !l.serves() || l.broken() }) {
		reason, message = gatewayv1.ListenerSetReasonListenersNotValid, "some listeners cannot be served: "+unservedListeners(listeners)
	}
	s.ListenerSet.Conditions = []metav1.Condition{condition(gatewayv1.ListenerSetConditionAccepted, !out.accepted.failed, reason, message, gen)}
	for i := range listeners {
		l := &listeners[i]
		s.ListenerSet.Listeners = append(s.ListenerSet.Listeners, gatewayv1.ListenerEntryStatus{
			Name: l.name, SupportedKinds: l.kinds, AttachedRoutes: t.attached[k][l.name], Conditions: l.conditions(r, gen),
		})
		s.noteUnserved(l)
	}
	s.noteFrontends(r, parent, listeners)
	if given := r.outcome(gatewayOwner(parent.gateway)); given != nil && !out.accepted.failed {
		s.Hold = given.hold
	}
	publish(t.result.Statuses, t.out.Statuses, k.object(), s)
}

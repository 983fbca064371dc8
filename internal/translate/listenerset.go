package translate

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
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

// setOutcome is what became of a ListenerSet at its Gateway.
type setOutcome struct {
	accepted          verdict[gatewayv1.ListenerSetConditionReason]
	listeners         []gatewayListener
	clientCertificate model.CertificateID // the Gateway's
}

func (t *gatewayTables) makeSetFact(c *memo.Context, n snapshot.Name) (*setFact, bool) {
	o := t.in.listenerSets.Get(c, n)
	if o == nil {
		return nil, false
	}
	f := &setFact{created: o.CreationTimestamp.Unix()}
	f.gateway, _ = gatewayOf(o)
	b := bearer{t, c, snapshot.KindListenerSet, n}
	for i := range o.Spec.Listeners {
		e := &o.Spec.Listeners[i]
		l := gatewayv1.Listener{Name: e.Name, Hostname: e.Hostname, Port: e.Port, Protocol: e.Protocol, TLS: e.TLS, AllowedRoutes: e.AllowedRoutes}
		f.listeners = append(f.listeners, b.makeListener(&l, at("spec.listeners", i)))
	}
	return f, true
}

// takeSets judges the ListenerSets that name a Gateway, who comes first first.
func (t *gatewayTables) takeSets(c *memo.Context, f *gatewayFact, n snapshot.Name, allowed *gatewayv1.AllowedListeners, m *merge) map[snapshot.Name]*setOutcome {
	names := t.in.setsOf.Get(c, n)
	if names.Len() == 0 {
		return nil
	}
	facts := make(map[snapshot.Name]*setFact, names.Len())
	for set := range names.All() {
		if s := t.sets.Get(c, set); s != nil {
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
	outcomes := make(map[snapshot.Name]*setOutcome, names.Len())
	for _, set := range f.sets {
		out := &setOutcome{clientCertificate: f.clientCertificate}
		outcomes[set] = out
		if !t.selects(c, from, selector, n.Namespace, set.Namespace) {
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

package gateway

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
)

// listenerSet is a ListenerSet judged for itself: before it is known whether its Gateway takes
// it, and who else has its ports and hostnames.
type listenerSet struct {
	created   int64
	gateway   snapshot.Name
	listeners []Listener
}

// SetKey names a ListenerSet at a Gateway.
type SetKey struct{ Gateway, Set snapshot.Name }

// SetOutcome is what became of a ListenerSet at its Gateway.
type SetOutcome struct {
	Accepted          condition.Result[gatewayv1.ListenerSetConditionReason]
	listeners         []Listener
	clientCertificate model.CertificateID // the Gateway's
}

func (t *Tables) makeListenerSet(c *memo.Context, n snapshot.Name) (*listenerSet, bool) {
	o := t.in.ListenerSets.Get(c, n)
	if o == nil {
		return nil, false
	}
	f := &listenerSet{created: o.CreationTimestamp.Unix()}
	f.gateway, _ = input.GatewayOf(o)
	b := bearer{t, c, snapshot.KindListenerSet, n}
	for i := range o.Spec.Listeners {
		e := &o.Spec.Listeners[i]
		l := gatewayv1.Listener{Name: e.Name, Hostname: e.Hostname, Port: e.Port, Protocol: e.Protocol, TLS: e.TLS, AllowedRoutes: e.AllowedRoutes}
		f.listeners = append(f.listeners, b.makeListener(&l, field.At("spec.listeners", i)))
	}
	return f, true
}

// mergeSets judges the ListenerSets that name a Gateway, who comes first first.
func (t *Tables) mergeSets(c *memo.Context, f *Gateway, n snapshot.Name, allowed *gatewayv1.AllowedListeners, m *merge) map[snapshot.Name]*SetOutcome {
	names := t.in.SetsOf.Get(c, n)
	if names.Len() == 0 {
		return nil
	}
	sets := make(map[snapshot.Name]*listenerSet, names.Len())
	for set := range names.All() {
		if s := t.sets.Get(c, set); s != nil {
			sets[set] = s
			f.sets = append(f.sets, set)
		}
	}
	slices.SortFunc(f.sets, func(a, b snapshot.Name) int {
		return cmp.Or(cmp.Compare(sets[a].created, sets[b].created), input.CompareNames(a, b))
	})
	from, selector := gatewayv1.NamespacesFromNone, (*metav1.LabelSelector)(nil)
	if allowed != nil && allowed.Namespaces != nil {
		from, selector = cmp.Or(field.Deref(allowed.Namespaces.From), gatewayv1.NamespacesFromNone), allowed.Namespaces.Selector
	}
	outcomes := make(map[snapshot.Name]*SetOutcome, names.Len())
	for _, set := range f.sets {
		out := &SetOutcome{clientCertificate: f.clientCertificate}
		outcomes[set] = out
		if !t.selects(c, from, selector, n.Namespace, set.Namespace) {
			out.Accepted.Fail(gatewayv1.ListenerSetReasonNotAllowed,
				"Gateway "+n.String()+" takes no ListenerSets of namespace "+set.Namespace+": see its spec.allowedListeners")
			continue
		}
		out.listeners = slices.Clone(sets[set].listeners)
		f.validate("Gateway "+n.String()+": ", out.listeners)
		m.add(out.listeners)
		switch {
		case f.Accepted.Failed:
			out.Accepted.Fail(gatewayv1.ListenerSetReasonParentNotAccepted, "Gateway "+n.String()+" is not accepted ("+string(f.Accepted.Reason)+")")
		case !slices.ContainsFunc(out.listeners, func(l Listener) bool { return l.Serves() && !l.Broken() }):
			out.Accepted.Fail(gatewayv1.ListenerSetReasonListenersNotValid, "no listener can be served: "+UnservedListeners(out.listeners))
		default:
			f.Attached++
			m.take(out.listeners)
		}
	}
	return outcomes
}

// UnservedListeners names the listeners that are not accepted or have no certificate.
func UnservedListeners(list []Listener) string {
	text := ""
	for i := range list {
		l := &list[i]
		reason := l.Accepted.Reason
		if l.Broken() {
			reason = l.Resolved.Reason
		}
		if !l.Serves() || l.Broken() {
			text += field.When(text != "", ", ") + string(l.Name) + " (" + string(reason) + ")"
		}
	}
	return cmp.Or(text, "there is none")
}

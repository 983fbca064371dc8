package translate

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// serviceStatus shows the addresses of a Service that is ours. That it is served is
// not this package's to say: it needs to know what machines balance.
func (t *statusTables) serviceStatus(c *memo.Context, n snapshot.Name) (*Status, bool) {
	o, object := t.in.services.Get(c, n), serviceOwner(n)
	if !isOurs(o) {
		return nil, false
	}
	f, out := t.frontend.balanced.Get(c, n), t.vip.outcomes.Get(c, object)
	status := &Status{Generation: o.Generation, Service: &corev1.ServiceStatus{LoadBalancer: loadBalancerStatus(out)}}
	var served verdict[string]
	if out != nil && out.hold != nil {
		status.Hold = out.hold
		served.fail(string(out.hold.Reason), out.hold.Message)
	}
	if out != nil {
		for _, a := range out.addresses {
			if at := t.frontend.at.Get(c, a); at != nil {
				for i, k := range at.keys {
					if at.owners[i] == object {
						status.Frontends = append(status.Frontends, k)
					}
				}
			}
		}
	}
	notes := slices.Concat(f.refused, f.notes)
	if fact := t.backend.services.Get(c, n); fact != nil {
		notes = append(notes, nonEmpty(fact.refusal)...)
	}
	if out != nil && len(f.sources) > 0 {
		for _, a := range out.addresses {
			if !slices.ContainsFunc(f.sources, func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() }) {
				notes = append(notes, "spec.loadBalancerSourceRanges: nobody is let in at "+a.String()+": no range is "+familyOf(a).String())
			}
		}
	}
	switch {
	case f.problem != "":
		served.fail(v1alpha1.ReasonInvalid, f.problem)
	case len(f.ports) == 0:
		served.fail(v1alpha1.ReasonUnsupportedProtocol, "no port of it can be balanced")
	case out != nil:
		taken := t.takenPorts(c, object, f, out.addresses)
		if len(taken) > 0 && len(status.Frontends) == 0 {
			served.fail(v1alpha1.ReasonPortTaken, strings.Join(taken, "; "))
		} else {
			notes = append(notes, taken...)
		}
	}
	reason, message := v1alpha1.ReasonPending, "waiting for the machines that have its address"
	if served.failed {
		reason, message = served.reason, served.message
	}
	if status.Notes = limit(strings.Join(notes, "; ")); status.Notes != "" {
		message += "; " + status.Notes
	}
	status.Service.Conditions = []metav1.Condition{condition(v1alpha1.ConditionServed, false, reason, message, o.Generation)}
	return status, true
}

// takenPorts are the ports of a Service that another one has at an address that both share,
// in words.
func (t *statusTables) takenPorts(c *memo.Context, service model.Object, f *balancedFact, addresses []netip.Addr) []string {
	var taken []string
	for _, a := range addresses {
		for _, p := range f.ports {
			k := model.FrontendKey{VIP: a, Transport: p.transport, Port: uint16(p.number)}
			if other := t.frontend.frontends.Get(c, k); other != nil && other.Owner != service {
				why := "which came first"
				if other.Owner.Namespace != service.Namespace && other.Owner.Namespace == t.vip.grants.Get(c, a).owner.Namespace {
					why = "whose namespace has the VIP"
				}
				taken = append(taken, k.String()+" is "+other.Owner.String()+"'s, "+why)
			}
		}
	}
	return taken
}

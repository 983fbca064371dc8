package status

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
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/frontend"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/vip"
)

// serviceStatus shows the addresses of a Service that is ours. That it is served is
// not this package's to say: it needs to know what machines balance.
func (t *Tables) serviceStatus(c *memo.Context, n snapshot.Name) (*Status, bool) {
	o, object := t.in.Services.Get(c, n), input.Object(snapshot.KindService, n)
	if !input.IsOurs(o) {
		return nil, false
	}
	balanced, out := t.from.Frontend.Balanced.Get(c, n), t.from.VIP.Outcomes.Get(c, object)
	status := &Status{Generation: o.Generation, Service: &corev1.ServiceStatus{LoadBalancer: vip.LoadBalancerStatus(out)}}
	var served condition.Result[string]
	if out != nil && out.Hold != nil {
		status.Hold = out.Hold
		served.Fail(string(out.Hold.Reason), out.Hold.Message)
	}
	if out != nil {
		for _, a := range out.Addresses {
			if at := t.from.Frontend.At.Get(c, a); at != nil {
				for i, k := range at.Keys {
					if at.Owners[i] == object {
						status.Frontends = append(status.Frontends, k)
					}
				}
			}
		}
	}
	notes := slices.Concat(balanced.Refused, balanced.Notes)
	if service := t.from.Backend.Services.Get(c, n); service != nil {
		notes = append(notes, field.NonEmpty(service.Refusal, service.Misread)...)
	}
	if out != nil && len(balanced.Sources) > 0 {
		for _, a := range out.Addresses {
			if !slices.ContainsFunc(balanced.Sources, func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() }) {
				notes = append(notes, "spec.loadBalancerSourceRanges: every client is refused at "+a.String()+": no range is "+address.FamilyOf(a).String())
			}
		}
	}
	switch {
	case balanced.Problem != "":
		served.Fail(v1alpha1.ReasonInvalid, balanced.Problem)
	case len(balanced.Ports) == 0:
		served.Fail(v1alpha1.ReasonUnsupportedProtocol, "no port of it can be balanced")
	case out != nil:
		taken := t.takenPorts(c, object, balanced, out.Addresses)
		if len(taken) > 0 && len(status.Frontends) == 0 {
			served.Fail(v1alpha1.ReasonPortTaken, strings.Join(taken, "; "))
		} else {
			notes = append(notes, taken...)
		}
	}
	reason, message := v1alpha1.ReasonPending, "waiting for the machines that have its address"
	if served.Failed {
		reason, message = served.Reason, served.Message
	}
	if status.Notes = condition.Limit(strings.Join(notes, "; ")); status.Notes != "" {
		message += "; " + status.Notes
	}
	status.Service.Conditions = []metav1.Condition{condition.New(v1alpha1.ConditionServed, false, reason, message, o.Generation)}
	return status, true
}

// takenPorts are the ports of a Service that another one has at an address that both share,
// in words.
func (t *Tables) takenPorts(c *memo.Context, service model.Object, balanced *frontend.Service, addresses []netip.Addr) []string {
	var taken []string
	for _, a := range addresses {
		for _, p := range balanced.Ports {
			k := model.FrontendKey{VIP: a, Transport: p.Transport, Port: uint16(p.Number)}
			if other := t.from.Frontend.Frontends.Get(c, k); other != nil && other.Owner != service {
				why := "which is older"
				if other.Owner.Namespace != service.Namespace && other.Owner.Namespace == t.from.VIP.Grants.Get(c, a).Owner.Namespace {
					why = "whose namespace has the VIP"
				}
				taken = append(taken, k.String()+" belongs to "+other.Owner.String()+", "+why)
			}
		}
	}
	return taken
}

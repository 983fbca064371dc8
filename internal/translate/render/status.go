package render

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

func writeStatus(b *strings.Builder, o ObjectStatus) {
	s := o.Status
	fmt.Fprintf(b, "status %s generation %d\n", o.Object, s.Generation)
	if s.GatewayClass != nil {
		writeConditions(b, "  ", s.GatewayClass.Conditions)
	}
	if g := s.Gateway; g != nil {
		writeConditions(b, "  ", g.Conditions)
		for _, a := range g.Addresses {
			fmt.Fprintf(b, "  address %s\n", a.Value)
		}
		if n := field.Deref(g.AttachedListenerSets); n > 0 {
			fmt.Fprintf(b, "  listener sets %d\n", n)
		}
		for _, l := range g.Listeners {
			writeListenerStatus(b, gatewayv1.ListenerEntryStatus(l), s.Unserved)
		}
	}
	if set := s.ListenerSet; set != nil {
		writeConditions(b, "  ", set.Conditions)
		for _, l := range set.Listeners {
			writeListenerStatus(b, l, s.Unserved)
		}
	}
	if route := s.Route(); route != nil {
		writeParents(b, route.Parents)
	}
	writePolicyStatus(b, s.BackendTLSPolicy)
	writePolicyStatus(b, s.Policy)
	if i := s.IngressRoute; i != nil {
		fmt.Fprintf(b, "  %s: %s\n", i.CurrentStatus, i.Description)
		writeIngress(b, i.LoadBalancer)
	}
	if p := s.AddressPool; p != nil {
		writeConditions(b, "  ", p.Conditions)
		fmt.Fprintf(b, "  assigned %d free %s\n", p.Assigned, p.Free)
		for _, a := range p.Assignments {
			owner := model.Object{Kind: a.Kind, Namespace: a.Namespace, Name: a.Name}
			fmt.Fprintf(b, "  %s to %s\n", a.Address, owner.Describe())
		}
	}
	if p := s.BGPPeer; p != nil {
		if f := p.InForce; f != nil && !meta.IsStatusConditionTrue(p.Conditions, v1alpha1.ConditionAccepted) {
			fmt.Fprintf(b, "  in force address %s%s AS %d to %d\n", f.Address, field.When(f.Interface != "", "of interface "+f.Interface), f.LocalASN, f.PeerASN)
		}
		writeConditions(b, "  ", p.Conditions)
	}
	if v := s.Service; v != nil {
		writeConditions(b, "  ", v.Conditions)
		writeIngress(b, v.LoadBalancer)
	}
	if s.Notes != "" {
		fmt.Fprintf(b, "  notes: %s\n", s.Notes)
	}
	if s.Hold != nil {
		fmt.Fprintf(b, "  held %s: %s\n", s.Hold.Reason, s.Hold.Message)
	}
	if len(s.Hosts) > 0 {
		b.WriteString("  hosts")
		for _, k := range s.Hosts {
			fmt.Fprintf(b, " %s/%s", k.Listener, k.Host)
		}
		b.WriteByte('\n')
	}
	if len(s.Listeners) > 0 {
		fmt.Fprintf(b, "  listeners %s\n", listText(s.Listeners))
	}
	if len(s.Frontends) > 0 {
		fmt.Fprintf(b, "  frontends %s\n", frontendList(s.Frontends))
	}
	for _, section := range field.SortedKeys(s.SectionFrontends) {
		fmt.Fprintf(b, "  frontends of %s: %s\n", section, frontendList(s.SectionFrontends[section]))
	}
}

// writeListenerStatus writes a listener of a Gateway, whose status has the fields of one of
// a ListenerSet.
func writeListenerStatus(b *strings.Builder, l gatewayv1.ListenerEntryStatus, unserved map[gatewayv1.SectionName]string) {
	var kinds []string
	for _, k := range l.SupportedKinds {
		kinds = append(kinds, string(k.Kind))
	}
	fmt.Fprintf(b, "  listener %s attached %d kinds %s\n", l.Name, l.AttachedRoutes, listText(kinds))
	writeConditions(b, "    ", l.Conditions)
	if why, is := unserved[l.Name]; is {
		fmt.Fprintf(b, "    unserved: %s\n", why)
	}
}

func writePolicyStatus(b *strings.Builder, p *gatewayv1.PolicyStatus) {
	if p == nil {
		return
	}
	for _, a := range p.Ancestors {
		section := ""
		if a.AncestorRef.SectionName != nil {
			section = " section " + string(*a.AncestorRef.SectionName)
		}
		fmt.Fprintf(b, "  ancestor %s %s%s%s\n", field.Deref(a.AncestorRef.Kind), namespacePrefix(field.Deref(a.AncestorRef.Namespace)), a.AncestorRef.Name, section)
		writeConditions(b, "    ", a.Conditions)
	}
}

func writeParents(b *strings.Builder, parents []gatewayv1.RouteParentStatus) {
	for _, p := range parents {
		fmt.Fprintf(b, "  parent %s%s%s%s\n", field.When(field.Deref(p.ParentRef.Kind) == "ListenerSet", "ListenerSet "), namespacePrefix(field.Deref(p.ParentRef.Namespace)), p.ParentRef.Name, field.DescribeSection(p.ParentRef))
		writeConditions(b, "    ", p.Conditions)
	}
	if len(parents) == 0 {
		b.WriteString("  no parent of ours\n")
	}
}

func writeIngress(b *strings.Builder, s corev1.LoadBalancerStatus) {
	for _, i := range s.Ingress {
		fmt.Fprintf(b, "  address %s %s\n", i.IP, field.Deref(i.IPMode))
	}
}

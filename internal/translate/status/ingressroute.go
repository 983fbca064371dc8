package status

import (
	"slices"
	"strconv"
	"strings"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/vip"
)

// Descriptions of IngressRoutes, as Contour words them.
const (
	descriptionValid    = "valid IngressRoute"
	descriptionOrphaned = "this IngressRoute is not part of a delegation chain from a root IngressRoute"
)

// ingressStatus writes an IngressRoute's status, now that it is known who
// delegates to it and who has the host.
func (t *Tables) ingressStatus(c *memo.Context, name snapshot.Name) (*Status, bool) {
	o, route := t.in.IngressRoutes.Get(c, name), t.from.Contour.Routes.Get(c, name)
	if route == nil {
		return nil, false
	}
	reached := input.SortedParts(t.from.Contour.Reached.Get(c, name))
	var found, lost, notes []string
	status := &Status{Generation: o.Generation, IngressRoute: &contourv1beta1.Status{}}
	alive, routed, proxied, redirected := false, false, false, false
	for _, root := range reached {
		tree := t.from.Contour.Trees.Get(c, root)
		found = append(found, tree.Found[name]...)
		if tree.Closed && !route.Root {
			lost = append(lost, "IngressRoute "+root.String()+", which delegates here, is invalid itself")
			continue
		}
		_, isRouted := tree.Routed[name]
		_, isProxied := tree.Proxied[name]
		routed, proxied = routed || isRouted, proxied || isProxied
		if root == name {
			notes = append(notes, tree.Notes...)
		}
		for _, k := range tree.Hosts {
			owner := t.from.Host.Owners.Get(c, k)
			if !owner.Has(input.Object(snapshot.KindIngressRoute, root)) {
				lost = append(lost, "host "+field.Quote(k.Host)+" at port "+portText(k)+" belongs to the older "+owner.Keeper.String())
				continue
			}
			alive = true
			redirected = redirected || isRouted && tree.Secure && k.Listener == t.in.Config.ClearID()
			status.Hosts = append(status.Hosts, k)
			if owner.Conflict && route.Root {
				notes = append(notes, "host "+field.Quote(k.Host)+" at port "+portText(k)+" is also claimed by "+owner.DescribeLosers()+" (newer, not served there)")
			}
		}
	}
	notes = append(notes, route.Notes...)
	notes = append(notes, t.measureNotes(c, route.Services)...)
	notes = append(notes, t.slashNotes(c, route.Slashed, status.Hosts)...)
	if redirected {
		notes = append(notes, field.NonEmpty(route.InsecureNote())...)
	}
	if route.TLS != nil {
		notes = append(notes, field.NonEmpty(route.TLS.Note)...)
		if floor := t.in.Config.FloorNote(route.TLS.MinVersion); floor != "" {
			notes = append(notes, "spec.virtualhost.tls.minimumProtocolVersion: "+floor)
		}
		if id := route.TLS.Certificate; id != "" {
			if note := strings.TrimPrefix(t.from.Certificates.ValidityNotes(c, []model.CertificateID{id}), "; "); note != "" {
				notes = append(notes, "spec.virtualhost.tls.secretName: "+note)
			}
		}
	}
	if !route.Root && alive {
		notes = append(notes, route.Unused(routed, proxied)...)
	}
	slices.SortFunc(status.Hosts, model.HostKey.Compare)
	status.Listeners = host.ListenersOf(status.Hosts)
	if route.Root && route.Host != "" {
		asking := input.Object(snapshot.KindIngressRoute, name)
		if route.Request.Empty() {
			asking = vip.SharedIn(name.Namespace)
		}
		o := t.from.VIP.Outcomes.Get(c, asking)
		status.IngressRoute.LoadBalancer = vip.LoadBalancerStatus(o)
		if o != nil && o.Hold != nil {
			status.Hold = o.Hold
			notes = append(notes, o.Hold.Message)
		}
	}
	out := status.IngressRoute
	switch {
	case route.Root:
		for i := range lost {
			lost[i] = "spec.virtualhost.fqdn: " + lost[i]
		}
		out.CurrentStatus, out.Description = contourv1beta1.StatusInvalid, condition.Join(found, route.Closed, route.Problems, lost)
	case len(reached) == 0:
		out.CurrentStatus, out.Description = contourv1beta1.StatusOrphaned, condition.Join([]string{descriptionOrphaned}, route.Problems)
	case !alive:
		out.CurrentStatus, out.Description = contourv1beta1.StatusOrphaned, condition.Join([]string{descriptionOrphaned + " that is served"}, lost, found, route.Problems)
	default:
		out.CurrentStatus, out.Description = contourv1beta1.StatusInvalid, condition.Join(found, route.Problems)
	}
	if out.Description == "" {
		out.CurrentStatus, out.Description = contourv1beta1.StatusValid, condition.Join([]string{descriptionValid}, notes)
	}
	return status, true
}

// portText is the port in a key's listener.
func portText(k model.HostKey) string { return strconv.Itoa(int(input.PortOf(k.Listener))) }

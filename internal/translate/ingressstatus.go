package translate

import (
	"slices"
	"strconv"
	"strings"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// Descriptions of IngressRoutes, as Contour words them.
const (
	descriptionValid    = "valid IngressRoute"
	descriptionOrphaned = "this IngressRoute is not part of a delegation chain from a root IngressRoute"
)

// ingressStatus writes an IngressRoute's status, now that it is known who
// delegates to it and who has the host.
func (t *statusTables) ingressStatus(c *memo.Context, name snapshot.Name) (*Status, bool) {
	o, f := t.in.ingressRoutes.Get(c, name), t.contour.routes.Get(c, name)
	if f == nil {
		return nil, false
	}
	reached := sortedParts(t.contour.reached.Get(c, name))
	var found, lost, notes []string
	status := &Status{Generation: o.Generation, IngressRoute: &contourv1beta1.Status{}}
	alive, routed, proxied, redirected := false, false, false, false
	for _, root := range reached {
		tree := t.contour.trees.Get(c, root)
		found = append(found, tree.found[name]...)
		if tree.closed && !f.root {
			lost = append(lost, "IngressRoute "+root.String()+", which delegates here, is invalid itself")
			continue
		}
		_, isRouted := tree.routed[name]
		_, isProxied := tree.proxied[name]
		routed, proxied = routed || isRouted, proxied || isProxied
		if root == name {
			notes = append(notes, tree.notes...)
		}
		for _, k := range tree.hosts {
			owner := t.host.owners.Get(c, k)
			if !owner.has(ingressOwner(root)) {
				lost = append(lost, "host "+quote(k.Host)+" at port "+portText(k)+" is kept by "+owner.keeper.String()+", which came first")
				continue
			}
			alive = true
			redirected = redirected || isRouted && tree.secure && k.Listener == t.in.config.clearID()
			status.Hosts = append(status.Hosts, k)
			if owner.conflict && f.root {
				notes = append(notes, "host "+quote(k.Host)+" at port "+portText(k)+" is claimed by "+owner.describeLosers()+" too, which came later and is not served there")
			}
		}
	}
	notes = append(notes, f.notes...)
	notes = append(notes, t.slashNotes(c, f.slashed, status.Hosts)...)
	if redirected {
		notes = append(notes, nonEmpty(f.insecureNote())...)
	}
	if f.tls != nil {
		notes = append(notes, nonEmpty(f.tls.note)...)
		if floor := t.in.config.floorNote(f.tls.minVersion); floor != "" {
			notes = append(notes, "spec.virtualhost.tls.minimumProtocolVersion: "+floor)
		}
		if id := f.tls.certificate; id != "" {
			if note := strings.TrimPrefix(t.tls.validityNotes(c, []model.CertificateID{id}), "; "); note != "" {
				notes = append(notes, "spec.virtualhost.tls.secretName: "+note)
			}
		}
	}
	if !f.root && alive {
		notes = append(notes, f.unused(routed, proxied)...)
	}
	slices.SortFunc(status.Hosts, model.HostKey.Compare)
	status.Listeners = listenersOf(status.Hosts)
	if f.root && f.host != "" {
		asking := ingressOwner(name)
		if f.request.empty() {
			asking = sharedIn(name.Namespace)
		}
		o := t.vip.outcomes.Get(c, asking)
		status.IngressRoute.LoadBalancer = loadBalancerStatus(o)
		if o != nil && o.hold != nil {
			status.Hold = o.hold
			notes = append(notes, o.hold.Message)
		}
	}
	out := status.IngressRoute
	switch {
	case f.root:
		for i := range lost {
			lost[i] = "spec.virtualhost.fqdn: " + lost[i]
		}
		out.CurrentStatus, out.Description = contourv1beta1.StatusInvalid, joinProblems(found, f.closed, f.problems, lost)
	case len(reached) == 0:
		out.CurrentStatus, out.Description = contourv1beta1.StatusOrphaned, joinProblems([]string{descriptionOrphaned}, f.problems)
	case !alive:
		out.CurrentStatus, out.Description = contourv1beta1.StatusOrphaned, joinProblems([]string{descriptionOrphaned + " that is served"}, lost, found, f.problems)
	default:
		out.CurrentStatus, out.Description = contourv1beta1.StatusInvalid, joinProblems(found, f.problems)
	}
	if out.Description == "" {
		out.CurrentStatus, out.Description = contourv1beta1.StatusValid, joinProblems([]string{descriptionValid}, notes)
	}
	return status, true
}

// unused says what of a child nobody delegates to.
func (f *ingressFact) unused(routed, proxied bool) []string {
	switch {
	case f.tcp != nil && !proxied:
		return []string{"spec.tcpproxy: no root that is served delegates connections here"}
	case len(f.steps) > 0 && !routed:
		return []string{"spec.routes: no root that is served delegates requests here"}
	}
	return nil
}

// portText is the port in a key's listener.
func portText(k model.HostKey) string { return strconv.Itoa(int(portOf(k.Listener))) }

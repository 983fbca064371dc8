package gateway

import (
	"cmp"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
)

// Parent is a Gateway or ListenerSet of ours as routes see it: with the listeners of
// the model that serve it, which follow from the addresses that the Gateway has.
type Parent struct {
	object  model.Object
	created int64
	Gateway snapshot.Name
	Class   string // of the Gateway
	Hosts   string // whose they are, by the Gateway
	// Refused says why no route can attach; empty when they can.
	Refused string
	// Own says that its listeners are at addresses of its own.
	Own       bool
	Listeners []ParentListener
	sections  map[gatewayv1.SectionName]int // indexes of listeners
	// ClientCertificate is what the Gateway shows to backends that are spoken to over TLS
	// because a BackendTLSPolicy says so; empty is none.
	ClientCertificate model.CertificateID
}

// ParentListener is a listener with the one of the model that serves it. What accepted and
// resolved say here is final, but for a server name that somebody else has (LostTo).
type ParentListener struct {
	Listener
	ID model.ListenerID // empty where no proxy serves it
}

// ParentKey names a Gateway or a ListenerSet.
type ParentKey struct {
	Kind snapshot.Kind
	Name snapshot.Name
}

// Object names the parent as resources are named.
func (k ParentKey) Object() model.Object {
	return input.Object(k.Kind, k.Name)
}

// ParentOf is the Gateway or ListenerSet that a parentRef names, if it names one.
func ParentOf(ref gatewayv1.ParentReference, namespace string) (ParentKey, bool) {
	k := ParentKey{snapshot.KindGateway, snapshot.Name{Namespace: cmp.Or(string(field.Deref(ref.Namespace)), namespace), Name: string(ref.Name)}}
	if ref.Kind != nil {
		k.Kind = snapshot.Kind(*ref.Kind)
	}
	return k, (ref.Group == nil || *ref.Group == gatewayv1.GroupName) && (k.Kind == snapshot.KindGateway || k.Kind == snapshot.KindListenerSet)
}

// RouteParent is one parentRef to a Gateway or ListenerSet that is ours.
type RouteParent struct {
	Ref     gatewayv1.ParentReference
	Parent  ParentKey
	Gateway snapshot.Name // whose address and settings hold
	// Certificate that the Gateway shows to backends
	Certificate model.CertificateID
	Accepted    RouteResult
	Note        string                  // what is worth knowing of one that is accepted
	Sections    []gatewayv1.SectionName // listeners it attached to
	Hosts       []model.HostKey         // where it wants to be served through this parent, sorted
	Attached    []host.AttachedHost     // the same, with the listeners
}

// Attaching is a route that looks for listeners of a parent.
type Attaching struct {
	Kind      snapshot.Kind
	Namespace string
	Hostnames []string
	// Lost says who has the server name of a listener; empty when it is the listener's.
	Lost func(l *ParentListener) string
	// Want notes a host that the route and a listener have in common, and that the listener may serve. It reports
	// whether requests for it go to another listener, whose hostname says more.
	Want func(l *ParentListener, host string) (elsewhere bool)
}

// Attach finds the listeners that a parentRef means, and the hosts that a route and they have in common. It returns the
// hosts that are served elsewhere. Its cost follows the listeners that are meant.
func (t *Tables) Attach(c *memo.Context, p *RouteParent, a Attaching) (elsewhere []string) {
	f := t.Parents.Get(c, p.Parent)
	if f.Refused != "" {
		p.Accepted.Fail(gatewayv1.RouteReasonNoMatchingParent, f.Refused)
		return nil
	}
	meant := f.meant(p.Ref)
	var allowed, common, serving int
	var refused []string
	for _, i := range meant {
		l := &f.Listeners[i]
		if !t.allows(c, &l.Listener, a.Kind, p.Parent.Name.Namespace, a.Namespace) {
			continue
		}
		allowed++
		lost, matched := a.Lost(l), false
		for _, hostname := range a.Hostnames {
			host, ok := field.Intersect(l.Hostname, hostname)
			if !ok {
				continue
			}
			matched = true
			if l.Serves() && lost == "" && !l.Broken() && a.Want(l, host) {
				elsewhere = append(elsewhere, host)
			}
		}
		switch {
		case !matched:
			continue
		case lost != "":
			refused = append(refused, string(l.Name)+" ("+string(gatewayv1.ListenerReasonHostnameConflict)+")")
		case !l.Serves():
			refused = append(refused, string(l.Name)+" ("+string(l.Accepted.Reason)+")")
		default:
			serving++
		}
		common++
		p.Sections = append(p.Sections, l.Name)
	}
	name := f.object.String()
	switch {
	case len(meant) == 0:
		p.Accepted.Fail(gatewayv1.RouteReasonNoMatchingParent, name+" has no listener"+field.DescribeSection(p.Ref))
	case allowed == 0:
		p.Accepted.Fail(gatewayv1.RouteReasonNotAllowedByListeners,
			"no listener of "+name+field.DescribeSection(p.Ref)+" allows "+string(a.Kind)+"s of namespace "+a.Namespace)
	case common == 0:
		p.Accepted.Fail(gatewayv1.RouteReasonNoMatchingListenerHostname,
			"no listener of "+name+field.DescribeSection(p.Ref)+" has a hostname in common with "+strings.Join(a.Hostnames, ", "))
	case serving == 0:
		p.Accepted.Fail(gatewayv1.RouteReasonNoMatchingParent,
			"no listener of "+name+field.DescribeSection(p.Ref)+" that the route matches is accepted: "+strings.Join(refused, ", "))
	}
	if p.Accepted.Failed {
		p.Sections = nil
		return nil
	}
	slices.Sort(elsewhere)
	return slices.Compact(elsewhere)
}

// NoteElsewhere notes the hosts that are served elsewhere alone.
func (p *RouteParent) NoteElsewhere(elsewhere []string, served []model.HostKey, what string) {
	elsewhere = slices.DeleteFunc(elsewhere, func(host string) bool {
		return slices.ContainsFunc(served, func(k model.HostKey) bool { return k.Host == host })
	})
	if len(elsewhere) > 0 {
		p.Note = "; not served here, because a listener with a more specific hostname takes the " + what + ": " + strings.Join(elsewhere, ", ")
	}
}

// meant are the listeners that a parentRef means, as indexes.
func (f *Parent) meant(ref gatewayv1.ParentReference) []int {
	at := func(i int) bool { return ref.Port == nil || int32(*ref.Port) == f.Listeners[i].Port }
	if ref.SectionName != nil {
		if i, found := f.sections[*ref.SectionName]; found && at(i) {
			return []int{i}
		}
		return nil
	}
	var list []int
	for i := range f.Listeners {
		if at(i) {
			list = append(list, i)
		}
	}
	return list
}

// LostTo says who has the server name of a listener, when it is somebody else; empty when
// it is the listener's.
func (t *Tables) LostTo(c *memo.Context, f *Parent, l *ParentListener) string {
	if !l.Secure() || !l.Serves() {
		return ""
	}
	if n, found := t.from.Host.NameOwners.Find(c, model.HostKey{Listener: l.ID, Host: l.Hostname}); found && n.Parent != f.object {
		return n.Parent.String()
	}
	return ""
}

// Owns reports whether requests for a host that come in at a listener's port are the
// listener's, and not those of one with a hostname that says more: of the same Gateway and
// its ListenerSets in clear text; with TLS of everybody, since a server name has one
// certificate.
func (t *Tables) Owns(c *memo.Context, f *Parent, l *ParentListener, host string) bool {
	if l.Secure() {
		pattern, owner, found := t.from.Host.Section(c, l.ID, host)
		return found && pattern == l.Hostname && owner == f.object
	}
	return t.OwnsClear(c, f, l, host)
}

// OwnsClear is owns among the listeners of the Gateway and its ListenerSets alone.
func (t *Tables) OwnsClear(c *memo.Context, f *Parent, l *ParentListener, host string) bool {
	for pattern, more := host, true; more && pattern != l.Hostname; pattern, more = field.Wider(pattern) {
		if _, stands := t.Sections.Find(c, sectionKey{f.Gateway, l.Port, pattern}); stands {
			return false
		}
	}
	return true
}

// sectionKey names the hostname of a listener that proxies serve, of a Gateway or of its
// ListenerSets.
type sectionKey struct {
	gateway  snapshot.Name
	port     int32
	hostname string
}

// makeParent finds the listeners of the model that serve a Gateway or ListenerSet, and
// claims there what is not a route's.
func (t *Tables) makeParent(c *memo.Context, k ParentKey) (*Parent, bool) {
	f := t.judgeParent(c, k)
	if f == nil {
		return nil, false
	}
	for _, id := range f.ListenerIDs() {
		t.from.Host.Ports.Put(c, id, f.object, f.created)
	}
	reserves := &host.Candidate{Owner: f.object}
	for _, host := range f.reserved() {
		t.from.Host.Candidates.Put(c, host, f.object, reserves)
	}
	for host, wants := range f.serverNames() {
		t.from.Host.Names.Put(c, host, f.object, wants)
	}
	return f, true
}

func (t *Tables) judgeParent(c *memo.Context, k ParentKey) *Parent {
	f := &Parent{object: k.Object(), sections: map[gatewayv1.SectionName]int{}}
	var listeners []Listener
	switch k.Kind {
	case snapshot.KindGateway:
		if t.in.Gateways.Get(c, k.Name) == nil {
			return nil
		}
		g := t.Gateways.Get(c, k.Name)
		if g == nil {
			return nil
		}
		f.created, f.Gateway, f.ClientCertificate, listeners = g.created, k.Name, g.clientCertificate, g.Listeners
		if g.Accepted.Failed {
			f.Refused = f.object.String() + " is not accepted: " + g.Accepted.Message
		}
	case snapshot.KindListenerSet:
		if t.in.ListenerSets.Get(c, k.Name) == nil {
			return nil
		}
		s := t.sets.Get(c, k.Name)
		out := t.Outcomes.Get(c, SetKey{s.gateway, k.Name})
		if out == nil {
			return nil
		}
		f.created, f.Gateway, f.ClientCertificate, listeners = s.created, s.gateway, out.clientCertificate, out.listeners
		if out.Accepted.Failed {
			f.Refused = f.object.String() + " is not accepted: " + out.Accepted.Message
		}
	}
	gateway, given := t.Gateways.Get(c, f.Gateway), t.from.VIP.Outcomes.Get(c, input.Object(snapshot.KindGateway, f.Gateway))
	own := given != nil && given.Pooled // whether or not it has an address yet
	f.Own, f.Class, f.Hosts = own, gateway.class, gateway.hosts
	for i, l := range listeners {
		p := ParentListener{Listener: l}
		if !own && l.Secure() && !l.Passthrough && gateway.Validation(l.Port) != nil {
			p.Accepted.Fail(gatewayv1.ListenerReasonUnsupportedValue, "Gateway "+f.Gateway.String()+": "+gateway.frontend(l.Port).path+
				": without an address of its own the Gateway shares its ports with other Gateways, whose clients would also be asked for certificates: create an AddressPool")
		}
		if problem := t.in.Config.PortOfIngressRoutes(l.Port, l.Secure()); problem != "" && !own && !l.Direct() && !p.Accepted.Failed {
			p.Accepted.Fail(gatewayv1.ListenerReasonPortUnavailable, problem)
		}
		switch port := uint16(max(min(l.Port, 65535), 0)); {
		case l.Direct():
		case own:
			p.ID = model.OwnListener(l.modelProtocol(), port, f.Gateway.Namespace, f.Gateway.Name)
		default:
			p.ID = model.SharedListener(l.modelProtocol(), port)
		}
		f.Listeners = append(f.Listeners, p)
		if _, known := f.sections[l.Name]; !known {
			f.sections[l.Name] = i
		}
	}
	return f
}

// ListenerIDs are the listeners of the model that serve it, sorted.
func (f *Parent) ListenerIDs() []model.ListenerID {
	if f == nil || f.Refused != "" {
		return nil
	}
	var ids []model.ListenerID
	for i := range f.Listeners {
		if l := &f.Listeners[i]; l.Serves() && l.ID != "" {
			ids = append(ids, l.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Served names the listeners of the model by those that they serve.
func (f *Parent) Served() map[gatewayv1.SectionName]model.ListenerID {
	if f.Refused != "" {
		return nil
	}
	var ids map[gatewayv1.SectionName]model.ListenerID
	for i := range f.Listeners {
		l := &f.Listeners[i]
		if !l.Serves() || l.ID == "" {
			continue
		}
		if ids == nil {
			ids = map[gatewayv1.SectionName]model.ListenerID{}
		}
		ids[l.Name] = l.ID
	}
	return ids
}

// reserved are hosts whose requests are nobody else's, whether or not a route is attached.
func (f *Parent) reserved() []model.HostKey {
	if f == nil || f.Refused != "" {
		return nil
	}
	var keys []model.HostKey
	for i := range f.Listeners {
		if l := &f.Listeners[i]; l.Serves() && !l.Direct() && (l.inner || l.protocol == gatewayv1.HTTPSProtocolType) {
			keys = append(keys, model.HostKey{Listener: l.ID, Host: l.Hostname})
		}
	}
	slices.SortFunc(keys, model.HostKey.Compare)
	return slices.Compact(keys)
}

// serverNames are the server names that its listeners want.
func (f *Parent) serverNames() map[model.HostKey]*host.NameCandidate {
	if f == nil || f.Refused != "" {
		return nil
	}
	candidates := map[model.HostKey]*host.NameCandidate{}
	for i := range f.Listeners {
		l := &f.Listeners[i]
		if !l.Serves() || !l.Secure() {
			continue
		}
		k := model.HostKey{Listener: l.ID, Host: l.Hostname}
		c := &host.NameCandidate{Created: f.created, Gateway: f.Gateway, Host: model.TLSHost{HostKey: k, Owner: f.object, Certificates: l.Certificates, MinVersion: l.MinTLS}}
		if l.protocol == gatewayv1.TLSProtocolType {
			c.Host.Certificates = nil // without a route there is nothing behind it
		}
		candidates[k] = c
	}
	return candidates
}

// Attachment is where a route is attached by a listener of a parent.
func (p *RouteParent) Attachment(section gatewayv1.SectionName) host.Attachment {
	attachment := host.Attachment{Parent: p.Parent.Object(), Section: string(section)}
	if p.Parent.Kind == snapshot.KindListenerSet {
		attachment.Above = input.Object(snapshot.KindGateway, p.Gateway)
	}
	return attachment
}

// RouteResult is the outcome of reading a route, for one of its conditions.
type RouteResult = condition.Result[gatewayv1.RouteConditionReason]

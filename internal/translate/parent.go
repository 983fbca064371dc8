package translate

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// parentFact is a Gateway or ListenerSet of ours as routes see it: with the listeners of
// the model that serve it, which follow from the addresses that the Gateway has.
type parentFact struct {
	object  model.Object
	created int64
	gateway snapshot.Name
	class   string // of the Gateway
	hosts   string // whose they are, by the Gateway
	// refused says why no route can attach; empty when they can.
	refused string
	// own says that its listeners are at addresses of its own.
	own       bool
	listeners []parentListener
	sections  map[gatewayv1.SectionName]int // indexes of listeners
	// clientCertificate is what the Gateway shows to backends that are spoken to over TLS
	// because a BackendTLSPolicy says so; empty is none.
	clientCertificate model.CertificateID
}

// parentListener is a listener with the one of the model that serves it. What accepted and
// resolved say here is final, but for a server name that somebody else has (lostTo).
type parentListener struct {
	gatewayListener
	id model.ListenerID // empty where no proxy serves it
}

// parentKey names a Gateway or a ListenerSet.
type parentKey struct {
	kind snapshot.Kind
	name snapshot.Name
}

func (k parentKey) object() model.Object {
	return model.Object{Kind: string(k.kind), Namespace: k.name.Namespace, Name: k.name.Name}
}

// parentOf is the Gateway or ListenerSet that a parentRef names, if it names one.
func parentOf(ref gatewayv1.ParentReference, namespace string) (parentKey, bool) {
	k := parentKey{snapshot.KindGateway, snapshot.Name{Namespace: cmp.Or(string(deref(ref.Namespace)), namespace), Name: string(ref.Name)}}
	if ref.Kind != nil {
		k.kind = snapshot.Kind(*ref.Kind)
	}
	return k, (ref.Group == nil || *ref.Group == gatewayv1.GroupName) && (k.kind == snapshot.KindGateway || k.kind == snapshot.KindListenerSet)
}

// routeParent is one parentRef to a Gateway or ListenerSet that is ours.
type routeParent struct {
	ref     gatewayv1.ParentReference
	parent  parentKey
	gateway snapshot.Name // whose address and settings hold
	// certificate that the Gateway shows to backends
	certificate model.CertificateID
	accepted    routeVerdict
	note        string                  // what is worth knowing of one that is accepted
	sections    []gatewayv1.SectionName // listeners it attached to
	hosts       []model.HostKey         // where it wants to be served through this parent, sorted
	places      []placedHost            // the same, with the listeners
}

// attaching is a route that looks for listeners of a parent.
type attaching struct {
	kind      snapshot.Kind
	namespace string
	hostnames []string
	// lost says who has the server name of a listener; empty when it is the listener's.
	lost func(l *parentListener) string
	// want notes a host that the route and a listener have in common, and that the listener may serve. It reports
	// whether requests for it go to another listener, whose hostname says more.
	want func(l *parentListener, host string) (elsewhere bool)
}

// attach finds the listeners that a parentRef means, and the hosts that a route and they have in common. It returns the
// hosts that are served elsewhere. Its cost follows the listeners that are meant.
func (t *gatewayTables) attach(c *memo.Context, p *routeParent, a attaching) (elsewhere []string) {
	f := t.parents.Get(c, p.parent)
	if f.refused != "" {
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingParent, f.refused)
		return nil
	}
	meant := f.meant(p.ref)
	var allowed, common, serving int
	var refused []string
	for _, i := range meant {
		l := &f.listeners[i]
		if !t.allows(c, &l.gatewayListener, a.kind, p.parent.name.Namespace, a.namespace) {
			continue
		}
		allowed++
		lost, matched := a.lost(l), false
		for _, hostname := range a.hostnames {
			host, ok := intersect(l.hostname, hostname)
			if !ok {
				continue
			}
			matched = true
			if l.serves() && lost == "" && !l.broken() && a.want(l, host) {
				elsewhere = append(elsewhere, host)
			}
		}
		switch {
		case !matched:
			continue
		case lost != "":
			refused = append(refused, string(l.name)+" ("+string(gatewayv1.ListenerReasonHostnameConflict)+")")
		case !l.serves():
			refused = append(refused, string(l.name)+" ("+string(l.accepted.reason)+")")
		default:
			serving++
		}
		common++
		p.sections = append(p.sections, l.name)
	}
	name := f.object.String()
	switch {
	case len(meant) == 0:
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingParent, name+" has no listener"+describeSection(p.ref))
	case allowed == 0:
		p.accepted.fail(gatewayv1.RouteReasonNotAllowedByListeners,
			"no listener of "+name+describeSection(p.ref)+" allows "+string(a.kind)+"s of namespace "+a.namespace)
	case common == 0:
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingListenerHostname,
			"no listener of "+name+describeSection(p.ref)+" has a hostname in common with "+strings.Join(a.hostnames, ", "))
	case serving == 0:
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingParent,
			"no listener of "+name+describeSection(p.ref)+" that the route matches is accepted: "+strings.Join(refused, ", "))
	}
	if p.accepted.failed {
		p.sections = nil
		return nil
	}
	slices.Sort(elsewhere)
	return slices.Compact(elsewhere)
}

// noteElsewhere notes the hosts that are served elsewhere alone.
func (p *routeParent) noteElsewhere(elsewhere []string, served []model.HostKey, what string) {
	elsewhere = slices.DeleteFunc(elsewhere, func(host string) bool {
		return slices.ContainsFunc(served, func(k model.HostKey) bool { return k.Host == host })
	})
	if len(elsewhere) > 0 {
		p.note = "; not served here, because a listener with a hostname that says more takes the " + what + ": " + strings.Join(elsewhere, ", ")
	}
}

// meant are the listeners that a parentRef means, as indexes.
func (f *parentFact) meant(ref gatewayv1.ParentReference) []int {
	at := func(i int) bool { return ref.Port == nil || int32(*ref.Port) == f.listeners[i].port }
	if ref.SectionName != nil {
		if i, found := f.sections[*ref.SectionName]; found && at(i) {
			return []int{i}
		}
		return nil
	}
	var list []int
	for i := range f.listeners {
		if at(i) {
			list = append(list, i)
		}
	}
	return list
}

// lostTo says who has the server name of a listener, when it is somebody else; empty when
// it is the listener's.
func (t *gatewayTables) lostTo(c *memo.Context, f *parentFact, l *parentListener) string {
	if !l.secure() || !l.serves() {
		return ""
	}
	if n, found := t.host.nameOwners.Find(c, model.HostKey{Listener: l.id, Host: l.hostname}); found && n.parent != f.object {
		return n.parent.String()
	}
	return ""
}

// owns reports whether requests for a host that come in at a listener's port are the
// listener's, and not those of one with a hostname that says more: of the same Gateway and
// its ListenerSets in clear text; with TLS of everybody, since a server name has one
// certificate.
func (t *gatewayTables) owns(c *memo.Context, f *parentFact, l *parentListener, host string) bool {
	if l.secure() {
		pattern, owner, found := t.host.section(c, l.id, host)
		return found && pattern == l.hostname && owner == f.object
	}
	return t.ownsClear(c, f, l, host)
}

// ownsClear is owns among the listeners of the Gateway and its ListenerSets alone.
func (t *gatewayTables) ownsClear(c *memo.Context, f *parentFact, l *parentListener, host string) bool {
	for pattern, more := host, true; more && pattern != l.hostname; pattern, more = wider(pattern) {
		if _, stands := t.sections.Find(c, sectionKey{f.gateway, l.port, pattern}); stands {
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

// makeParent finds the listeners of the model that serve a Gateway or ListenerSet, and
// claims there what is not a route's.
func (t *gatewayTables) makeParent(c *memo.Context, k parentKey) (*parentFact, bool) {
	f := t.judgeParent(c, k)
	if f == nil {
		return nil, false
	}
	for _, id := range f.listenerIDs() {
		t.host.ports.Put(c, id, f.object, f.created)
	}
	reserves := &claim{owner: f.object}
	for _, host := range f.reserved() {
		t.host.claims.Put(c, host, f.object, reserves)
	}
	for host, wants := range f.tlsClaims() {
		t.host.names.Put(c, host, f.object, wants)
	}
	return f, true
}

func (t *gatewayTables) judgeParent(c *memo.Context, k parentKey) *parentFact {
	f := &parentFact{object: k.object(), sections: map[gatewayv1.SectionName]int{}}
	var listeners []gatewayListener
	switch k.kind {
	case snapshot.KindGateway:
		if t.in.gateways.Get(c, k.name) == nil {
			return nil
		}
		g := t.gateways.Get(c, k.name)
		if g == nil {
			return nil
		}
		f.created, f.gateway, f.clientCertificate, listeners = g.created, k.name, g.clientCertificate, g.listeners
		if g.accepted.failed {
			f.refused = f.object.String() + " is not accepted: " + g.accepted.message
		}
	case snapshot.KindListenerSet:
		if t.in.listenerSets.Get(c, k.name) == nil {
			return nil
		}
		s := t.sets.Get(c, k.name)
		out := t.outcomes.Get(c, setKey{s.gateway, k.name})
		if out == nil {
			return nil
		}
		f.created, f.gateway, f.clientCertificate, listeners = s.created, s.gateway, out.clientCertificate, out.listeners
		if out.accepted.failed {
			f.refused = f.object.String() + " is not accepted: " + out.accepted.message
		}
	}
	gateway, given := t.gateways.Get(c, f.gateway), t.vip.outcomes.Get(c, gatewayOwner(f.gateway))
	own := given != nil && given.pooled // whether or not it has an address yet
	f.own, f.class, f.hosts = own, gateway.class, gateway.hosts
	for i, l := range listeners {
		p := parentListener{gatewayListener: l}
		if !own && l.secure() && !l.passthrough && gateway.validation(l.port) != nil {
			p.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, "Gateway "+f.gateway.String()+": "+gateway.frontend(l.port).path+
				": without an address of its own the Gateway shares its ports with others, who would be asked for certificates too: make an AddressPool")
		}
		if problem := t.in.config.portOfIngressRoutes(l.port, l.secure()); problem != "" && !own && !l.direct() && !p.accepted.failed {
			p.accepted.fail(gatewayv1.ListenerReasonPortUnavailable, problem)
		}
		switch port := uint16(max(min(l.port, 65535), 0)); {
		case l.direct():
		case own:
			p.id = model.OwnListener(l.modelProtocol(), port, f.gateway.Namespace, f.gateway.Name)
		default:
			p.id = model.SharedListener(l.modelProtocol(), port)
		}
		f.listeners = append(f.listeners, p)
		if _, known := f.sections[l.name]; !known {
			f.sections[l.name] = i
		}
	}
	return f
}

// listenerIDs are the listeners of the model that serve it, sorted.
func (f *parentFact) listenerIDs() []model.ListenerID {
	if f == nil || f.refused != "" {
		return nil
	}
	var ids []model.ListenerID
	for i := range f.listeners {
		if l := &f.listeners[i]; l.serves() && l.id != "" {
			ids = append(ids, l.id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// served names the listeners of the model by those that they serve.
func (f *parentFact) served() map[gatewayv1.SectionName]model.ListenerID {
	if f.refused != "" {
		return nil
	}
	var ids map[gatewayv1.SectionName]model.ListenerID
	for i := range f.listeners {
		l := &f.listeners[i]
		if !l.serves() || l.id == "" {
			continue
		}
		if ids == nil {
			ids = map[gatewayv1.SectionName]model.ListenerID{}
		}
		ids[l.name] = l.id
	}
	return ids
}

// reserved are hosts whose requests are nobody else's, whether or not a route is attached.
func (f *parentFact) reserved() []model.HostKey {
	if f == nil || f.refused != "" {
		return nil
	}
	var keys []model.HostKey
	for i := range f.listeners {
		if l := &f.listeners[i]; l.serves() && !l.direct() && (l.inner || l.protocol == gatewayv1.HTTPSProtocolType) {
			keys = append(keys, model.HostKey{Listener: l.id, Host: l.hostname})
		}
	}
	slices.SortFunc(keys, model.HostKey.Compare)
	return slices.Compact(keys)
}

// tlsClaims are the server names that its listeners want.
func (f *parentFact) tlsClaims() map[model.HostKey]*tlsClaim {
	if f == nil || f.refused != "" {
		return nil
	}
	claims := map[model.HostKey]*tlsClaim{}
	for i := range f.listeners {
		l := &f.listeners[i]
		if !l.serves() || !l.secure() {
			continue
		}
		k := model.HostKey{Listener: l.id, Host: l.hostname}
		c := &tlsClaim{created: f.created, gateway: f.gateway, host: model.TLSHost{HostKey: k, Owner: f.object, Certificates: l.certificates, MinVersion: l.minTLS}}
		if l.protocol == gatewayv1.TLSProtocolType {
			c.host.Certificates = nil // without a route there is nothing behind it
		}
		claims[k] = c
	}
	return claims
}

// place is where a route is attached by a listener of a parent.
func (p *routeParent) place(section gatewayv1.SectionName) hostPlace {
	place := hostPlace{parent: p.parent.object(), section: string(section)}
	if p.parent.kind == snapshot.KindListenerSet {
		place.above = gatewayOwner(p.gateway)
	}
	return place
}

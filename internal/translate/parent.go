package translate

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
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

func (k parentKey) node() node {
	return node{kind: nodeParent, a: string(k.kind), b: k.name.Namespace, c: k.name.Name}
}

func (k parentKey) object() model.Object {
	return model.Object{Kind: string(k.kind), Namespace: k.name.Namespace, Name: k.name.Name}
}

// parent returns what routes attach to; nil when there is none or it is another controller's.
func (r reader) parent(k parentKey) *parentFact {
	r.t.graph.read(r.by, k.node())
	return r.t.parents[k]
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

// attach finds the listeners that a parentRef means, and the hosts that a route of a kind
// and namespace and they have in common. Its cost follows the listeners that are meant.
func attach(r reader, p *routeParent, kind snapshot.Kind, hostnames []string, namespace string) {
	f := r.parent(p.parent)
	if f.refused != "" {
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingParent, f.refused)
		return
	}
	meant := f.meant(p.ref)
	var allowed, common, serving int
	var elsewhere, refused []string
	for _, i := range meant {
		l := &f.listeners[i]
		if !l.allows(r, kind, p.parent.name.Namespace, namespace) {
			continue
		}
		allowed++
		lost, matched := f.lostTo(r, l), false
		for _, hostname := range hostnames {
			host, ok := intersect(l.hostname, hostname)
			if !ok {
				continue
			}
			matched = true
			switch {
			case !l.serves() || lost != "" || l.broken():
			case f.owns(r, l, host):
				p.hosts = append(p.hosts, model.HostKey{Listener: l.id, Host: host})
				p.places = append(p.places, placedHost{
					host: model.HostKey{Listener: l.id, Host: host}, place: p.place(l.name),
					gateway: f.gateway, apart: f.hosts == v1alpha1.HostsOfNamespaces, home: namespace == f.gateway.Namespace || namespace == p.parent.name.Namespace,
				})
			default:
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
	slices.SortFunc(p.hosts, model.HostKey.Compare)
	p.hosts = slices.Compact(p.hosts)
	name := f.object.String()
	switch {
	case len(meant) == 0:
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingParent, name+" has no listener"+describeSection(p.ref))
	case allowed == 0:
		p.accepted.fail(gatewayv1.RouteReasonNotAllowedByListeners,
			"no listener of "+name+describeSection(p.ref)+" allows "+string(kind)+"s of namespace "+namespace)
	case common == 0:
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingListenerHostname,
			"no listener of "+name+describeSection(p.ref)+" has a hostname in common with "+strings.Join(hostnames, ", "))
	case serving == 0:
		p.accepted.fail(gatewayv1.RouteReasonNoMatchingParent,
			"no listener of "+name+describeSection(p.ref)+" that the route matches is accepted: "+strings.Join(refused, ", "))
	}
	if p.accepted.failed {
		p.sections = nil
		return
	}
	slices.Sort(elsewhere)
	elsewhere = slices.DeleteFunc(slices.Compact(elsewhere), func(host string) bool {
		return slices.ContainsFunc(p.hosts, func(k model.HostKey) bool { return k.Host == host })
	})
	if len(elsewhere) > 0 {
		p.note = "; not served here, because a listener with a hostname that says more takes the requests: " + strings.Join(elsewhere, ", ")
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
func (f *parentFact) lostTo(r reader, l *parentListener) string {
	if !l.secure() || !l.serves() {
		return ""
	}
	if owner, found := r.tlsOwner(model.HostKey{Listener: l.id, Host: l.hostname}); found && owner != f.object {
		return owner.String()
	}
	return ""
}

// owns reports whether requests for a host that come in at a listener's port are the
// listener's, and not those of one with a hostname that says more: of the same Gateway and
// its ListenerSets in clear text; with TLS of everybody, since a server name has one
// certificate.
func (f *parentFact) owns(r reader, l *parentListener, host string) bool {
	if l.secure() {
		pattern, owner, found := r.section(l.id, host)
		return found && pattern == l.hostname && owner == f.object
	}
	return f.ownsClear(r, l, host)
}

// ownsClear is owns among the listeners of the Gateway and its ListenerSets alone.
func (f *parentFact) ownsClear(r reader, l *parentListener, host string) bool {
	for pattern, more := host, true; more && pattern != l.hostname; pattern, more = wider(pattern) {
		if r.hasSection(sectionKey{f.gateway, l.port, pattern}) {
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

func (k sectionKey) node() node {
	return node{kind: nodeSection, a: k.gateway.Namespace, b: k.gateway.Name, c: strconv.Itoa(int(k.port)) + "/" + k.hostname}
}

func (r reader) hasSection(k sectionKey) bool {
	r.t.graph.read(r.by, k.node())
	_, found := r.t.sections[k]
	return found
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

// attachment is one listener of a Gateway or ListenerSet that counts a route.
type attachment struct {
	parent  parentKey
	section gatewayv1.SectionName
}

func (a attachment) compare(b attachment) int {
	return cmp.Or(cmp.Compare(a.parent.kind, b.parent.kind), compareNames(a.parent.name, b.parent.name), cmp.Compare(a.section, b.section))
}

// countRoute replaces what a route adds to the listeners' attached routes.
func (t *Translator) countRoute(route model.Object, after []attachment) {
	slices.SortFunc(after, attachment.compare)
	after = slices.Compact(after) // two parentRefs may lead to one listener
	before := t.counted[route]
	if slices.Equal(before, after) {
		return
	}
	add := func(list []attachment, by int32) {
		for _, a := range list {
			if t.attached[a.parent] == nil {
				t.attached[a.parent] = map[gatewayv1.SectionName]int32{}
			}
			t.attached[a.parent][a.section] += by
			if t.attached[a.parent][a.section] == 0 {
				delete(t.attached[a.parent], a.section)
			}
			if len(t.attached[a.parent]) == 0 {
				delete(t.attached, a.parent)
			}
			t.graph.mark(a.parent.statusNode())
		}
	}
	add(before, -1)
	add(after, 1)
	if len(after) == 0 {
		delete(t.counted, route)
	} else {
		t.counted[route] = after
	}
}

func (k parentKey) statusNode() node {
	if k.kind == snapshot.KindListenerSet {
		return named(nodeListenerSetStatus, k.name)
	}
	return named(nodeGatewayStatus, k.name)
}

// computeParent finds the listeners of the model that serve a Gateway or ListenerSet, and
// claims there what is not a route's.
func (t *Translator) computeParent(r reader, n node) {
	k := parentKey{snapshot.Kind(n.a), snapshot.Name{Namespace: n.b, Name: n.c}}
	before := t.parents[k]
	update(t, n, t.parents, k, makeParentFact(r, k))
	after := t.parents[k]
	if before == after {
		return
	}
	t.graph.mark(k.statusNode())
	var created int64
	if after != nil {
		created = after.created
	}
	t.askPorts(k.object(), created, before.listenerIDs(), after.listenerIDs())
	t.moveClaims(k.object(), before.reserved(), after.reserved(), &claim{owner: k.object()})
	was, is := before.tlsClaims(), after.tlsClaims()
	for key := range was {
		if is[key] == nil {
			t.claimTLS(key, tlsClaimant{parent: k.object()}, nil)
		}
	}
	for key, c := range is {
		t.claimTLS(key, tlsClaimant{parent: k.object()}, c)
	}
}

func makeParentFact(r reader, k parentKey) *parentFact {
	f := &parentFact{object: k.object(), sections: map[gatewayv1.SectionName]int{}}
	var listeners []gatewayListener
	switch k.kind {
	case snapshot.KindGateway:
		if r.s.Gateways[k.name] == nil {
			return nil
		}
		g := r.gateway(k.name)
		if g == nil {
			return nil
		}
		f.created, f.gateway, f.clientCertificate, listeners = g.created, k.name, g.clientCertificate, g.listeners
		if g.accepted.failed {
			f.refused = f.object.String() + " is not accepted: " + g.accepted.message
		}
	case snapshot.KindListenerSet:
		if r.s.ListenerSets[k.name] == nil {
			return nil
		}
		s := r.set(k.name)
		out := r.setOutcome(s.gateway, k.name)
		if out == nil {
			return nil
		}
		f.created, f.gateway, f.clientCertificate, listeners = s.created, s.gateway, out.clientCertificate, out.listeners
		if out.accepted.failed {
			f.refused = f.object.String() + " is not accepted: " + out.accepted.message
		}
	}
	own := r.hasOwnAddress(f.gateway)
	f.own = own
	f.class, f.hosts = r.gateway(f.gateway).class, r.gateway(f.gateway).hosts
	for i, l := range listeners {
		p := parentListener{gatewayListener: l}
		if !own && l.secure() && !l.passthrough && r.gateway(f.gateway).validation(l.port) != nil {
			p.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, "Gateway "+f.gateway.String()+": "+r.gateway(f.gateway).frontend(l.port).path+
				": without an address of its own the Gateway shares its ports with others, who would be asked for certificates too: make an AddressPool")
		}
		if problem := r.t.config.portOfIngressRoutes(l.port, l.secure()); problem != "" && !own && !l.direct() && !p.accepted.failed {
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

// hasOwnAddress reports whether pools care for a Gateway, so that its listeners are at
// addresses of its own, whether or not it has one yet.
func (r reader) hasOwnAddress(gateway snapshot.Name) bool {
	out := r.outcome(gatewayOwner(gateway))
	return out != nil && out.pooled
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

package translate

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// frontendsAt are the frontends of one address.
type frontendsAt struct {
	keys   []model.FrontendKey // sorted
	owners []model.Object      // of each
	sets   []node              // that they name, each as often as it is named
}

func frontendsNode(a netip.Addr) node { return node{kind: nodeFrontends, a: a.String()} }

// gatewayDoor is a listener without a proxy of a Gateway or one of its ListenerSets.
type gatewayDoor struct {
	transport model.Transport
	port      uint16
	bearer    parentKey
	section   gatewayv1.SectionName
}

// computeFrontends makes the frontends at an address that may be used.
func (t *Translator) computeFrontends(r reader, n node) {
	address := netip.MustParseAddr(n.a)
	made := map[model.FrontendKey]*model.Frontend{}
	if g, granted := t.grants[address]; granted {
		b := frontendBuilder{r: r, address: address, grant: g, made: made}
		b.machines = r.selection(g.pool).machines
		b.build()
	}
	before := t.frontendsAt[address]
	if before == nil {
		before = &frontendsAt{}
	}
	after := &frontendsAt{}
	for k, f := range made {
		after.keys = append(after.keys, k)
		for _, target := range f.Targets {
			if target.Set != "" {
				after.sets = append(after.sets, setNodeOf(target.Set))
			}
		}
		publish(t.result.Frontends, t.out.Frontends, k, f)
	}
	slices.SortFunc(after.keys, model.FrontendKey.Compare)
	for _, k := range after.keys {
		after.owners = append(after.owners, made[k].Owner)
	}
	slices.SortFunc(after.sets, compareNodes)
	for _, k := range before.keys {
		if made[k] == nil {
			publish(t.result.Frontends, t.out.Frontends, k, nil)
		}
	}
	t.balance(after.sets, 1)
	t.balance(before.sets, -1)
	if len(after.keys) == 0 {
		delete(t.frontendsAt, address)
	} else {
		t.frontendsAt[address] = after
	}
	if !slices.Equal(before.keys, after.keys) || !slices.Equal(before.owners, after.owners) {
		t.graph.changed(n)
	}
}

func compareNodes(a, b node) int {
	return strings.Compare(a.a+"/"+a.b+"/"+a.c, b.a+"/"+b.b+"/"+b.c)
}

// balance counts frontends that name sets.
func (t *Translator) balance(sets []node, by int) {
	for _, n := range sets {
		was := t.balances[n]
		if t.balances[n] = was + by; was+by == 0 {
			delete(t.balances, n)
		}
		if was == 0 || was+by == 0 {
			t.graph.mark(n)
		}
	}
}

// frontendBuilder makes the frontends of one address.
type frontendBuilder struct {
	r        reader
	address  netip.Addr
	grant    grant
	machines []string
	made     map[model.FrontendKey]*model.Frontend
}

func (b *frontendBuilder) build() {
	for _, id := range b.grant.listeners {
		b.proxies(id)
	}
	n := snapshot.Name{Namespace: b.grant.owner.Namespace, Name: b.grant.owner.Name}
	switch snapshot.Kind(b.grant.owner.Kind) {
	case snapshot.KindService:
		if len(b.grant.members) == 0 {
			b.service(n)
		}
		for _, member := range b.grant.members {
			b.service(snapshot.Name{Namespace: member.Namespace, Name: member.Name})
		}
	case snapshot.KindGateway:
		if f := b.r.gateway(n); f != nil {
			for _, d := range f.doors {
				b.door(n, d)
			}
		}
	}
}

// add makes a frontend as settings want it, unless another has the port.
func (b *frontendBuilder) add(f model.Frontend, transport model.Transport, port uint16, settings []policyAnchor) {
	f.FrontendKey = model.FrontendKey{VIP: b.address, Transport: transport, Port: port}
	if b.made[f.FrontendKey] != nil {
		return
	}
	f.Machines = b.machines
	if f.Owner.Kind == "" {
		f.Owner = b.grant.owner
	}
	var s balanceSettings
	for _, anchor := range settings {
		s, _ = s.under(b.r.settingsAt(anchor))
	}
	use := balanceUse{transport: transport, port: port, proxies: f.Listener != ""}
	if s.mode == model.ModeDSRIPIP || s.mode == model.ModeDSRL2 {
		use.services = b.r.answersAt(f.Targets)
	}
	s, _ = s.fit(use)
	s.apply(&f)
	for _, target := range f.Targets {
		if target.Set == "" {
			continue
		}
		if service := b.r.service(setNodeOf(target.Set).name()); service != nil {
			f.Drained = append(f.Drained, service.drained...)
		}
	}
	slices.SortFunc(f.Drained, netip.Addr.Compare)
	f.Drained = slices.Compact(f.Drained)
	b.made[f.FrontendKey] = &f
}

// proxies makes the frontends of a listener, if it is there.
func (b *frontendBuilder) proxies(id model.ListenerID) {
	b.r.t.graph.read(b.r.by, listenerNode(id))
	l := b.r.t.result.Listeners[id]
	if l == nil {
		return
	}
	var anchors []policyAnchor
	if gateway, own := gatewayOfListener(id); own {
		var held []heldPolicy
		of := map[heldPolicy]policyAnchor{}
		if f := b.r.gateway(gateway); f != nil {
			for i := range f.listeners {
				g := &f.listeners[i]
				if !g.serves() || g.direct() || g.port != int32(l.Port) {
					continue
				}
				anchor := balanceAnchor(gatewayOwner(gateway), g.name)
				if p := b.r.holder(anchor); !p.none() && !slices.Contains(held, p) {
					held, of[p] = append(held, p), anchor
				}
			}
		}
		sortHeld(held)
		for _, p := range held {
			anchors = append(anchors, of[p])
		}
		anchors = append(anchors, balanceAnchor(gatewayOwner(gateway), ""))
	}
	b.add(model.Frontend{Listener: id}, model.TCP, l.Port, anchors)
	if l.HTTP3() {
		b.add(model.Frontend{Listener: id}, model.UDP, l.Port, anchors)
	}
}

// service makes the frontends of a Service of our class.
func (b *frontendBuilder) service(n snapshot.Name) {
	f := b.r.balanced(n)
	if f == nil || f.problem != "" {
		return
	}
	for _, p := range f.ports {
		b.add(model.Frontend{
			Owner: serviceOwner(n), Targets: []model.Target{{Set: setOf(n, p.number, p.transport), Weight: 1}}, Affinity: f.affinity, Sources: f.sources, LocalOnly: f.localOnly,
		}, p.transport, uint16(p.number), serviceAnchors(n, p.name))
	}
}

// door makes the frontend of a TCP or UDP listener. Without a route it leads nowhere.
func (b *frontendBuilder) door(gateway snapshot.Name, d gatewayDoor) {
	var f model.Frontend
	anchors, won := b.r.doorAnchors(gateway, d)
	if won != nil {
		f.Targets = won.targets
	}
	b.add(f, d.transport, d.port, anchors)
}

// needVIP says why a TCP or UDP listener is not served at the machines' own addresses.
const needVIP = "TCP and UDP listeners need an address of their own: make an AddressPool that gives the Gateway one"

// frontendsOf are the frontends of a door at all addresses of its Gateway, sorted; without
// an address the hold says why.
func (r reader) frontendsOf(d doorKey) (keys []model.FrontendKey, hold *Hold) {
	out := r.outcome(gatewayOwner(d.gateway))
	if out == nil {
		return nil, &Hold{Reason: gatewayv1.GatewayReasonAddressNotAssigned, Message: needVIP}
	}
	for _, a := range out.addresses {
		r.t.graph.read(r.by, frontendsNode(a))
		k := model.FrontendKey{VIP: a, Transport: d.transport, Port: d.port}
		if f := r.t.result.Frontends[k]; f != nil && f.Listener == "" && f.Owner == gatewayOwner(d.gateway) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		hold = out.hold
	}
	return keys, hold
}

// noteFrontends notes in a status the frontends of the listeners without a proxy of a
// Gateway or ListenerSet, and which of them have none.
func (s *Status) noteFrontends(r reader, f *parentFact, listeners []gatewayListener) {
	if f.refused != "" {
		return
	}
	for i := range listeners {
		l := &listeners[i]
		if !l.serves() || !l.direct() {
			continue
		}
		if !f.own {
			if s.Unserved == nil {
				s.Unserved = map[gatewayv1.SectionName]string{}
			}
			s.Unserved[l.name] = needVIP
			continue
		}
		keys, _ := r.frontendsOf(doorKey{f.gateway, l.transport(), uint16(l.port)})
		if len(keys) == 0 {
			continue
		}
		if s.SectionFrontends == nil {
			s.SectionFrontends = map[gatewayv1.SectionName][]model.FrontendKey{}
		}
		s.SectionFrontends[l.name] = keys
		s.Frontends = append(s.Frontends, keys...)
	}
	slices.SortFunc(s.Frontends, model.FrontendKey.Compare)
}

// computeServiceStatus shows the addresses of a Service that is ours. That it is served is
// not this package's to say: it needs to know what machines balance.
func (t *Translator) computeServiceStatus(r reader, n node) {
	o := r.s.Services[n.name()]
	object := serviceOwner(n.name())
	if !isOurs(o) {
		publish(t.result.Statuses, t.out.Statuses, object, nil)
		return
	}
	f := r.balanced(n.name())
	out := r.outcome(object)
	status := &Status{Generation: o.Generation, Service: &corev1.ServiceStatus{LoadBalancer: ingressStatus(out)}}
	var served verdict[string]
	if out != nil && out.hold != nil {
		status.Hold = out.hold
		served.fail(string(out.hold.Reason), out.hold.Message)
	}
	if out != nil {
		for _, a := range out.addresses {
			t.graph.read(r.by, frontendsNode(a))
			if at := t.frontendsAt[a]; at != nil {
				status.Frontends = append(status.Frontends, slices.DeleteFunc(slices.Clone(at.keys), func(k model.FrontendKey) bool {
					return t.result.Frontends[k].Owner != object
				})...)
			}
		}
	}
	notes := slices.Concat(f.refused, f.notes)
	if fact := r.service(n.name()); fact != nil {
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
		taken := r.takenPorts(object, f, out.addresses)
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
	publish(t.result.Statuses, t.out.Statuses, object, status)
}

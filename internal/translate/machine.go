package translate

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// defaultDrain is how long connections may finish where a Machine does not say.
const defaultDrain = 30 * time.Second

func (t *Translator) computeMachine(r reader, n node) {
	o := r.s.Machines[snapshot.Name{Name: n.a}]
	var machine *model.Machine
	if o != nil {
		drain := defaultDrain
		if o.Spec.DrainTime != nil {
			drain = min(max(o.Spec.DrainTime.Duration, 0), time.Hour)
		}
		machine = &model.Machine{
			Name: o.Name, HostsOnly: o.Spec.Role == v1alpha1.RoleBackend, Views: t.viewsOf(o), Cordoned: o.Spec.Cordoned, DrainSeconds: uint32(drain / time.Second),
		}
		// Two speakers with one id cannot have sessions with one router (RFC 6286).
		if id := parseRouterID(o.Spec.RouterID); id.IsValid() && r.keeperOf(id) == o.Name {
			machine.RouterID = id
		}
		machine.Contested = r.contests(o.Name)
	}
	publish(t.result.Machines, t.out.Machines, n.a, machine)
	publish(t.result.Nodes, t.out.Nodes, n.a, makeNode(r, o))
}

// makeNode says where a machine takes in what comes through tunnels: of each family at the
// tunnel address that its spec says, else at the first that it reported, else at the first that its
// spec says; always one that it has.
func makeNode(r reader, o *v1alpha1.Machine) *model.Node {
	if o == nil {
		return nil
	}
	n := &model.Node{Name: o.Name}
	for _, text := range slices.Concat(o.Spec.TunnelAddresses, o.Status.Addresses, o.Spec.Addresses) {
		a, ok := machineAddress(text)
		if !ok || !r.holds(o.Name, a) {
			continue
		}
		if a.Is4() && !n.Tunnel4.IsValid() {
			n.Tunnel4 = a
		}
		if a.Is6() && !n.Tunnel6.IsValid() {
			n.Tunnel6 = a
		}
	}
	return n
}

// computeAddresses gathers where clients reach what all edges share: what agents reported and
// their machines have, of those that take new work and have it, sorted, each once.
func (t *Translator) computeAddresses(r reader, n node) {
	var found []netip.Addr
	for name := range t.index.machines {
		o := r.s.Machines[name]
		if o == nil || o.Spec.Cordoned || o.Spec.Role == v1alpha1.RoleBackend || !t.hasShared(o.Name) {
			continue
		}
		for _, c := range t.index.claims.of[o.Name] {
			if c.status && t.index.claims.holder(c.address) == o.Name {
				found = append(found, c.address)
			}
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	var addresses []string
	for _, a := range slices.Compact(found) {
		addresses = append(addresses, a.String())
	}
	if !slices.Equal(addresses, t.addresses) {
		t.addresses = addresses
		t.graph.changed(n)
	}
}

// computeListener makes the listener that somebody asks for.
func (t *Translator) computeListener(r reader, n node) {
	id := model.ListenerID(n.a)
	var listener *model.Listener
	if lost := t.settlePort(n, id); len(t.ports[id]) > 0 && !lost {
		listener = makeListenerOf(r, id)
	}
	var named []model.BackendGroup
	if listener != nil {
		listener.Clients, named = r.clients(id, listener.Protocol)
	}
	settleUses(t, t.policies.listeners, id, named)
	t.useListener(listener, 1)
	t.useListener(t.result.Listeners[id], -1)
	_, stood := t.result.Listeners[id]
	before := t.result.Listeners[id]
	publish(t.result.Listeners, t.out.Listeners, id, listener)
	if after := t.result.Listeners[id]; (before == nil) != (after == nil) || after != nil && (before.HTTP3() != after.HTTP3() || before.EscapedSlashes() != after.EscapedSlashes()) {
		t.graph.changed(n) // frontends follow it, and what routes say of their paths
	}
	if stood != (listener != nil) {
		t.markViewsOf(id)
	}
}

// makeListenerOf makes the listener of an ID. That of a Gateway with addresses of its own is
// at those; before there is one, there is no listener.
func makeListenerOf(r reader, id model.ListenerID) *model.Listener {
	l := &model.Listener{ID: id, Port: portOf(id), Protocol: protocolOf(id)}
	gateway, own := gatewayOfListener(id)
	if !own {
		return l
	}
	out, f := r.outcome(gatewayOwner(gateway)), r.gateway(gateway)
	if out == nil || f == nil || len(out.addresses) == 0 {
		return nil
	}
	l.Addresses = out.addresses
	if l.Protocol == model.ProtocolHTTPS {
		l.ClientValidation = f.validation(int32(l.Port))
	}
	return l
}

// gatewayOfListener is the Gateway whose own a listener is.
func gatewayOfListener(id model.ListenerID) (snapshot.Name, bool) {
	_, rest, own := strings.Cut(string(id), "_")
	namespace, name, _ := strings.Cut(rest, "_")
	return snapshot.Name{Namespace: namespace, Name: name}, own
}

// useListener counts what a listener names.
func (t *Translator) useListener(l *model.Listener, by int) {
	if l == nil || l.ClientValidation == nil {
		return
	}
	for _, id := range l.ClientValidation.Authorities {
		t.useAuthority(id, by)
	}
}

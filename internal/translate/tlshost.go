package translate

import (
	"reflect"
	"strings"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// tlsClaim is what one resource wants of TLS connections for a server name.
type tlsClaim struct {
	created int64
	// host has the claim's key and owner. Without certificates and without TCP connections
	// for the name are closed: a host whose certificate is missing or broken is claimed too,
	// or a wildcard's certificate would be shown for it.
	host    model.TLSHost
	groups  []model.BackendGroup // that host.TCP names
	gateway snapshot.Name        // of a listener's claim, whose that is
}

// tlsClaimant is who claims a server name: a Gateway or ListenerSet whose listener has it,
// or one of its routes.
type tlsClaimant struct {
	parent model.Object
	route  model.Object // zero for the listener itself
}

// tlsState is a server name at a listener in the making.
type tlsState struct {
	claims map[tlsClaimant]*tlsClaim
	// keeper is the oldest of those whose listeners have this very name.
	keeper *tlsClaim
	won    *tlsClaim
	parent model.Object // who has the name
	// created is how old the parent's claim is.
	created int64
	route   model.Object // whose connections they are; zero when no route's
}

func tlsNode(k model.HostKey) node {
	return node{kind: nodeTLSHost, a: string(k.Listener), b: k.Host}
}

// claimTLS sets what somebody wants of a server name, nil for nothing any more. Of several
// parents the oldest has it, and no other: a name has one certificate, so what others want to
// serve there is not served at all. Of several routes of that parent, the oldest has it. Ask
// reader.tlsOwner who has it.
//
// Nodes below nodeTLSHost's layer may call it, each for claims that are its own. Root
// IngressRoutes do not: they claim a name with the virtual host (claim.tls), since whether they
// have it depends on the routes that claim the host too.
func (t *Translator) claimTLS(k model.HostKey, by tlsClaimant, c *tlsClaim) {
	s := t.tlsHosts[k]
	if s == nil {
		if c == nil {
			return
		}
		s = &tlsState{claims: map[tlsClaimant]*tlsClaim{}}
		t.tlsHosts[k] = s
	}
	if c == nil {
		delete(s.claims, by)
	} else {
		s.claims[by] = c
	}
	if by.route == (model.Object{}) {
		t.keepName(k, s)
	}
	t.graph.mark(tlsNode(k))
}

// keepName finds whose listeners have a server name.
func (t *Translator) keepName(k model.HostKey, s *tlsState) {
	var first *tlsClaim
	for by, c := range s.claims {
		if by.route == (model.Object{}) && (first == nil || (&claim{owner: by.parent, created: c.created}).older(&claim{owner: first.host.Owner, created: first.created})) {
			first = c
		}
	}
	before := s.keeper
	s.keeper = first
	if before == nil || first == nil || before.gateway != first.gateway || before.host.Owner != first.host.Owner {
		t.graph.changed(serverNameNode(k))
	}
}

func serverNameNode(k model.HostKey) node {
	return node{kind: nodeServerName, a: string(k.Listener), b: k.Host}
}

// keeper is whose listener takes connections for a server name at a listener of the model: the one
// with the hostname that says most, of several the oldest. A route that some other Gateway takes in
// has no part in it, or it would take names from Gateways that never allowed it.
func (r reader) keeper(listener model.ListenerID, host string) *tlsClaim {
	for pattern, more := host, true; more; pattern, more = wider(pattern) {
		k := model.HostKey{Listener: listener, Host: pattern}
		r.t.graph.read(r.by, serverNameNode(k))
		if s := r.t.tlsHosts[k]; s != nil && s.keeper != nil {
			return s.keeper
		}
	}
	return nil
}

// decide finds who has the name. What stands for a parent is the age of its listener, or
// where that has another name, of its oldest route.
func (s *tlsState) decide() (by tlsClaimant, won *tlsClaim, created int64) {
	first := map[model.Object]int64{}
	for b, c := range s.claims {
		if _, listener := s.claims[tlsClaimant{parent: b.parent}]; listener && b.route != (model.Object{}) {
			continue
		}
		if old, known := first[b.parent]; !known || c.created < old {
			first[b.parent] = c.created
		}
	}
	var best *claim
	for parent, created := range first {
		if c := (&claim{owner: parent, created: created}); best == nil || c.older(best) {
			best = c
		}
	}
	if best == nil {
		return by, nil, 0
	}
	by.parent = best.owner
	won = s.claims[by]
	for b, c := range s.claims {
		if b.parent != best.owner || b.route == (model.Object{}) {
			continue
		}
		mine := claim{owner: b.route, created: c.created}
		if by.route == (model.Object{}) || mine.older(&claim{owner: by.route, created: won.created}) {
			by, won = b, c
		}
	}
	return by, won, best.created
}

// computeTLSHost decides who has a server name.
func (t *Translator) computeTLSHost(n node) {
	k := model.HostKey{Listener: model.ListenerID(n.a), Host: n.b}
	s := t.tlsHosts[k]
	if s == nil {
		return
	}
	by, won, created := s.decide()
	changed := by.parent != s.parent || by.route != s.route || created != s.created
	s.parent, s.route, s.created, s.won = by.parent, by.route, created, won
	if won == nil {
		delete(t.tlsHosts, k)
	}
	if changed {
		t.graph.changed(n)
	}
	t.graph.mark(tlsServedNode(k))
}

func tlsServedNode(k model.HostKey) node {
	return node{kind: nodeTLSServed, a: string(k.Listener), b: k.Host}
}

// computeTLSServed publishes what becomes of a server name: what the root IngressRoute wants
// that has the virtual host, else what the oldest of the others wants.
func (t *Translator) computeTLSServed(n node) {
	k := model.HostKey{Listener: model.ListenerID(n.a), Host: n.b}
	var won *tlsClaim
	if s := t.tlsHosts[k]; s != nil {
		won = s.won
	}
	if h := t.hosts[k]; h != nil {
		if c := h.tls(); c != nil {
			won = c
		}
	}
	before := t.tlsServed[k]
	if before == won || before != nil && won != nil && reflect.DeepEqual(before, won) {
		return
	}
	t.useTLSClaim(won, 1)
	t.useTLSClaim(before, -1)
	var host *model.TLSHost
	if won != nil {
		host = &won.host
		t.tlsServed[k] = won
	} else {
		delete(t.tlsServed, k)
	}
	publish(t.result.TLSHosts, t.out.TLSHosts, k, host)
}

func (t *Translator) useTLSClaim(c *tlsClaim, by int) {
	if c == nil {
		return
	}
	for _, id := range c.host.Certificates {
		t.useCertificate(id, by)
	}
	t.useGroups(c.groups, by)
}

// tlsOwner returns which of those that call claimTLS has a server name at a listener, exactly
// as written: a name, a wildcard or "*".
func (r reader) tlsOwner(k model.HostKey) (owner model.Object, found bool) {
	r.t.graph.read(r.by, tlsNode(k))
	if s := r.t.tlsHosts[k]; s != nil && s.won != nil {
		return s.parent, true
	}
	return model.Object{}, false
}

// tlsRoute returns which route has the connections for a server name, and through which
// Gateway or ListenerSet.
func (r reader) tlsRoute(k model.HostKey) tlsClaimant {
	r.t.graph.read(r.by, tlsNode(k))
	if s := r.t.tlsHosts[k]; s != nil && s.won != nil {
		return tlsClaimant{s.parent, s.route}
	}
	return tlsClaimant{}
}

// section returns the pattern of server names under which clients ask for a host at a
// listener, the most specific one, and who has it. Only that one serves the host, unless a
// root IngressRoute has it.
func (r reader) section(listener model.ListenerID, host string) (pattern string, owner model.Object, found bool) {
	for pattern, more := host, true; more; pattern, more = wider(pattern) {
		if owner, found := r.tlsOwner(model.HostKey{Listener: listener, Host: pattern}); found {
			return pattern, owner, true
		}
	}
	return "", model.Object{}, false
}

// isTLS reports whether clients speak TLS at a listener.
func isTLS(id model.ListenerID) bool {
	return strings.HasPrefix(string(id), "https-")
}

// wider is the next pattern that covers all that a pattern does, in order of how much
// they say: "www.example.com", "*.example.com", "*.com", "*".
func wider(pattern string) (string, bool) {
	if pattern == anyHost {
		return "", false
	}
	_, suffix, more := strings.Cut(strings.TrimPrefix(pattern, "*."), ".")
	if !more {
		return anyHost, true
	}
	return "*." + suffix, true
}

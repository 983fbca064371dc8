package translate

import (
	"strings"

	"fairlead.dev/internal/memo"
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

// A name has one certificate. Of several parents that want one the oldest has it, and no other: what others want to
// serve there is not served at all. Of several routes of that parent, the oldest has it. Root IngressRoutes have a
// name with the virtual host alone, since whether they have that depends on the routes that claim it too.

// nameKeeper is whose listeners have a server name.
type nameKeeper struct {
	gateway snapshot.Name
	owner   model.Object
	host    string
}

// keepName finds the oldest of those whose listeners have this very name.
func (t *hostTables) keepName(c *memo.Context, k model.HostKey) (*nameKeeper, bool) {
	var first *claim
	keeper := &nameKeeper{host: k.Host}
	for parent, wants := range t.names.Get(c, k).All() {
		if mine := (&claim{owner: parent, created: wants.created}); first == nil || mine.older(first) {
			first, keeper.gateway, keeper.owner = mine, wants.gateway, parent
		}
	}
	return keeper, first != nil
}

// keeper is whose listener takes connections for a server name at a listener of the model: the one
// with the hostname that says most, of several the oldest. A route that some other Gateway takes in
// has no part in it, or it would take names from Gateways that never allowed it.
func (t *hostTables) keeper(c *memo.Context, listener model.ListenerID, host string) *nameKeeper {
	for pattern, more := host, true; more; pattern, more = wider(pattern) {
		if keeper, found := t.keepers.Find(c, model.HostKey{Listener: listener, Host: pattern}); found {
			return keeper
		}
	}
	return nil
}

// nameOwner is who has a server name.
type nameOwner struct {
	parent  model.Object
	route   model.Object // whose connections they are; zero when no route's
	created int64        // how old the parent's claim is
}

// nameDecision is who has a server name, and what they want of it.
type nameDecision struct {
	nameOwner
	won *tlsClaim
}

// decideName finds who has a server name. What stands for a parent is the age of its listener, or
// where that has another name, of its oldest route.
func (t *hostTables) decideName(c *memo.Context, k model.HostKey) (*nameDecision, bool) {
	listeners, routes := t.names.Get(c, k), t.routeNames.Get(c, k)
	first := map[model.Object]int64{}
	for parent, wants := range listeners.All() {
		first[parent] = wants.created
	}
	for by, wants := range routes.All() {
		if _, listener := listeners.Get(by.parent); listener {
			continue
		}
		if old, known := first[by.parent]; !known || wants.created < old {
			first[by.parent] = wants.created
		}
	}
	var best *claim
	for parent, created := range first {
		if mine := (&claim{owner: parent, created: created}); best == nil || mine.older(best) {
			best = mine
		}
	}
	if best == nil {
		return nil, false
	}
	d := &nameDecision{nameOwner: nameOwner{parent: best.owner, created: best.created}}
	d.won, _ = listeners.Get(best.owner)
	for by, wants := range routes.All() {
		if by.parent != best.owner {
			continue
		}
		mine := claim{owner: by.route, created: wants.created}
		if d.route == (model.Object{}) || mine.older(&claim{owner: d.route, created: d.won.created}) {
			d.route, d.won = by.route, wants
		}
	}
	return d, true
}

// makeTLSHost says what becomes of a server name: what the root IngressRoute wants
// that has the virtual host, else what the oldest of the others wants.
func (t *hostTables) makeTLSHost(c *memo.Context, k model.HostKey) (*model.TLSHost, bool) {
	var won *tlsClaim
	if d := t.decisions.Get(c, k); d != nil {
		won = d.won
	}
	for _, root := range t.rootNames.Get(c, k).All() {
		if t.owners.Get(c, k).kind == snapshot.KindIngressRoute {
			won = root
		}
	}
	if won == nil {
		return nil, false
	}
	by := user{kind: "server name", host: k}
	for _, id := range won.host.Certificates {
		t.tls.certificateUses.Put(c, id, by, struct{}{})
	}
	t.backend.useGroups(c, won.groups, by)
	return &won.host, true
}

// section returns the pattern of server names under which clients ask for a host at a
// listener, the most specific one, and who has it. Only that one serves the host, unless a
// root IngressRoute has it.
func (t *hostTables) section(c *memo.Context, listener model.ListenerID, host string) (pattern string, owner model.Object, found bool) {
	for pattern, more := host, true; more; pattern, more = wider(pattern) {
		if n, found := t.nameOwners.Find(c, model.HostKey{Listener: listener, Host: pattern}); found {
			return pattern, n.parent, true
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

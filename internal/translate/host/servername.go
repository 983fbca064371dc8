package host

import (
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/field"
)

// NameCandidate is what one resource wants of TLS connections for a server name.
type NameCandidate struct {
	Created int64
	// Host has the claim's key and owner. Without certificates and without TCP connections
	// for the name are closed: a host whose certificate is missing or broken is claimed too,
	// or a wildcard's certificate would be shown for it.
	Host    model.TLSHost
	Groups  []model.BackendGroup // that host.TCP names
	Gateway snapshot.Name        // of a listener's claim, whose that is
}

// NameContender is who claims a server name: a Gateway or ListenerSet whose listener has it,
// or one of its routes.
type NameContender struct {
	Parent model.Object
	Route  model.Object // zero for the listener itself
}

// A name has one certificate. Of several parents that want one the oldest has it, and no other: what others want to
// serve there is not served at all. Of several routes of that parent, the oldest has it. Root IngressRoutes have a
// name with the virtual host alone, since whether they have that depends on the routes that claim it too.

// NameKeeper is whose listeners have a server name.
type NameKeeper struct {
	Gateway snapshot.Name
	Owner   model.Object
	Host    string
}

// keepName finds the oldest of those whose listeners have this very name.
func (t *Tables) keepName(c *memo.Context, k model.HostKey) (*NameKeeper, bool) {
	var first *Candidate
	keeper := &NameKeeper{Host: k.Host}
	for parent, wants := range t.Names.Get(c, k).All() {
		if mine := (&Candidate{Owner: parent, Created: wants.Created}); first == nil || mine.Older(first) {
			first, keeper.Gateway, keeper.Owner = mine, wants.Gateway, parent
		}
	}
	return keeper, first != nil
}

// Keeper is whose listener takes connections for a server name at a listener of the model: the one
// with the hostname that says most, of several the oldest. A route that some other Gateway takes in
// has no part in it, or it would take names from Gateways that never allowed it.
func (t *Tables) Keeper(c *memo.Context, listener model.ListenerID, host string) *NameKeeper {
	for pattern, more := host, true; more; pattern, more = field.Wider(pattern) {
		if keeper, found := t.Keepers.Find(c, model.HostKey{Listener: listener, Host: pattern}); found {
			return keeper
		}
	}
	return nil
}

// nameOwner is who has a server name.
type nameOwner struct {
	Parent  model.Object
	Route   model.Object // whose connections they are; zero when no route's
	created int64        // how old the parent's claim is
}

// nameDecision is who has a server name, and what they want of it.
type nameDecision struct {
	nameOwner
	won *NameCandidate
}

// decideName finds who has a server name. What stands for a parent is the age of its listener, or
// where that has another name, of its oldest route.
func (t *Tables) decideName(c *memo.Context, k model.HostKey) (*nameDecision, bool) {
	listeners, routes := t.Names.Get(c, k), t.RouteNames.Get(c, k)
	first := map[model.Object]int64{}
	for parent, wants := range listeners.All() {
		first[parent] = wants.Created
	}
	for by, wants := range routes.All() {
		if _, listener := listeners.Get(by.Parent); listener {
			continue
		}
		if old, known := first[by.Parent]; !known || wants.Created < old {
			first[by.Parent] = wants.Created
		}
	}
	var best *Candidate
	for parent, created := range first {
		if mine := (&Candidate{Owner: parent, Created: created}); best == nil || mine.Older(best) {
			best = mine
		}
	}
	if best == nil {
		return nil, false
	}
	d := &nameDecision{nameOwner: nameOwner{Parent: best.Owner, created: best.Created}}
	d.won, _ = listeners.Get(best.Owner)
	for by, wants := range routes.All() {
		if by.Parent != best.Owner {
			continue
		}
		mine := Candidate{Owner: by.Route, Created: wants.Created}
		if d.Route == (model.Object{}) || mine.Older(&Candidate{Owner: d.Route, Created: d.won.Created}) {
			d.Route, d.won = by.Route, wants
		}
	}
	return d, true
}

// makeTLSHost says what becomes of a server name: what the root IngressRoute wants
// that has the virtual host, else what the oldest of the others wants.
func (t *Tables) makeTLSHost(c *memo.Context, k model.HostKey) (*model.TLSHost, bool) {
	var won *NameCandidate
	if d := t.decisions.Get(c, k); d != nil {
		won = d.won
	}
	for _, root := range t.RootNames.Get(c, k).All() {
		if t.Owners.Get(c, k).Kind == snapshot.KindIngressRoute {
			won = root
		}
	}
	if won == nil {
		return nil, false
	}
	by := certificate.User{Kind: "server name", Host: k}
	for _, id := range won.Host.Certificates {
		t.from.Certificates.CertificateUses.Put(c, id, by, struct{}{})
	}
	t.from.Backend.UseGroups(c, won.Groups, by)
	return &won.Host, true
}

// Section returns the pattern of server names under which clients ask for a host at a
// listener, the most specific one, and who has it. Only that one serves the host, unless a
// root IngressRoute has it.
func (t *Tables) Section(c *memo.Context, listener model.ListenerID, host string) (pattern string, owner model.Object, found bool) {
	for pattern, more := host, true; more; pattern, more = field.Wider(pattern) {
		if n, found := t.NameOwners.Find(c, model.HostKey{Listener: listener, Host: pattern}); found {
			return pattern, n.Parent, true
		}
	}
	return "", model.Object{}, false
}

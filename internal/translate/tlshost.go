package translate

import (
	"reflect"
	"strings"

	"fairlead.dev/internal/model"
)

// tlsClaim is what one resource wants of TLS connections for a server name.
type tlsClaim struct {
	created int64
	// host has the claim's key and owner. Without certificates and without TCP connections
	// for the name are closed: a host whose certificate is missing or broken is claimed too,
	// or a wildcard's certificate would be shown for it.
	host   model.TLSHost
	groups []model.BackendGroup // that host.TCP names
}

// tlsState is a server name at a listener in the making.
type tlsState struct {
	claims map[model.Object]*tlsClaim
	won    *tlsClaim // the oldest
}

func tlsNode(k model.HostKey) node {
	return node{kind: nodeTLSHost, a: string(k.Listener), b: k.Host}
}

// claimTLS sets what an owner wants of a server name, nil for nothing any more. Of several
// owners the oldest has it, and no other: a name has one certificate, so what others want to
// serve there is not served at all. Ask reader.tlsOwner who has it.
//
// Nodes below nodeTLSHost's layer may call it, each for owners that are its own. Root
// IngressRoutes do not: they claim a name with the virtual host (claim.tls), since whether they
// have it depends on the routes that claim the host too.
func (t *Translator) claimTLS(k model.HostKey, owner model.Object, c *tlsClaim) {
	s := t.tlsHosts[k]
	if s == nil {
		if c == nil {
			return
		}
		s = &tlsState{claims: map[model.Object]*tlsClaim{}}
		t.tlsHosts[k] = s
	}
	if c == nil {
		delete(s.claims, owner)
	} else {
		s.claims[owner] = c
	}
	t.graph.mark(tlsNode(k))
}

// computeTLSHost decides who has a server name.
func (t *Translator) computeTLSHost(n node) {
	k := model.HostKey{Listener: model.ListenerID(n.a), Host: n.b}
	s := t.tlsHosts[k]
	if s == nil {
		return
	}
	var won *tlsClaim
	for owner, c := range s.claims {
		mine := claim{owner: owner, created: c.created}
		if won == nil || mine.older(&claim{owner: won.host.Owner, created: won.created}) {
			won = c
		}
	}
	before := s.won
	if s.won = won; won == nil {
		delete(t.tlsHosts, k)
	}
	if (before == nil) != (won == nil) || won != nil && (before.host.Owner != won.host.Owner || before.created != won.created) {
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
		return s.won.host.Owner, true
	}
	return model.Object{}, false
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

package catalog

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// secretSource is what one Secret is made of: a certificate, or authorities.
type secretSource struct {
	name        string
	certificate model.CertificateID
	authorities []model.AuthorityID
}

func certificateSource(id model.CertificateID) secretSource {
	return secretSource{name: xds.SecretName(id), certificate: id}
}

func authoritySource(ids []model.AuthorityID) secretSource {
	return secretSource{name: xds.AuthorityName(ids...), authorities: ids}
}

func (s secretSource) equal(o secretSource) bool {
	return s.name == o.name && s.certificate == o.certificate && slices.Equal(s.authorities, o.authorities)
}

// secretEntry is one Secret and who needs it. A view holds the Secrets that its listeners
// and its groups need, and no other: a machine reads no key that it does not serve with.
type secretEntry struct {
	source    secretSource
	listeners map[model.ListenerID]int // how many hosts of the listener need it
	groups    map[model.GroupID]bool
}

func (e *secretEntry) heldBy(v *viewEntry) bool {
	for l := range e.listeners {
		if v.listeners[l] {
			return true
		}
	}
	for g := range e.groups {
		if v.groups[g] > 0 {
			return true
		}
	}
	return false
}

// secrets is the part of the catalog that TLS needs.
type secrets struct {
	certificates map[model.CertificateID]*model.Certificate
	authorities  map[model.AuthorityID]*model.Authority
	entries      map[string]*secretEntry
	// ofCertificate and ofAuthority are the names of the Secrets made of them.
	ofCertificate map[model.CertificateID]map[string]bool
	ofAuthority   map[model.AuthorityID]map[string]bool
	// demanded are the hosts whose certificate Envoy asks for by name, with the listeners
	// that have them. Envoy does not say for which listener it asks.
	demanded map[string]map[model.ListenerID]bool
	idle     map[string]bool // entries that nobody may need any more
}

func newSecrets() secrets {
	return secrets{
		certificates: map[model.CertificateID]*model.Certificate{}, authorities: map[model.AuthorityID]*model.Authority{},
		entries:       map[string]*secretEntry{},
		ofCertificate: map[model.CertificateID]map[string]bool{}, ofAuthority: map[model.AuthorityID]map[string]bool{},
		demanded: map[string]map[model.ListenerID]bool{}, idle: map[string]bool{},
	}
}

// touchSecret marks a Secret at every view that has it.
func (c *Catalog) touchSecret(t touched, name string) {
	e := c.secrets.entries[name]
	for v, view := range c.views {
		if e != nil && e.heldBy(view) {
			t.add(v, SecretKey(name))
		}
	}
}

// setCertificate replaces a certificate: the Secrets made of it, and nothing else.
func (c *Catalog) setCertificate(id model.CertificateID, cert *model.Certificate, t touched) {
	if cert == nil {
		delete(c.secrets.certificates, id)
	} else {
		c.secrets.certificates[id] = cert
	}
	for name := range c.secrets.ofCertificate[id] {
		c.touchSecret(t, name)
	}
}

func (c *Catalog) setAuthority(id model.AuthorityID, a *model.Authority, t touched) {
	if a == nil {
		delete(c.secrets.authorities, id)
	} else {
		c.secrets.authorities[id] = a
	}
	for name := range c.secrets.ofAuthority[id] {
		c.touchSecret(t, name)
	}
}

// entry is the Secret of a source, which it has from now on.
func (c *Catalog) entry(t touched, source secretSource) *secretEntry {
	s := &c.secrets
	e := s.entries[source.name]
	if e == nil {
		e = &secretEntry{listeners: map[model.ListenerID]int{}, groups: map[model.GroupID]bool{}}
		s.entries[source.name] = e
	}
	if e.source.equal(source) {
		return e
	}
	c.unindex(e)
	e.source = source
	if source.certificate != "" {
		addName(s.ofCertificate, source.certificate, source.name)
	}
	for _, a := range source.authorities {
		addName(s.ofAuthority, a, source.name)
	}
	c.touchSecret(t, source.name)
	return e
}

func (c *Catalog) unindex(e *secretEntry) {
	dropName(c.secrets.ofCertificate, e.source.certificate, e.source.name)
	for _, a := range e.source.authorities {
		dropName(c.secrets.ofAuthority, a, e.source.name)
	}
}

func addName[K comparable](m map[K]map[string]bool, k K, name string) {
	if m[k] == nil {
		m[k] = map[string]bool{}
	}
	m[k][name] = true
}

func dropName[K comparable](m map[K]map[string]bool, k K, name string) {
	delete(m[k], name)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}

// needSecrets replaces the Secrets that a listener needs for a host, or with an empty host for
// itself.
func (c *Catalog) needSecrets(t touched, id model.ListenerID, host string, sources []secretSource) {
	s := c.listenerEntry(id)
	before := s.secrets[host]
	names := make([]string, 0, len(sources))
	for _, source := range sources {
		if slices.Contains(names, source.name) {
			continue
		}
		names = append(names, source.name)
		e := c.entry(t, source)
		e.listeners[id]++
		if e.listeners[id] == 1 {
			c.touchAt(t, id, SecretKey(source.name))
		}
	}
	if len(names) == 0 {
		delete(s.secrets, host)
	} else {
		s.secrets[host] = names
	}
	for _, name := range before {
		e := c.secrets.entries[name]
		if e.listeners[id]--; e.listeners[id] > 0 {
			continue
		}
		delete(e.listeners, id)
		c.secrets.idle[name] = true
		c.touchAt(t, id, SecretKey(name))
	}
}

// setGroupSecrets says which Secrets a group's connections need.
func (c *Catalog) setGroupSecrets(t touched, id model.GroupID, e *groupEntry) {
	before := e.secrets
	e.secrets = nil
	var sources []secretSource
	if e.group != nil && e.group.TLS != nil {
		if cert := e.group.TLS.Certificate; cert != "" {
			sources = append(sources, certificateSource(cert))
		}
		if len(e.group.TLS.Authorities) > 0 {
			sources = append(sources, authoritySource(e.group.TLS.Authorities))
		}
	}
	for _, source := range sources {
		c.entry(t, source).groups[id] = true
		e.secrets = append(e.secrets, source.name)
	}
	for _, name := range before {
		if !slices.Contains(e.secrets, name) {
			delete(c.secrets.entries[name].groups, id)
			c.secrets.idle[name] = true
		}
	}
	for v, view := range c.views {
		if view.groups[id] > 0 {
			for _, name := range slices.Concat(before, e.secrets) {
				t.add(v, SecretKey(name))
			}
		}
	}
}

// setTLSHost replaces what becomes of a server name at a listener.
func (c *Catalog) setTLSHost(k model.HostKey, h *model.TLSHost, t touched) {
	s := c.listenerEntry(k.Listener)
	old := s.tls[k.Host]
	concerned := map[model.ListenerID]bool{k.Listener: true}
	for l := range c.secrets.demanded[k.Host] {
		concerned[l] = true
	}
	apart := map[model.ListenerID]bool{}
	for l := range concerned {
		apart[l] = c.apart(l, k.Host)
	}
	if h == nil {
		delete(s.tls, k.Host)
	} else {
		s.tls[k.Host] = h
	}
	s.wild += presence(h != nil && isWildcard(h.Host)) - presence(old != nil && isWildcard(old.Host))
	if demanded := c.secrets.demanded; h != nil && xds.OnDemand(*h) {
		if demanded[k.Host] == nil {
			demanded[k.Host] = map[model.ListenerID]bool{}
		}
		demanded[k.Host][k.Listener] = true
	} else if delete(demanded[k.Host], k.Listener); len(demanded[k.Host]) == 0 {
		delete(demanded, k.Host)
	}
	c.countUses(t, k, tlsGroups(old), tlsGroups(h))
	for l := range concerned {
		c.updateTLSHost(t, l, k.Host, l == k.Listener && !bothPlain(old, h), apart[l])
	}
}

// bothPlain says that a listener is the same with both forms of a host, unless a wildcard
// covers it.
func bothPlain(a, b *model.TLSHost) bool {
	return (a == nil || xds.Plain(*a)) && (b == nil || xds.Plain(*b))
}

// updateTLSHost replaces the Secrets that a host needs at a listener, and marks the listener if its
// resource says something else of the host than before.
func (c *Catalog) updateTLSHost(t touched, id model.ListenerID, host string, changed, wasApart bool) {
	s := c.listenerEntry(id)
	apart := c.apart(id, host)
	h := s.tls[host]
	if h == nil {
		delete(s.special, host)
		c.needSecrets(t, id, host, nil)
	} else {
		if apart || !xds.Plain(*h) {
			s.special[host] = true
		} else {
			delete(s.special, host)
		}
		c.needSecrets(t, id, host, c.tlsSources(s, *h, apart))
	}
	quic := s.listener != nil && xds.HTTP3(*s.listener)
	if changed || apart != wasApart || s.wild > 0 || quic {
		c.touchAt(t, id, ListenerKey(id))
	}
	if quic {
		c.touchAt(t, id, quicKey(id))
	}
}

// apart says that a host's certificate cannot be asked for by name at a listener, because
// the listener with the smallest ID has another for the same name.
func (c *Catalog) apart(id model.ListenerID, host string) bool {
	listeners := c.secrets.demanded[host]
	if !listeners[id] {
		return false
	}
	first := slices.Min(slices.Collect(maps.Keys(listeners)))
	return first != id && c.listeners[first].tls[host].Certificates[0] != c.listeners[id].tls[host].Certificates[0]
}

// tlsSources are the Secrets that a listener needs for a host.
func (c *Catalog) tlsSources(s *listenerEntry, h model.TLSHost, apart bool) []secretSource {
	var sources []secretSource
	demanded := xds.OnDemand(h) && !apart
	if demanded {
		sources = append(sources, secretSource{name: xds.HostSecretName(h.Host), certificate: h.Certificates[0]})
	}
	if !demanded || s.listener != nil && xds.HTTP3(*s.listener) {
		for _, id := range h.Certificates {
			sources = append(sources, certificateSource(id))
		}
	}
	return sources
}

// setListener replaces a listener. One that begins or ends to serve HTTP/3 needs other
// Secrets for its hosts.
func (c *Catalog) setListener(id model.ListenerID, l *model.Listener, t touched) {
	s := c.listenerEntry(id)
	old := s.listener
	s.listener = l
	wasQUIC, quic := old != nil && xds.HTTP3(*old), l != nil && xds.HTTP3(*l)
	for v, view := range c.views {
		if view.listeners[id] {
			c.touchListener(t, v, id, (old == nil) != (l == nil))
			if wasQUIC || quic {
				t.add(v, quicKey(id))
			}
		}
	}
	var own []secretSource
	if l != nil && l.ClientValidation != nil {
		own = append(own, authoritySource(l.ClientValidation.Authorities))
	}
	c.needSecrets(t, id, "", own)
	if wasQUIC != quic {
		for host := range s.tls {
			c.updateTLSHost(t, id, host, false, c.apart(id, host))
		}
	}
	c.countUses(t, model.HostKey{Listener: id}, listenerGroups(old), listenerGroups(l))
}

// tlsHosts are the hosts that a listener must be told of.
func (c *Catalog) tlsHosts(id model.ListenerID, s *listenerEntry) []xds.TLSHost {
	names := maps.Keys(s.special)
	if s.wild > 0 || s.listener != nil && xds.HTTP3(*s.listener) {
		names = maps.Keys(s.tls)
	}
	var hosts []xds.TLSHost
	for host := range names {
		hosts = append(hosts, xds.TLSHost{TLSHost: *s.tls[host], Apart: c.apart(id, host)})
	}
	slices.SortFunc(hosts, func(a, b xds.TLSHost) int { return cmp.Compare(a.Host, b.Host) })
	return hosts
}

// secretMessage makes a Secret; nil says that what it is made of is not there.
func (c *Catalog) secretMessage(name string) proto.Message {
	e := c.secrets.entries[name]
	if e == nil {
		return nil
	}
	if e.source.certificate != "" {
		cert := c.secrets.certificates[e.source.certificate]
		if cert == nil {
			return nil
		}
		return xds.Secret(name, *cert)
	}
	var authorities []model.Authority
	for _, id := range e.source.authorities {
		a := c.secrets.authorities[id]
		if a == nil {
			return nil // nobody is verified by less than what was said
		}
		authorities = append(authorities, *a)
	}
	return xds.AuthoritySecret(name, authorities...)
}

// sweepSecrets drops Secrets that nobody needs.
func (c *Catalog) sweepSecrets() {
	for name := range c.secrets.idle {
		if e := c.secrets.entries[name]; e != nil && len(e.listeners)+len(e.groups) == 0 {
			c.unindex(e)
			delete(c.secrets.entries, name)
		}
	}
	clear(c.secrets.idle)
}

// HostsWith are the hosts that show a Secret: none where a machine has made up its name.
func (c *Catalog) HostsWith(secret string) iter.Seq[model.HostKey] {
	return func(yield func(model.HostKey) bool) {
		e := c.secrets.entries[secret]
		if e == nil {
			return
		}
		for id := range e.listeners {
			s := c.listeners[id]
			if s == nil {
				continue
			}
			for host, names := range s.secrets {
				if slices.Contains(names, secret) && !yield(model.HostKey{Listener: id, Host: host}) {
					return
				}
			}
		}
	}
}

// SecretsOf names the Secrets with which a host is served.
func (c *Catalog) SecretsOf(k model.HostKey) []string {
	if s := c.listeners[k.Listener]; s != nil && k.Host != "" {
		return s.secrets[k.Host]
	}
	return nil
}

func isWildcard(host string) bool { return host != "" && host[0] == '*' }

package catalog

import (
	"cmp"
	"maps"
	"net/netip"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/xds"
)

// Config is what a catalog is made with.
type Config struct {
	XDS    xds.Options
	Health *health.Checks // required; the catalog tells it the backends of groups
	// Last is a resource as some view has it, for views that are new; nil: none is known.
	Last func(t delta.Type, name string) (delta.Resource, bool)
	// Limit is how large one resource may be, bytes; 0 is 16 MiB.
	Limit int
}

// Catalog turns what a translation changed into what the views' streams carry. It
// remembers the model by listener, so that one changed host rebuilds one
// RouteConfiguration and a changed backend set one load assignment.
type Catalog struct {
	options xds.Options
	health  *health.Checks
	last    func(t delta.Type, name string) (delta.Resource, bool)
	limit   int
	// unfit are the wanted resources that cannot be sent, and why. Views go on with
	// the last good version, those that have none without.
	unfit     map[Key]string
	listeners map[model.ListenerID]*listenerEntry
	groups    map[model.GroupID]*groupEntry
	sets      map[model.SetID]*setEntry
	views     map[model.ViewID]*viewEntry // combined ones
	secrets   secrets
}

// maxResource is the default limit of one encoded resource, bytes: agents take no
// response above four times that, and one such resource delays all that wait behind it.
const maxResource = 16 << 20

// New is a catalog without anything.
func New(c Config) *Catalog {
	return &Catalog{
		options:   c.XDS,
		health:    c.Health,
		last:      c.Last,
		limit:     cmp.Or(c.Limit, maxResource),
		unfit:     map[Key]string{},
		listeners: map[model.ListenerID]*listenerEntry{},
		groups:    map[model.GroupID]*groupEntry{},
		sets:      map[model.SetID]*setEntry{},
		views:     map[model.ViewID]*viewEntry{},
		secrets:   newSecrets(),
	}
}

// Apply applies the changes and returns, for each view concerned, the resources that
// may have changed, by type and name. A view that is gone gets the removal of all it
// had. Resources that cannot be sent are left out, and are in unfit.
func (c *Catalog) Apply(ch translate.Changes) map[model.ViewID][]delta.Change {
	t := touched{}
	checks := map[model.GroupID]bool{}
	for id, s := range ch.Sets {
		e := c.setEntry(id)
		e.set = s
		for g := range e.groups {
			checks[g] = true
			for v, view := range c.views {
				if view.groups[g] > 0 {
					t.add(v, endpointsKey(g, c.groups[g].endpoints))
				}
			}
		}
	}
	for id, g := range ch.Groups {
		c.setGroup(id, g, t)
		checks[id] = true
	}
	c.setChecks(checks)
	for id, cert := range ch.Certificates {
		c.setCertificate(id, cert, t)
	}
	for id, a := range ch.Authorities {
		c.setAuthority(id, a, t)
	}
	for id, l := range ch.Listeners {
		c.setListener(id, l, t)
	}
	for k, h := range ch.TLSHosts {
		c.setTLSHost(k, h, t)
	}
	for k, h := range ch.VirtualHosts {
		c.setHost(k, h, t)
	}
	for id, v := range ch.Views {
		c.setView(id, v, t)
	}
	out := c.build(t)
	c.sweep(ch)
	return out
}

// setChecks has the backends of groups checked. What is new comes before what is taken
// back: a group that another one replaces leaves it what is known of its backends.
func (c *Catalog) setChecks(groups map[model.GroupID]bool) {
	gone := []model.GroupID{}
	for id := range groups {
		checks := map[netip.AddrPort]health.Wanted{}
		if e := c.groups[id]; e != nil && e.group != nil {
			if set := c.sets[e.group.Set]; set != nil && set.set != nil {
				for _, b := range set.set.Backends {
					if check, has := e.group.Check(b.Address); has {
						checks[b.Address] = health.Wanted{Check: check, At: b.Machine, Owner: e.group.Set.Namespace()}
					}
				}
			}
		}
		if len(checks) == 0 {
			gone = append(gone, id)
			continue
		}
		c.health.Use(health.User{Group: id}, checks)
	}
	for _, id := range gone {
		c.health.Use(health.User{Group: id}, nil)
	}
}

// HealthChanged returns the load assignments of groups whose backends have another health now.
func (c *Catalog) HealthChanged(users map[health.User]bool) map[model.ViewID][]delta.Change {
	t := touched{}
	for u := range users {
		e := c.groups[u.Group]
		if e == nil || e.group == nil {
			continue
		}
		for v, view := range c.views {
			if view.groups[u.Group] > 0 {
				t.add(v, endpointsKey(u.Group, e.endpoints))
			}
		}
	}
	return c.build(t)
}

// setGroup replaces a group. Its load assignment may have another name then, and be
// of another set.
func (c *Catalog) setGroup(id model.GroupID, g *model.BackendGroup, t touched) {
	e := c.groupEntry(id)
	names := map[string]bool{}
	if e.group != nil {
		delete(c.setEntry(e.group.Set).groups, id)
		names[e.endpoints] = true
	}
	e.group, e.endpoints = g, ""
	if g != nil {
		c.setEntry(g.Set).groups[id] = true
		e.endpoints = xds.EndpointsName(*g)
		names[e.endpoints] = true
	}
	c.setGroupSecrets(t, id, e)
	for v, view := range c.views {
		if view.groups[id] == 0 {
			continue
		}
		t.add(v, ClusterKey(id))
		for name := range names {
			t.add(v, endpointsKey(id, name))
		}
	}
}

// setHost replaces a virtual host, and counts which groups its listener uses.
func (c *Catalog) setHost(k model.HostKey, h *model.VirtualHost, t touched) {
	s := c.listenerEntry(k.Listener)
	shard := xds.Shard(k.Listener, k.Host)
	hosts := s.shards[shard]
	old := hosts[k.Host]
	if _, kept := s.sent[shard]; !kept {
		s.sent[shard] = maps.Clone(hosts)
	}
	switch {
	case h == nil:
		delete(hosts, k.Host)
		if len(hosts) == 0 {
			delete(s.shards, shard)
		}
	case hosts == nil:
		s.shards[shard] = map[string]*model.VirtualHost{k.Host: h}
	default:
		hosts[k.Host] = h
	}
	s.hosts += presence(h != nil) - presence(old != nil)
	c.countUses(t, k, groupsOf(old), groupsOf(h))
	c.touchAt(t, k.Listener, RoutesKey(k.Listener, shard))
}

// setView replaces which listeners a view has.
func (c *Catalog) setView(id model.ViewID, v *model.View, t touched) {
	e := c.views[id]
	if e == nil {
		e = &viewEntry{listeners: map[model.ListenerID]bool{}, groups: map[model.GroupID]int{}}
		c.views[id] = e
	}
	wanted := map[model.ListenerID]bool{}
	if v != nil {
		for _, l := range v.Listeners {
			wanted[l] = true
		}
	}
	for l := range maps.Clone(e.listeners) {
		if !wanted[l] {
			delete(e.listeners, l)
			c.touchListener(t, id, l, true)
			c.countListener(t, id, e, l, -1)
		}
	}
	for l := range wanted {
		if !e.listeners[l] {
			e.listeners[l] = true
			c.listenerEntry(l)
			c.touchListener(t, id, l, true)
			c.countListener(t, id, e, l, +1)
		}
	}
}

// sweep drops what nothing points to any more.
func (c *Catalog) sweep(ch translate.Changes) {
	for id := range ch.Listeners {
		if s := c.listeners[id]; s != nil && s.listener == nil && s.hosts+len(s.tls) == 0 {
			used := false
			for _, v := range c.views {
				used = used || v.listeners[id]
			}
			if !used {
				delete(c.listeners, id)
			}
		}
	}
	for id, g := range ch.Groups {
		if e := c.groups[id]; g == nil && e != nil && len(e.users) == 0 {
			delete(c.groups, id)
		}
	}
	for id, s := range ch.Sets {
		if e := c.sets[id]; s == nil && e != nil && len(e.groups) == 0 {
			delete(c.sets, id)
		}
	}
	for id, v := range ch.Views {
		if v == nil {
			delete(c.views, id)
		}
	}
	c.sweepSecrets()
}

package catalog

import (
	"slices"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// countUses changes which groups a host uses, or with an empty host the listener. Both
// lists are sorted.
func (c *Catalog) countUses(t touched, k model.HostKey, before, after []model.GroupID) {
	for _, g := range after {
		if _, was := slices.BinarySearch(before, g); !was {
			c.groupEntry(g).users[k]++
			c.countUse(t, k.Listener, g, +1)
		}
	}
	for _, g := range before {
		if _, is := slices.BinarySearch(after, g); is {
			continue
		}
		users := c.groupEntry(g).users
		if users[k]--; users[k] == 0 {
			delete(users, k)
		}
		c.countUse(t, k.Listener, g, -1)
	}
}

// countUse changes how many hosts of a listener name a group.
func (c *Catalog) countUse(t touched, id model.ListenerID, g model.GroupID, by int) {
	s := c.listeners[id]
	before := s.uses[g]
	s.uses[g] = before + by
	if s.uses[g] == 0 {
		delete(s.uses, g)
		for shard := range s.fitted { // what stays there as it was may lead to it
			c.touchAt(t, id, RoutesKey(id, shard))
		}
	}
	if (before == 0) == (before+by == 0) {
		return
	}
	for v, view := range c.views {
		if view.listeners[id] {
			c.countGroup(t, v, view, g, by)
		}
	}
}

// countGroup changes how many listeners of a view use a group, by one.
func (c *Catalog) countGroup(t touched, v model.ViewID, view *viewEntry, g model.GroupID, by int) {
	before := view.groups[g]
	view.groups[g] = before + by
	if view.groups[g] == 0 {
		delete(view.groups, g)
	}
	if (before == 0) == (before+by == 0) {
		return
	}
	t.add(v, ClusterKey(g))
	if e := c.groups[g]; e != nil && e.group != nil {
		t.add(v, endpointsKey(g, e.endpoints))
		for _, name := range e.secrets {
			t.add(v, SecretKey(name))
		}
	}
}

func (c *Catalog) countListener(t touched, v model.ViewID, view *viewEntry, l model.ListenerID, by int) {
	s := c.listenerEntry(l)
	for g := range s.uses {
		c.countGroup(t, v, view, g, by)
	}
	for _, names := range s.secrets {
		for _, name := range names {
			t.add(v, SecretKey(name))
		}
	}
}

// touchListener marks a listener, and all that is fixed by its existence too when it
// came or went: its scopes and every shard, the empty ones as well.
func (c *Catalog) touchListener(t touched, v model.ViewID, l model.ListenerID, whole bool) {
	t.add(v, ListenerKey(l))
	if !whole {
		return
	}
	if s := c.listeners[l]; s != nil && s.listener != nil && xds.HTTP3(*s.listener) {
		t.add(v, quicKey(l))
	}
	for _, shard := range xds.AllShards(l) {
		t.add(v, RoutesKey(l, shard))
		t.add(v, Key{Type: agentv1.ScopeType, Name: xds.RouteConfigurationName(l, shard), Listener: l, shard: shard})
	}
}

// touchAt marks a resource at every view that has the listener.
func (c *Catalog) touchAt(t touched, id model.ListenerID, k Key) {
	for v, view := range c.views {
		if view.listeners[id] {
			t.add(v, k)
		}
	}
}

// groupsOf are the groups that a virtual host names.
func groupsOf(h *model.VirtualHost) []model.GroupID {
	if h == nil {
		return nil
	}
	return h.Groups()
}

func presence(there bool) int {
	if there {
		return 1
	}
	return 0
}

func tlsGroups(h *model.TLSHost) []model.GroupID {
	if h == nil {
		return nil
	}
	return h.Groups()
}

func listenerGroups(l *model.Listener) []model.GroupID {
	if l == nil {
		return nil
	}
	return l.Groups()
}

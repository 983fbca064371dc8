package plane

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// build makes the resources. One that several views touch is made once. One that
// cannot be sent changes nothing for those who have it.
func (c *catalog) build(t touched) map[model.ViewID][]delta.Change {
	made := map[resourceKey]*delta.Resource{}
	scopes := map[model.ListenerID][]proto.Message{}
	out := map[model.ViewID][]delta.Change{}
	for v, keys := range t {
		view := c.views[v]
		changes := make([]delta.Change, 0, len(keys))
		for k := range keys {
			if !c.holds(view, k) {
				changes = append(changes, delta.Change{Type: k.typ, Name: k.name})
				continue
			}
			r, ok := made[k]
			if !ok {
				r = c.resource(k, scopes)
				made[k] = r
			}
			if c.unfit[k] != "" {
				if r = c.lastOf(k); r == nil {
					continue
				}
			}
			changes = append(changes, delta.Change{Type: k.typ, Name: k.name, Resource: r})
		}
		slices.SortFunc(changes, compareChanges)
		out[v] = changes
	}
	maps.DeleteFunc(c.unfit, func(k resourceKey, _ string) bool { return !c.wanted(k) })
	return out
}

// lastOf is a resource that cannot be sent as other views have it; nil where none has. A Secret is never
// given so: its name may have been somebody else's then.
func (c *catalog) lastOf(k resourceKey) *delta.Resource {
	if k.typ == typeSecret || c.last == nil {
		return nil
	}
	r, is := c.last(k.typ, k.name)
	if !is {
		return nil
	}
	return &r
}

// resource makes one resource and notes whether it can be sent; nil says that there is
// none, or that it cannot.
func (c *catalog) resource(k resourceKey, scopes map[model.ListenerID][]proto.Message) *delta.Resource {
	if k.typ == typeRoute {
		return c.routesResource(k)
	}
	delete(c.unfit, k)
	if k.typ == typeSecret && c.lacksStaple(k.name) {
		c.unfit[k] = whyUnstapled
		return nil
	}
	m := c.message(k, scopes)
	if m == nil {
		return nil
	}
	r, err := delta.NewResource(k.name, m)
	if err != nil {
		c.unfit[k] = fmt.Sprintf("it cannot be encoded: %v", err)
		return nil
	}
	if n := len(r.Body.GetValue()); n > c.limit {
		c.unfit[k] = fmt.Sprintf("it has %d bytes, and one resource may have %d", n, c.limit)
		return nil
	}
	return &r
}

// wanted says whether any view holds the resource.
func (c *catalog) wanted(k resourceKey) bool {
	for _, v := range c.views {
		if c.holds(v, k) {
			return true
		}
	}
	return false
}

// holds says whether a view's machines get the resource.
func (c *catalog) holds(v *viewEntry, k resourceKey) bool {
	switch k.typ {
	case typeCluster:
		return v.groups[k.group] > 0
	case typeEndpoint:
		e := c.groups[k.group]
		return v.groups[k.group] > 0 && e != nil && e.endpoints == k.name
	case typeSecret:
		e := c.secrets.entries[k.name]
		return e != nil && e.heldBy(v)
	default:
		return v.listeners[k.listener]
	}
}

// message makes one resource; nil says that there is none.
func (c *catalog) message(k resourceKey, scopes map[model.ListenerID][]proto.Message) proto.Message {
	switch k.typ {
	case typeCluster, typeEndpoint:
		e := c.groups[k.group]
		if e == nil || e.group == nil {
			return nil
		}
		if k.typ == typeCluster {
			return xds.Cluster(*e.group)
		}
		set := model.BackendSet{ID: e.group.Set}
		if known := c.sets[e.group.Set]; known != nil && known.set != nil {
			set = *known.set
		}
		return xds.LoadAssignment(*e.group, set, func(b netip.AddrPort) (model.Health, string) {
			return c.health.Of(health.User{Group: k.group}, b)
		})
	case typeSecret:
		return c.secretMessage(k.name)
	}
	s := c.listeners[k.listener]
	if s == nil || s.listener == nil {
		return nil
	}
	switch k.typ {
	case typeListener:
		hosts := c.tlsHosts(k.listener, s)
		if k == listenerKey(k.listener) {
			return xds.Listener(*s.listener, hosts, c.options)
		}
		if !xds.HTTP3(*s.listener) {
			return nil
		}
		return xds.QUICListener(*s.listener, hosts, c.options)
	case typeScope:
		if scopes[k.listener] == nil {
			for _, scope := range xds.Scopes(k.listener) {
				scopes[k.listener] = append(scopes[k.listener], scope)
			}
		}
		// The wildcard scope is the last.
		return scopes[k.listener][(k.shard+len(scopes[k.listener]))%len(scopes[k.listener])]
	default:
		return nil
	}
}

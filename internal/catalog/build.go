package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// Unstapled is why a Secret cannot be sent: Envoy refuses such a certificate.
const Unstapled = "its certificate requires a stapled OCSP response (must-staple), and there is none"

// build makes the resources. One that several views touch is made once. One that
// cannot be sent changes nothing for those who have it.
func (c *Catalog) build(t touched) map[model.ViewID][]delta.Change {
	made := map[Key]*delta.Resource{}
	scopes := map[model.ListenerID][]proto.Message{}
	out := map[model.ViewID][]delta.Change{}
	for v, keys := range t {
		view := c.views[v]
		changes := make([]delta.Change, 0, len(keys))
		for k := range keys {
			if !c.holds(view, k) {
				changes = append(changes, delta.Change{Type: k.Type, Name: k.Name})
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
			changes = append(changes, delta.Change{Type: k.Type, Name: k.Name, Resource: r})
		}
		slices.SortFunc(changes, compareChanges)
		out[v] = changes
	}
	maps.DeleteFunc(c.unfit, func(k Key, _ string) bool { return !c.wanted(k) })
	return out
}

// lastOf is a resource that cannot be sent as other views have it; nil where none has. A Secret is never
// given so: its name may have been of another owner then.
func (c *Catalog) lastOf(k Key) *delta.Resource {
	if k.Type == agentv1.SecretType || c.last == nil {
		return nil
	}
	r, is := c.last(k.Type, k.Name)
	if !is {
		return nil
	}
	return &r
}

// resource makes one resource and notes whether it can be sent; nil says that there is
// none, or that it cannot.
func (c *Catalog) resource(k Key, scopes map[model.ListenerID][]proto.Message) *delta.Resource {
	if k.Type == agentv1.RouteType {
		return c.routesResource(k)
	}
	delete(c.unfit, k)
	if k.Type == agentv1.SecretType && c.lacksStaple(k.Name) {
		c.unfit[k] = Unstapled
		return nil
	}
	m := c.message(k, scopes)
	if m == nil {
		return nil
	}
	r, err := delta.NewResource(k.Name, m)
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

// lacksStaple says whether a Secret is shown to clients and has to have a response, which is
// not there.
func (c *Catalog) lacksStaple(name string) bool {
	e := c.secrets.entries[name]
	if e == nil || len(e.listeners) == 0 {
		return false
	}
	certificate := c.secrets.certificates[e.source.certificate]
	return certificate != nil && certificate.MustStaple && len(certificate.OCSP) == 0
}

// wanted says whether any view holds the resource.
func (c *Catalog) wanted(k Key) bool {
	for _, v := range c.views {
		if c.holds(v, k) {
			return true
		}
	}
	return false
}

// holds says whether a view's machines get the resource.
func (c *Catalog) holds(v *viewEntry, k Key) bool {
	switch k.Type {
	case agentv1.ClusterType:
		return v.groups[k.group] > 0
	case agentv1.EndpointType:
		e := c.groups[k.group]
		return v.groups[k.group] > 0 && e != nil && e.endpoints == k.Name
	case agentv1.SecretType:
		e := c.secrets.entries[k.Name]
		return e != nil && e.heldBy(v)
	default:
		return v.listeners[k.Listener]
	}
}

// message makes one resource; nil says that there is none.
func (c *Catalog) message(k Key, scopes map[model.ListenerID][]proto.Message) proto.Message {
	switch k.Type {
	case agentv1.ClusterType, agentv1.EndpointType:
		e := c.groups[k.group]
		if e == nil || e.group == nil {
			return nil
		}
		if k.Type == agentv1.ClusterType {
			return xds.Cluster(*e.group)
		}
		set := model.BackendSet{ID: e.group.Set}
		if known := c.sets[e.group.Set]; known != nil && known.set != nil {
			set = *known.set
		}
		return xds.LoadAssignment(*e.group, set, func(b netip.AddrPort) (model.Health, string) {
			return c.health.Of(health.User{Group: k.group}, b)
		})
	case agentv1.SecretType:
		return c.secretMessage(k.Name)
	}
	s := c.listeners[k.Listener]
	if s == nil || s.listener == nil {
		return nil
	}
	switch k.Type {
	case agentv1.ListenerType:
		hosts := c.tlsHosts(k.Listener, s)
		if k == ListenerKey(k.Listener) {
			return xds.Listener(*s.listener, hosts, c.options)
		}
		if !xds.HTTP3(*s.listener) {
			return nil
		}
		return xds.QUICListener(*s.listener, hosts, c.options)
	case agentv1.ScopeType:
		if scopes[k.Listener] == nil {
			for _, scope := range xds.Scopes(k.Listener) {
				scopes[k.Listener] = append(scopes[k.Listener], scope)
			}
		}
		// The wildcard scope is the last.
		return scopes[k.Listener][(k.shard+len(scopes[k.Listener]))%len(scopes[k.Listener])]
	default:
		return nil
	}
}

func compareChanges(a, b delta.Change) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

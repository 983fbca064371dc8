package history

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"fairlead.dev/internal/model"
)

// nameRest names what a step is of that changed no route and no server name: listeners,
// the policies that a host's routes share, and, where nothing else changed, which machines
// serve a listener. No step is of nobody.
func (c *Step) nameRest(before, ch Routing) {
	listeners := map[model.ListenerID]bool{}
	for id := range ch.listeners {
		listeners[id] = true
	}
	for k, v := range ch.hosts {
		old := before.hosts[k]
		if len(routeOwners(old, v)) > 0 {
			continue
		}
		for _, h := range []*model.VirtualHost{old, v} {
			if h == nil {
				continue
			}
			for _, r := range h.Routes {
				c.name(r.Owner)
			}
			if len(h.Routes) == 0 {
				listeners[k.Listener] = true
			}
		}
	}
	if len(listeners) == 0 && len(c.owners) == 0 {
		for id, v := range ch.views {
			differs := map[model.ListenerID]int{}
			for _, view := range []*model.View{before.views[id], v} {
				if view != nil {
					for _, l := range view.Listeners {
						differs[l]++
					}
				}
			}
			for l, n := range differs {
				if n == 1 {
					listeners[l] = true
				}
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(listeners)) {
		c.name(ownerOfListener(id))
	}
}

// ownerOfListener is the Gateway that has the listener for itself, or the listener where
// several share it.
func ownerOfListener(id model.ListenerID) model.Object {
	if parts := strings.Split(string(id), "_"); len(parts) == 3 {
		return model.Object{Kind: "Gateway", Namespace: parts[1], Name: parts[2]}
	}
	return model.Object{Kind: "listener", Name: string(id)}
}

// namedOwners is how many objects a step names at most.
const namedOwners = 8

// ownersOf are the first owners of changes to a state, sorted.
func ownersOf(before, changes Routing) []model.Object {
	var c Step
	for k, v := range changes.hosts {
		for _, o := range routeOwners(before.hosts[k], v) {
			c.name(o)
		}
	}
	for k, v := range changes.tls {
		for _, h := range []*model.TLSHost{before.tls[k], v} {
			if h != nil {
				c.name(h.Owner)
			}
		}
	}
	c.nameRest(before, changes)
	slices.SortFunc(c.owners, model.Object.Compare)
	return c.owners
}

// routeOwners are the owners of the routes that differ.
func routeOwners(before, after *model.VirtualHost) []model.Object {
	routes := func(h *model.VirtualHost) map[string]*model.Route {
		byName := map[string]*model.Route{}
		if h != nil {
			for i := range h.Routes {
				byName[h.Routes[i].Name] = &h.Routes[i]
			}
		}
		return byName
	}
	old, now := routes(before), routes(after)
	var owners []model.Object
	for name, r := range now {
		if was := old[name]; was == nil || !reflect.DeepEqual(was, r) {
			owners = append(owners, r.Owner)
		}
	}
	for name, r := range old {
		if now[name] == nil {
			owners = append(owners, r.Owner)
		}
	}
	return owners
}

// name notes an object that the step is of.
func (c *Step) name(o model.Object) {
	if len(c.owners) < namedOwners && !slices.Contains(c.owners, o) {
		c.owners = append(c.owners, o)
	}
}

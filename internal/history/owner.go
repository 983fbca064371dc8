package history

import (
	"maps"
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

package history

import (
	"maps"
	"reflect"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
)

// Routing is the part of a translation that a Freeze holds: a state, or what of it
// changed. A nil value says that there is none.
type Routing struct {
	listeners map[model.ListenerID]*model.Listener
	hosts     map[model.HostKey]*model.VirtualHost
	tls       map[model.HostKey]*model.TLSHost
	views     map[model.ViewID]*model.View
}

func newRouting() Routing {
	return Routing{
		listeners: map[model.ListenerID]*model.Listener{}, hosts: map[model.HostKey]*model.VirtualHost{},
		tls: map[model.HostKey]*model.TLSHost{}, views: map[model.ViewID]*model.View{},
	}
}

func (r Routing) clone() Routing {
	return Routing{listeners: maps.Clone(r.listeners), hosts: maps.Clone(r.hosts), tls: maps.Clone(r.tls), views: maps.Clone(r.views)}
}

// Size is how many keys it has.
func (r Routing) Size() int { return len(r.listeners) + len(r.hosts) + len(r.tls) + len(r.views) }

// routingOf is the part of the changes that a Freeze holds.
func routingOf(ch translate.Changes) Routing {
	return Routing{listeners: ch.Listeners, hosts: ch.VirtualHosts, tls: ch.TLSHosts, views: ch.Views}
}

// Under completes changes: they come after the routing.
func (r Routing) Under(ch *translate.Changes) {
	maps.Copy(r.listeners, ch.Listeners)
	maps.Copy(r.hosts, ch.VirtualHosts)
	maps.Copy(r.tls, ch.TLSHosts)
	maps.Copy(r.views, ch.Views)
	r.Into(ch)
}

// Into replaces the routing of changes.
func (r Routing) Into(ch *translate.Changes) {
	ch.Listeners, ch.VirtualHosts, ch.TLSHosts, ch.Views = r.listeners, r.hosts, r.tls, r.views
}

// State is routing with the groups that it names, without which it cannot be turned back to: a
// state, or what of it changed.
type State struct {
	Routing
	groups map[model.GroupID]*model.BackendGroup
}

// hold keeps the published value of each key that changes, and forgets it when what is
// wanted is the same again.
func hold[K comparable, V any](wanted, held, changes map[K]*V) {
	for k, v := range changes {
		old, is := held[k]
		if !is {
			old = wanted[k]
		}
		if (old == nil) == (v == nil) && (old == nil || reflect.DeepEqual(old, v)) {
			delete(held, k)
		} else {
			held[k] = old
		}
	}
}

// turn moves what is published to a target, which names the keys whose value differs from
// what is wanted, and returns the changes.
func turn[K comparable, V any](wanted, held, target map[K]*V) map[K]*V {
	out := map[K]*V{}
	for k := range held {
		if _, is := target[k]; !is {
			out[k] = wanted[k]
			delete(held, k)
		}
	}
	for k, v := range target {
		now, is := held[k]
		if !is {
			now = wanted[k]
		}
		if now != v {
			out[k] = v
		}
		if wanted[k] == v {
			delete(held, k)
		} else {
			held[k] = v
		}
	}
	return out
}

// published is the state that machines are sent.
func published[K comparable, V any](wanted, held map[K]*V) map[K]*V {
	out := maps.Clone(wanted)
	replace(out, held)
	return out
}

// replace sets what changed, and deletes what is nil.
func replace[K comparable, V any](state, changes map[K]*V) {
	for k, v := range changes {
		if v == nil {
			delete(state, k)
		} else {
			state[k] = v
		}
	}
}

// values are the state's values of the keys of another map; nil where it has none.
func values[K comparable, V, W any](state map[K]*V, keys map[K]*W) map[K]*V {
	out := make(map[K]*V, len(keys))
	for k := range keys {
		out[k] = state[k]
	}
	return out
}

// keepPresent leaves removals out and notes them.
func keepPresent[K comparable, V any](changes map[K]*V, gone map[K]bool) map[K]*V {
	out := make(map[K]*V, len(changes))
	for k, v := range changes {
		if v == nil {
			gone[k] = true
			continue
		}
		delete(gone, k)
		out[k] = v
	}
	return out
}

func absent[K comparable, V any](keys map[K]bool) map[K]*V {
	out := make(map[K]*V, len(keys))
	for k := range keys {
		out[k] = nil
	}
	return out
}

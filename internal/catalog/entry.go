package catalog

import (
	"fairlead.dev/internal/model"
)

// listenerEntry is one listener and the virtual hosts on it.
type listenerEntry struct {
	listener *model.Listener // nil: hosts came, but not the listener yet
	shards   map[int]map[string]*model.VirtualHost
	sent     map[int]map[string]*model.VirtualHost // shards as last sent, where they differ
	fitted   map[int]bool                          // those that differ since they would be too large
	uses     map[model.GroupID]int                 // how many hosts, and the listener itself, name the group
	hosts    int
	tls      map[string]*model.TLSHost
	special  map[string]bool     // hosts of tls that the listener must always be told of
	wild     int                 // hosts of tls that are wildcards
	secrets  map[string][]string // names of Secrets, by the host that needs them; empty: the listener
}

type groupEntry struct {
	group *model.BackendGroup
	// endpoints names the group's load assignment; it changes with the group.
	endpoints string
	users     map[model.HostKey]int // with an empty host: the listener itself
	secrets   []string              // of its connections
}

type setEntry struct {
	set    *model.BackendSet
	groups map[model.GroupID]bool
}

// viewEntry is what one view's machines get.
type viewEntry struct {
	listeners map[model.ListenerID]bool
	groups    map[model.GroupID]int // how many listeners of the view use it
}

func (c *Catalog) listenerEntry(id model.ListenerID) *listenerEntry {
	s := c.listeners[id]
	if s == nil {
		s = &listenerEntry{
			shards: map[int]map[string]*model.VirtualHost{}, sent: map[int]map[string]*model.VirtualHost{}, fitted: map[int]bool{}, uses: map[model.GroupID]int{},
			tls: map[string]*model.TLSHost{}, special: map[string]bool{}, secrets: map[string][]string{},
		}
		c.listeners[id] = s
	}
	return s
}

func (c *Catalog) groupEntry(id model.GroupID) *groupEntry {
	g := c.groups[id]
	if g == nil {
		g = &groupEntry{users: map[model.HostKey]int{}}
		c.groups[id] = g
	}
	return g
}

func (c *Catalog) setEntry(id model.SetID) *setEntry {
	s := c.sets[id]
	if s == nil {
		s = &setEntry{groups: map[model.GroupID]bool{}}
		c.sets[id] = s
	}
	return s
}

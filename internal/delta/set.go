package delta

import (
	"maps"
	"slices"
)

// Set is a view: named, versioned resources that any number of streams follow.
// It is not safe for concurrent use, and neither are its streams: one owner
// serialises every call on a Set and on all Streams that follow it.
type Set struct {
	revision Revision
	shelves  map[Type]*shelf
}

// shelf is one type of a Set: its resources and who follows them.
type shelf struct {
	entries map[string]*entry
	wild    watchers
	named   map[string]*watchers
}

// NewSet returns an empty Set at the zero revision.
func NewSet() *Set { return &Set{shelves: map[Type]*shelf{}} }

// Update applies changes and moves the Set to rev, or leaves it where it is when
// rev is not after it. It returns how many changes were real: an equal version,
// or the removal of a name that is not there, is none. Streams that have something
// to send by it are woken; no stream sends before Update has returned, so several
// changes of a name become one.
func (s *Set) Update(rev Revision, changes []Change) int {
	if rev.Compare(s.revision) > 0 {
		s.revision = rev
	}
	count := 0
	for _, c := range changes {
		if c.Name == "" {
			continue // the protocol has no way to name it
		}
		sh := s.shelf(c.Type)
		old := sh.entries[c.Name]
		var fresh *entry
		if c.Resource != nil {
			fresh = newEntry(c.Name, *c.Resource)
		}
		if fresh.version() == old.version() {
			continue
		}
		count++
		if fresh != nil {
			sh.entries[c.Name] = fresh
		} else {
			delete(sh.entries, c.Name)
		}
		for _, w := range sh.wild.list {
			w.sub.changed(s, c.Name, old)
		}
		if named := sh.named[c.Name]; named != nil {
			for _, w := range named.list {
				w.sub.changed(s, c.Name, old)
			}
		}
	}
	return count
}

// Revision is the largest one that Update was given.
func (s *Set) Revision() Revision { return s.revision }

// Get returns the resource of that type and name.
func (s *Set) Get(t Type, name string) (Resource, bool) {
	e := s.entry(t, name)
	if e == nil {
		return Resource{}, false
	}
	return e.resource, true
}

// Len is the number of resources of a type.
func (s *Set) Len(t Type) int {
	if sh := s.shelves[t]; sh != nil {
		return len(sh.entries)
	}
	return 0
}

// Names returns the names of a type, sorted.
func (s *Set) Names(t Type) []string {
	if sh := s.shelves[t]; sh != nil {
		return slices.Sorted(maps.Keys(sh.entries))
	}
	return nil
}

// Types returns the types that hold at least one resource, sorted.
func (s *Set) Types() []Type {
	var types []Type
	for t, sh := range s.shelves {
		if len(sh.entries) > 0 {
			types = append(types, t)
		}
	}
	slices.Sort(types)
	return types
}

func (s *Set) entry(t Type, name string) *entry {
	if sh := s.shelves[t]; sh != nil {
		return sh.entries[name]
	}
	return nil
}

func (s *Set) shelf(t Type) *shelf {
	sh := s.shelves[t]
	if sh == nil {
		sh = &shelf{entries: map[string]*entry{}, named: map[string]*watchers{}}
		s.shelves[t] = sh
	}
	return sh
}

// watchAll makes sub hear of every resource of its type.
func (s *Set) watchAll(sub *subscription) *watch {
	return s.shelf(sub.typ).wild.add(&watch{set: s, sub: sub, all: true})
}

// watch makes sub hear of the named resource of its type.
func (s *Set) watch(sub *subscription, name string) *watch {
	sh := s.shelf(sub.typ)
	list := sh.named[name]
	if list == nil {
		list = &watchers{}
		sh.named[name] = list
	}
	return list.add(&watch{set: s, sub: sub, name: name})
}

// watch is one subscription's interest in one name of one Set, or in all names.
type watch struct {
	set  *Set
	sub  *subscription
	name string
	all  bool
	at   int
}

// watchers is an unordered list with removal in constant time.
type watchers struct{ list []*watch }

func (ws *watchers) add(w *watch) *watch {
	w.at = len(ws.list)
	ws.list = append(ws.list, w)
	return w
}

// stop ends the watch. It costs the same however many others watch the name.
func (w *watch) stop() {
	sh := w.set.shelves[w.sub.typ]
	list := &sh.wild
	if !w.all {
		list = sh.named[w.name]
	}
	last := len(list.list) - 1
	moved := list.list[last]
	list.list[w.at], moved.at = moved, w.at
	list.list[last] = nil
	list.list = list.list[:last]
	if !w.all && last == 0 {
		delete(sh.named, w.name)
	}
	if last == 0 && len(sh.entries) == 0 && len(sh.named) == 0 && len(sh.wild.list) == 0 {
		delete(w.set.shelves, w.sub.typ)
	}
}

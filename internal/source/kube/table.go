package kube

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"fairlead.dev/internal/model"
)

// table holds what was read, and knows what of it was not given yet. A goroutine for each list writes it, and the one
// of Run reads it.
type table struct {
	now  func() time.Time
	wake chan struct{} // has one element while there is something to give

	mu       sync.Mutex
	lists    []*list
	services map[model.UpstreamKey]*service
	slices   map[model.UpstreamKey]*slice
	of       map[model.UpstreamKey]map[string]*slice // slices of a service, by name
	changed  map[model.UpstreamKey]time.Time         // services to look at again, since when
	replaced bool                                    // a list was read since the last Replace
	complete bool                                    // a Replace was given

	given map[model.UpstreamKey]*model.UpstreamService // of Run's goroutine alone
}

// list is what the table knows of one list of the cluster: Services or EndpointSlices, of all namespaces or of one.
type list struct {
	scope string // a namespace; "" is all
	read  bool   // completely, at least once
	fails bool   // the last request failed
	size  int64  // about how many bytes of memory its objects take
}

func newTable(now func() time.Time) *table {
	return &table{
		now: now, wake: make(chan struct{}, 1),
		services: map[model.UpstreamKey]*service{}, slices: map[model.UpstreamKey]*slice{},
		of: map[model.UpstreamKey]map[string]*slice{}, changed: map[model.UpstreamKey]time.Time{},
		given: map[model.UpstreamKey]*model.UpstreamService{},
	}
}

func (t *table) add(scope string) *list {
	l := &list{scope: scope}
	t.lists = append(t.lists, l)
	return l
}

// ring wakes Run's goroutine.
func (t *table) ring() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *table) touch(key model.UpstreamKey) {
	if _, ok := t.changed[key]; !ok {
		t.changed[key] = t.now()
	}
	t.ring()
}

// putService notes a Service; nil: there is none, or it is not given.
func (t *table) putService(l *list, key model.UpstreamKey, s *service) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setService(l, key, s)
}

func (t *table) setService(l *list, key model.UpstreamKey, s *service) {
	old := t.services[key]
	if old == nil && s == nil || old != nil && s != nil && equalService(old, s) {
		return
	}
	if old != nil {
		l.size -= old.bytes(key)
	}
	if delete(t.services, key); s != nil {
		t.services[key] = s
		l.size += s.bytes(key)
	}
	t.touch(key)
}

// putSlice notes an EndpointSlice; nil: there is none, or it is not given.
func (t *table) putSlice(l *list, key model.UpstreamKey, s *slice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setSlice(l, key, s)
}

func (t *table) setSlice(l *list, key model.UpstreamKey, s *slice) {
	old := t.slices[key]
	if old == nil && s == nil || old != nil && s != nil && equalSlice(old, s) {
		return
	}
	if old != nil {
		l.size -= old.bytes(key)
		owner := model.UpstreamKey{Scope: key.Scope, Name: old.service}
		if delete(t.of[owner], key.Name); len(t.of[owner]) == 0 {
			delete(t.of, owner)
		}
		t.touchOwner(owner)
	}
	if delete(t.slices, key); s == nil {
		return
	}
	l.size += s.bytes(key)
	t.slices[key] = s
	owner := model.UpstreamKey{Scope: key.Scope, Name: s.service}
	if t.of[owner] == nil {
		t.of[owner] = map[string]*slice{}
	}
	t.of[owner][key.Name] = s
	t.touchOwner(owner)
}

// touchOwner touches the service of a slice, if it has one.
func (t *table) touchOwner(owner model.UpstreamKey) {
	if s := t.services[owner]; s != nil && !s.excluded {
		t.touch(owner)
	}
}

// replaceServices notes a complete list.
func (t *table) replaceServices(l *list, all map[model.UpstreamKey]*service) {
	t.mu.Lock()
	defer t.mu.Unlock()
	replace(t, l, t.services, all, t.setService)
}

// replaceSlices notes a complete list.
func (t *table) replaceSlices(l *list, all map[model.UpstreamKey]*slice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	replace(t, l, t.slices, all, t.setSlice)
}

func replace[T any](t *table, l *list, have, all map[model.UpstreamKey]*T, set func(*list, model.UpstreamKey, *T)) {
	for key := range have {
		if all[key] == nil && (l.scope == "" || l.scope == key.Scope) {
			set(l, key, nil)
		}
	}
	for key, o := range all {
		set(l, key, o)
	}
	l.read, l.fails, t.replaced = true, false, true
	t.ring()
}

// note notes whether the last request of a list failed.
func (t *table) note(l *list, fails bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.fails != fails {
		l.fails = fails
		t.ring()
	}
}

// sizeOf is about how many bytes of memory the objects of a list take.
func (t *table) sizeOf(l *list) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return l.size
}

// gifts are what is to be given next.
type gifts struct {
	whole   bool // put is all there is, and nothing is removed
	put     []*model.UpstreamService
	removed []model.UpstreamKey
}

// take takes what is to be given. Services that are as they were given are the same pointers.
func (t *table) take() gifts {
	t.mu.Lock()
	defer t.mu.Unlock()
	may := t.mayGive()
	var g gifts
	for key, since := range t.changed {
		if !may(key.Scope) {
			continue
		}
		delete(t.changed, key)
		old, s := t.given[key], t.build(key, since)
		switch {
		case s == nil && old == nil:
		case s == nil:
			delete(t.given, key)
			g.removed = append(g.removed, key)
		case old == nil || !old.Same(s):
			t.given[key] = s
			g.put = append(g.put, s)
		}
	}
	if t.replaced && t.allRead() {
		t.replaced, t.complete = false, true
		g = gifts{whole: true, put: slices.Collect(maps.Values(t.given))}
	}
	slices.SortFunc(g.put, func(a, b *model.UpstreamService) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(g.removed, model.UpstreamKey.Compare)
	return g
}

func (t *table) allRead() bool {
	return !slices.ContainsFunc(t.lists, func(l *list) bool { return !l.read })
}

// mayGive says of which namespaces services may be given: of all once every list was read. Before that, of those that
// were read themselves, if another one cannot be read.
func (t *table) mayGive() func(scope string) bool {
	if t.complete || t.allRead() {
		return func(string) bool { return true }
	}
	fails := false
	unread := map[string]bool{}
	for _, l := range t.lists {
		if !l.read {
			unread[l.scope] = true
			fails = fails || l.fails
		}
	}
	return func(scope string) bool { return fails && !unread[""] && !unread[scope] }
}

// build joins a service; nil if there is none.
func (t *table) build(key model.UpstreamKey, since time.Time) *model.UpstreamService {
	s := t.services[key]
	if s == nil {
		return nil
	}
	out := &model.UpstreamService{
		Key: key, Object: serviceObject(key.Scope, key.Name),
		Labels: s.labels, Annotations: s.annotations, Ports: s.ports, Refused: s.refused, Seen: since,
	}
	if s.excluded {
		return out
	}
	more := s.more
	parts := t.of[key]
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		p := parts[name]
		if len(p.refused) > 0 {
			n := min(len(p.refused), maxRefusals-len(out.Refused))
			out.Refused = append(slices.Clip(out.Refused), p.refused[:n]...)
			more += p.more + len(p.refused) - n
		}
		if !p.excluded {
			if out.Slices == nil {
				out.Slices = make([]model.UpstreamSlice, 0, len(parts))
			}
			out.Slices = append(out.Slices, p.slice)
		}
		if p.changed.After(out.Changed) {
			out.Changed = p.changed
		}
	}
	if more > 0 {
		out.Refused = append(slices.Clip(out.Refused), model.UpstreamRefusal{
			Object: out.Object, Reason: model.RefusedAnswer, Message: fmt.Sprintf("%d more of its ports and endpoints are left out", more),
		})
	}
	return out
}

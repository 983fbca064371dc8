package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
)

// everyListener is the view of all machines with a proxy, in states of planes that knew no other view. A Freeze may hold one.
const everyListener model.ViewID = "all"

// Placement decides which listeners each machine is sent: those of its views, and for as long as
// its connections may last those that it had before. Machines with the same views and the same
// leftovers are sent the same, by one combined view.
type Placement struct {
	views    map[model.ViewID]map[model.ListenerID]bool // as published, none that is empty
	machines map[string]*placed
	combined map[model.ViewID]*combinedView
	parting  map[string]*placed // those with leftovers
	looked   time.Time          // when leftovers were looked at last
}

// placed is what is known of a machine.
type placed struct {
	views []model.ViewID // none: it has backends only
	drain time.Duration
	// leftovers are listeners that its views have no longer, and until when it has them at least.
	leftovers map[model.ListenerID]time.Time
	on        model.ViewID   // the combined view; empty: none yet
	gained    bool           // a view that it had not, in what is published next
	since     delta.Revision // when it gained one last
}

// combinedView is what its machines are sent.
type combinedView struct {
	views     []model.ViewID
	leftovers []model.ListenerID
	listeners []model.ListenerID // as last published, sorted
	members   int
	grown     []model.ListenerID                  // in what is published next
	since     map[model.ListenerID]delta.Revision // with which listeners came that it had not from the start
}

// New is without machines and views.
func New() Placement {
	return Placement{
		views: map[model.ViewID]map[model.ListenerID]bool{}, machines: map[string]*placed{},
		combined: map[model.ViewID]*combinedView{}, parting: map[string]*placed{},
	}
}

// Serves says that one of a machine's views has a listener, and the revision with which the machine came to
// it, or it to the machine. A leftover does not count.
func (p *Placement) Serves(machine string, id model.ListenerID) (bool, delta.Revision) {
	m := p.machines[machine]
	if m == nil || !p.has(m.views, id) {
		return false, delta.Revision{}
	}
	since := m.since
	if c := p.combined[m.on]; c != nil && c.since[id].Compare(since) > 0 {
		since = c.since[id]
	}
	return true, since
}

func (p *Placement) has(views []model.ViewID, id model.ListenerID) bool {
	return slices.ContainsFunc(views, func(v model.ViewID) bool { return p.views[v][id] })
}

// Apply applies changes of views and machines, replaces the views in the changes by the combined views that
// change, and returns the machines that are on another one now. exists says that there is a listener.
func (p *Placement) Apply(ch *translate.Changes, now time.Time, exists func(model.ListenerID) bool) map[string]bool {
	was := maps.Clone(p.views)
	lost := map[model.ViewID][]model.ListenerID{} // by views that stay
	for id, v := range ch.Views {
		p.setView(id, v)
		for l := range was[id] {
			if !p.views[id][l] {
				lost[id] = append(lost[id], l)
			}
		}
	}
	concerned := map[string]*placed{}
	if len(ch.Views) > 0 {
		maps.Copy(concerned, p.machines)
	}
	if len(ch.Listeners) > 0 {
		maps.Copy(concerned, p.parting)
	}
	for name := range ch.Machines {
		concerned[name] = cmp.Or(p.machines[name], &placed{})
	}
	for name, m := range concerned {
		had := m.views
		if v, changes := ch.Machines[name]; changes {
			p.set(name, m, v)
			m.gained = m.gained || slices.ContainsFunc(m.views, func(v model.ViewID) bool { return !slices.Contains(had, v) })
		}
		for _, view := range had {
			gone := lost[view]
			if !slices.Contains(m.views, view) {
				gone = slices.Collect(maps.Keys(was[view]))
			}
			for _, l := range gone {
				p.leave(name, m, l, now)
			}
		}
		for l := range m.leftovers {
			if len(m.views) == 0 || !exists(l) || p.has(m.views, l) {
				p.end(name, m, l)
			}
		}
	}
	return p.combine(ch, concerned)
}

func (p *Placement) setView(id model.ViewID, v *model.View) {
	if v == nil || len(v.Listeners) == 0 {
		delete(p.views, id)
		return
	}
	p.views[id] = make(map[model.ListenerID]bool, len(v.Listeners))
	for _, l := range v.Listeners {
		p.views[id][l] = true
	}
}

// set replaces a machine; nil: it is gone.
func (p *Placement) set(name string, m *placed, v *model.Machine) {
	m.views = nil
	if v == nil {
		delete(p.machines, name)
		return
	}
	p.machines[name] = m
	m.drain = time.Duration(v.DrainSeconds) * time.Second
	if !v.HostsOnly {
		m.views = append(slices.Clone(v.Views), everyListener)
	}
}

// leave makes a listener a leftover.
func (p *Placement) leave(name string, m *placed, id model.ListenerID, now time.Time) {
	if _, is := m.leftovers[id]; is {
		return
	}
	if m.leftovers == nil {
		m.leftovers = map[model.ListenerID]time.Time{}
	}
	m.leftovers[id] = now.Add(m.drain)
	p.parting[name] = m
}

// end ends that a listener is a leftover.
func (p *Placement) end(name string, m *placed, id model.ListenerID) {
	if delete(m.leftovers, id); len(m.leftovers) == 0 {
		delete(p.parting, name)
	}
}

// combine puts machines on their combined views, and the combined views that change into the
// place of the views.
func (p *Placement) combine(ch *translate.Changes, concerned map[string]*placed) map[string]bool {
	stale := map[model.ViewID]bool{}
	if len(ch.Views) > 0 {
		for id := range p.combined {
			stale[id] = true
		}
	}
	moved := map[string]bool{}
	for name, m := range concerned {
		var id model.ViewID
		if p.machines[name] != nil {
			id = p.combinedFor(m)
		}
		if id == m.on {
			continue
		}
		if c := p.combined[m.on]; c != nil {
			c.members--
			stale[m.on] = true
		}
		if c := p.combined[id]; c != nil {
			c.members++
			stale[id] = true
		}
		m.on = id
		moved[name] = true
	}
	ch.Views = map[model.ViewID]*model.View{}
	for id := range stale {
		c := p.combined[id]
		if c.members == 0 {
			delete(p.combined, id)
			ch.Views[id] = nil
			continue
		}
		if listeners := p.listeners(c); c.listeners == nil || !slices.Equal(c.listeners, listeners) {
			if c.listeners != nil {
				c.grown = slices.DeleteFunc(slices.Clone(listeners), func(l model.ListenerID) bool {
					_, had := slices.BinarySearch(c.listeners, l)
					return had
				})
			}
			c.listeners = listeners
			ch.Views[id] = &model.View{ID: id, Listeners: listeners}
		}
	}
	return moved
}

// combinedFor is the combined view of a machine, made if there is none yet. Its name has the empty ones of the
// views, too: otherwise any tenant's first route would move machines to another one, which are compared whole then.
func (p *Placement) combinedFor(m *placed) model.ViewID {
	c := &combinedView{views: m.views, leftovers: slices.Sorted(maps.Keys(m.leftovers))}
	var text []string
	for _, v := range m.views {
		text = append(text, string(v))
	}
	for _, l := range c.leftovers {
		text = append(text, "left:"+string(l))
	}
	id := model.ViewID(cmp.Or(strings.Join(text, "+"), "none"))
	if p.combined[id] == nil {
		p.combined[id] = c
	}
	return id
}

// listeners are those of a combined view, sorted; never nil.
func (p *Placement) listeners(c *combinedView) []model.ListenerID {
	all := map[model.ListenerID]bool{}
	for _, v := range c.views {
		maps.Copy(all, p.views[v])
	}
	for _, l := range c.leftovers {
		all[l] = true
	}
	return append([]model.ListenerID{}, slices.Sorted(maps.Keys(all))...)
}

// Published notes the revision of what machines gained. views are the combined ones that changed.
func (p *Placement) Published(moved map[string]bool, views map[model.ViewID]*model.View, rev delta.Revision) {
	for name := range moved {
		if m := p.machines[name]; m != nil && m.gained {
			m.gained, m.since = false, rev
		}
	}
	for id := range views {
		c := p.combined[id]
		if c == nil || len(c.grown) == 0 {
			continue
		}
		if c.since == nil {
			c.since = map[model.ListenerID]delta.Revision{}
		}
		for _, l := range c.grown {
			c.since[l] = rev
		}
		c.grown = nil
	}
}

// partAgain is how often it is looked whether what a listener began has ended.
const partAgain = time.Second

// ListenerAt is a listener at a machine.
type ListenerAt struct {
	Machine  string
	Listener model.ListenerID
}

// Uses says what keeps leftovers. Each is asked at most once a look, for all of them.
type Uses struct {
	// Kept have a VIP yet that leads to them, since no other machine announces it.
	Kept func() map[ListenerAt]bool
	// Passed may have connections that load balancers pass on to them.
	Passed func() map[ListenerAt]bool
}

// View is the combined view of a machine; empty: there is no such machine.
func (p *Placement) View(machine string) model.ViewID {
	if m := p.machines[machine]; m != nil {
		return m.on
	}
	return ""
}

// Expire ends leftovers whose time is over. It adds the combined views that change to changes, and returns
// the machines that are on another one now, and whether any leftover ended.
func (p *Placement) Expire(ch *translate.Changes, now time.Time, uses Uses) (moved map[string]bool, ended bool) {
	machines := p.expired(now, uses)
	if len(machines) == 0 {
		return nil, false
	}
	return p.combine(ch, machines), true
}

// expired ends leftovers whose time is over, and returns their machines.
func (p *Placement) expired(now time.Time, uses Uses) map[string]*placed {
	if len(p.parting) == 0 || !now.Before(p.looked) && now.Before(p.looked.Add(partAgain)) {
		return nil
	}
	p.looked = now
	kept := uses.Kept()
	var passed map[ListenerAt]bool
	var ended map[string]*placed
	for name, m := range p.parting {
		for l, until := range m.leftovers {
			u := ListenerAt{name, l}
			if kept[u] || until.Sub(now) > m.drain+2*partAgain { // or the clock was set back
				m.leftovers[l] = now.Add(m.drain)
				continue
			}
			if now.Before(until) {
				continue
			}
			if passed == nil {
				passed = uses.Passed()
			}
			if passed[u] {
				continue
			}
			p.end(name, m, l)
			if ended == nil {
				ended = map[string]*placed{}
			}
			ended[name] = m
		}
	}
	return ended
}

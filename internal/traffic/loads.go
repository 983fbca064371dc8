package traffic

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/internal/model"
)

// Loads add up what the proxies of one machine report of the backends of measured groups. Only backends that the groups have are
// kept, and at most so many. Of these, some are named: they have metrics of their own, which namespaces share (seats). All else is
// Other's.
type Loads struct {
	most   int
	mostOf int // one namespace
	seats  *seats[namedBackend]
	groups map[model.GroupID]*groupLoads
	kept   int
	keptOf map[string]int    // by namespace
	other  model.BackendLoad // of those that are kept and not named
}

type namedBackend struct {
	group   model.GroupID
	address netip.AddrPort
}

type groupLoads struct {
	at       time.Time // of the last report; zero: there was none
	backends map[netip.AddrPort]*model.BackendLoad
}

// NewLoads returns empty Loads, of at most so many backends, so many of one namespace, and of which so many are named.
func NewLoads(most, mostOf, named int) *Loads {
	return &Loads{most: most, mostOf: mostOf, seats: newSeats[namedBackend](named, 0), groups: map[model.GroupID]*groupLoads{}, keptOf: map[string]int{}}
}

// Keep says which backends a group has. What others of the group have counted is forgotten. It says no if there is no room for some now, and
// may be later.
func (l *Loads) Keep(group model.GroupID, backends []netip.AddrPort) bool {
	g := l.groups[group]
	if g == nil {
		g = &groupLoads{backends: map[netip.AddrPort]*model.BackendLoad{}}
		l.groups[group] = g
	}
	has := make(map[netip.AddrPort]bool, len(backends))
	for _, b := range backends {
		has[b] = true
	}
	for address, b := range g.backends {
		if !has[address] {
			l.drop(group, g, b)
		}
	}
	namespace := group.Namespace()
	for _, address := range backends {
		switch {
		case g.backends[address] != nil:
			continue
		case l.keptOf[namespace] >= l.mostOf:
			return true
		case l.kept >= l.most:
			return false
		}
		b := &model.BackendLoad{Address: address}
		g.backends[address] = b
		l.kept++
		l.keptOf[namespace]++
		if len(l.seats.given) == l.kept-1 { // else others wait already, until they count something
			l.name(group, b, false)
		}
	}
	return true
}

// Forget forgets a group.
func (l *Loads) Forget(group model.GroupID) {
	if g := l.groups[group]; g != nil {
		for _, b := range g.backends {
			l.drop(group, g, b)
		}
		delete(l.groups, group)
	}
}

func (l *Loads) drop(group model.GroupID, g *groupLoads, b *model.BackendLoad) {
	delete(g.backends, b.Address)
	l.kept--
	if l.keptOf[group.Namespace()]--; l.keptOf[group.Namespace()] == 0 {
		delete(l.keptOf, group.Namespace())
	}
	l.seats.free(namedBackend{group, b.Address})
}

// name gives a backend metrics of its own, if there is a seat for it: perhaps that of another one.
func (l *Loads) name(group model.GroupID, b *model.BackendLoad, counts bool) {
	named, gone := l.seats.has(namedBackend{group, b.Address}, group.Namespace(), counts)
	b.Named = named
	if gone != nil {
		l.groups[gone.group].backends[gone.address].Named = false
	}
}

// Add adds a report of a group: what has been counted since the one before. Backends that it lacks have counted nothing, and have
// nothing in flight.
func (l *Loads) Add(at time.Time, group model.GroupID, report []model.BackendLoad) {
	g := l.groups[group]
	if g == nil {
		return
	}
	g.at = at
	for _, b := range g.backends {
		b.InFlight = 0
	}
	for _, more := range report {
		b := g.backends[more.Address]
		if b == nil {
			continue
		}
		l.name(group, b, more.Requests > 0)
		b.Add(more)
		if !b.Named {
			l.other.Add(more)
		}
	}
}

// Stop says that the proxy is gone, and all that was in flight with it.
func (l *Loads) Stop() {
	for _, g := range l.groups {
		for _, b := range g.backends {
			b.InFlight = 0
		}
	}
}

// All are the groups that were reported, sorted.
func (l *Loads) All(now time.Time) []model.GroupLoad {
	list := make([]model.GroupLoad, 0, len(l.groups))
	for _, group := range slices.Sorted(maps.Keys(l.groups)) {
		g := l.groups[group]
		if g.at.IsZero() {
			continue
		}
		load := model.GroupLoad{Group: group, Age: max(now.Sub(g.at), 0), Backends: make([]model.BackendLoad, 0, len(g.backends))}
		for _, b := range g.backends {
			load.Backends = append(load.Backends, *b)
		}
		slices.SortFunc(load.Backends, func(a, b model.BackendLoad) int { return cmp.Or(a.Address.Compare(b.Address)) })
		list = append(list, load)
	}
	return list
}

// Other is the sum of the backends that are not named, and their number.
func (l *Loads) Other() (sum model.BackendLoad, backends int) {
	sum = l.other
	sum.InFlight = 0
	for _, g := range l.groups {
		for _, b := range g.backends {
			if !b.Named {
				sum.InFlight += b.InFlight
			}
		}
	}
	return sum, l.kept - len(l.seats.given)
}

package plane

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
)

const (
	// historyLimit is how many changes of routing a plane can turn back.
	historyLimit = 4096
	// historyBytes bounds what they take, packed.
	historyBytes = 32 << 20
	// trimEvery is after how many packed bytes those of all steps are counted again.
	trimEvery = 1 << 20
)

// routing is the part of a translation that a Freeze holds: a state, or what of it
// changed. A nil value says that there is none.
type routing struct {
	listeners map[model.ListenerID]*model.Listener
	hosts     map[model.HostKey]*model.VirtualHost
	tls       map[model.HostKey]*model.TLSHost
	views     map[model.ViewID]*model.View
}

func newRouting() routing {
	return routing{
		listeners: map[model.ListenerID]*model.Listener{}, hosts: map[model.HostKey]*model.VirtualHost{},
		tls: map[model.HostKey]*model.TLSHost{}, views: map[model.ViewID]*model.View{},
	}
}

func (r routing) clone() routing {
	return routing{listeners: maps.Clone(r.listeners), hosts: maps.Clone(r.hosts), tls: maps.Clone(r.tls), views: maps.Clone(r.views)}
}

func (r routing) size() int { return len(r.listeners) + len(r.hosts) + len(r.tls) + len(r.views) }

// routingOf is the part of the changes that a Freeze holds.
func routingOf(ch translate.Changes) routing {
	return routing{listeners: ch.Listeners, hosts: ch.VirtualHosts, tls: ch.TLSHosts, views: ch.Views}
}

// into puts the routing into changes in place of their own.
func (r routing) into(ch *translate.Changes) {
	ch.Listeners, ch.VirtualHosts, ch.TLSHosts, ch.Views = r.listeners, r.hosts, r.tls, r.views
}

// picture is routing with the groups that it names, which whoever turns back needs: a
// state, or what of it changed.
type picture struct {
	routing
	groups map[model.GroupID]*model.BackendGroup
}

// change is one step of the history.
type change struct {
	sequence uint64 // of this plane; 0 for one of a plane before it
	at       time.Time
	revision delta.Revision // with which it was published, or would have been
	owners   []model.Object
	// count is how much of routing changed; 0 for a step that is of groups alone, or of
	// the mark alone, and no revision that anybody is shown.
	count int
	mark  *freezeMark
	// What it replaced, and by what; or, once the keeper has got to it, both packed.
	before, after picture
	packed        []byte
	stored        bool // the vault has it
}

// freezeMark says what a Freeze held that said no time itself.
type freezeMark struct {
	Since time.Time `json:"since"` // when it was created, by the API
	AsOf  time.Time `json:"asOf"`
}

// freeze is a Freeze that holds.
type freeze struct {
	since, asOf time.Time
	reason      string
	// lost says that this plane does not know the state that holds: it began later.
	// Machines are sent nothing then and keep what they have.
	lost bool
	pins translate.Pins
}

// history stands between what translation wants and what machines are sent. It knows the
// last steps of routing, and while it is frozen holds back every further one.
//
// Invariant: what is published of a key is held[key] where that has the key, else
// wanted[key]; of a view it is both.
type history struct {
	started time.Time // zero before everything was read
	began   time.Time // since when states are known: the start, or the oldest step that is left
	lacks   string    // why none before are; empty when there were none
	letGo   int       // steps
	known   bool      // the first translation is in
	wanted  routing
	held    routing
	groups  map[model.GroupID]*model.BackendGroup // in the result of the translation
	log     []*change                             // oldest first
	frozen  *freeze
	keeper  *keeper // packs what the log holds; nil: nobody does
	counted uint64  // steps of this plane
	trimmed int     // how much was packed ever, when their bytes were last counted
	// gone are certificates and authorities that were deleted while frozen.
	goneCertificates map[model.CertificateID]bool
	goneAuthorities  map[model.AuthorityID]bool
	names            map[ownedName]bool // what namesHeld found; nil when that is stale
}

func newHistory(k *keeper) *history {
	return &history{
		wanted: newRouting(), held: newRouting(), groups: map[model.GroupID]*model.BackendGroup{}, keeper: k,
		goneCertificates: map[model.CertificateID]bool{}, goneAuthorities: map[model.AuthorityID]bool{},
	}
}

// begin notes when everything was read.
func (h *history) begin(now time.Time) {
	h.started = now.Truncate(time.Microsecond) // what a Freeze can say
	h.began = h.started
}

// take notes what translation changed and returns what of it may be published. The first
// one is the state that the plane begins with, and no step.
func (h *history) take(ch translate.Changes, now time.Time, rev delta.Revision) translate.Changes {
	wants := routingOf(ch)
	h.names = nil
	if !h.known {
		h.known = true
		h.update(wants, ch.Groups)
		if h.keeper != nil {
			h.keeper.begin(h.began, rev, picture{h.wanted.clone(), maps.Clone(h.groups)})
		}
		return ch
	}
	h.note(picture{wants, ch.Groups}, now, rev)
	if h.frozen == nil {
		h.update(wants, ch.Groups)
		return ch
	}
	passed := newRouting()
	hold(h.wanted.listeners, h.held.listeners, wants.listeners)
	hold(h.wanted.hosts, h.held.hosts, wants.hosts)
	hold(h.wanted.tls, h.held.tls, wants.tls)
	hold(h.wanted.views, h.held.views, wants.views)
	h.update(wants, ch.Groups)
	for id := range wants.views {
		passed.views[id] = h.publishedView(id)
	}
	passed.into(&ch)
	ch.Certificates = keepPresent(ch.Certificates, h.goneCertificates)
	ch.Authorities = keepPresent(ch.Authorities, h.goneAuthorities)
	return ch
}

// takeGroups notes groups that came or went by pins, without any change of routing.
func (h *history) takeGroups(groups map[model.GroupID]*model.BackendGroup, now time.Time) {
	h.note(picture{groups: groups}, now, delta.Revision{})
	replace(h.groups, groups)
}

// update brings the wanted state up to what changed.
func (h *history) update(wants routing, groups map[model.GroupID]*model.BackendGroup) {
	replace(h.wanted.listeners, wants.listeners)
	replace(h.wanted.hosts, wants.hosts)
	replace(h.wanted.tls, wants.tls)
	replace(h.wanted.views, wants.views)
	replace(h.groups, groups)
}

// note writes a step into the log. Groups may go later than the routes that named them:
// what is pinned goes when routing thaws.
func (h *history) note(wants picture, now time.Time, rev delta.Revision) {
	if wants.size()+len(wants.groups) == 0 {
		return
	}
	h.add(&change{
		at: now, revision: rev, count: wants.size(), after: wants,
		owners: ownersOf(h.wanted, wants.routing),
		before: picture{
			routing{
				listeners: values(h.wanted.listeners, wants.listeners), hosts: values(h.wanted.hosts, wants.hosts),
				tls: values(h.wanted.tls, wants.tls), views: values(h.wanted.views, wants.views),
			}, values(h.groups, wants.groups),
		},
	})
}

// add puts a step behind the others. It waits when the keeper is far behind, never for a
// disk.
func (h *history) add(c *change) {
	// What a Freeze says has microseconds; and a clock may be set back.
	c.at = c.at.Truncate(time.Microsecond)
	if n := len(h.log); n > 0 && !c.at.After(h.log[n-1].at) {
		c.at = h.log[n-1].at.Add(time.Microsecond)
	}
	h.counted++
	c.sequence = h.counted
	h.log = append(h.log, c)
	h.trim()
	if h.keeper != nil {
		h.keeper.add(c)
	}
}

// trim lets the oldest steps go, beyond what may be kept.
func (h *history) trim() {
	total := h.keeper.total()
	if len(h.log) <= historyLimit && total < h.trimmed+trimEvery {
		return
	}
	h.trimmed = total
	size := 0
	keep := len(h.log)
	for ; keep > 0 && len(h.log)-keep < historyLimit; keep-- {
		packed, _ := h.keeper.look(h.log[keep-1])
		if size += len(packed); size > historyBytes {
			break
		}
	}
	for _, c := range h.log[:keep] {
		h.began = c.at
		if c.count > 0 {
			h.letGo++
		}
	}
	h.log = slices.Delete(h.log, 0, keep)
}

// namedOwners is how many objects a step names at most.
const namedOwners = 8

// name notes an object that the step is of.
func (c *change) name(o model.Object) {
	if len(c.owners) < namedOwners && !slices.Contains(c.owners, o) {
		c.owners = append(c.owners, o)
	}
}

// ownersOf are the first owners of changes to a state, sorted.
func ownersOf(before, changes routing) []model.Object {
	var c change
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

// last is the revision of the last step of routing; zero when there is none.
func (h *history) last() delta.Revision {
	for _, c := range slices.Backward(h.log) {
		if c.count > 0 {
			return c.revision
		}
	}
	return delta.Revision{}
}

// asOf is how many steps there are up to a time.
func (h *history) asOf(t time.Time) int {
	i, _ := slices.BinarySearchFunc(h.log, t, func(c *change, t time.Time) int {
		if c.at.After(t) {
			return 1
		}
		return -1
	})
	return i
}

// freeze holds the state as of a time, and returns the changes that lead there and what
// the state needs. Freezing again moves to another time. An error is a bug: the state is
// not known then.
func (h *history) freeze(f freeze) (routing, translate.Pins, error) {
	h.names = nil
	h.frozen = &f
	if f.asOf.Before(h.began) {
		f.lost = true
		return newRouting(), translate.Pins{}, nil
	}
	target, groups, err := h.turnBack(h.asOf(f.asOf))
	if err != nil {
		f.lost = true
		return newRouting(), translate.Pins{}, err
	}
	out := routing{
		listeners: turn(h.wanted.listeners, h.held.listeners, target.listeners), hosts: turn(h.wanted.hosts, h.held.hosts, target.hosts),
		tls: turn(h.wanted.tls, h.held.tls, target.tls), views: turn(h.wanted.views, h.held.views, target.views),
	}
	for id := range out.views {
		out.views[id] = h.publishedView(id)
	}
	f.pins = h.pins(groups)
	return out, f.pins, nil
}

// publishedView is a view as it is published while routing is frozen: what it had, and what it is to have. Which
// machines have a view, and where VIPs lead, is not held, and may have changed since.
func (h *history) publishedView(id model.ViewID) *model.View {
	held, is := h.held.views[id]
	wanted := h.wanted.views[id]
	switch {
	case !is || held == nil:
		return wanted
	case wanted == nil:
		return held
	}
	both := slices.Concat(held.Listeners, wanted.Listeners)
	slices.Sort(both)
	return &model.View{ID: id, Listeners: slices.Compact(both)}
}

// pins are what the published state uses.
func (h *history) pins(groups map[model.GroupID]*model.BackendGroup) translate.Pins {
	var p translate.Pins
	used := map[model.GroupID]bool{}
	use := func(ids []model.GroupID) {
		for _, id := range ids {
			if g := groups[id]; g != nil && !used[id] {
				used[id] = true
				p.Groups = append(p.Groups, *g)
			}
		}
	}
	for _, v := range published(h.wanted.hosts, h.held.hosts) {
		use(v.Groups())
	}
	for _, v := range published(h.wanted.tls, h.held.tls) {
		use(v.Groups())
		p.Certificates = append(p.Certificates, v.Certificates...)
	}
	for _, v := range published(h.wanted.listeners, h.held.listeners) {
		use(v.Groups())
		if v.ClientValidation != nil {
			p.Authorities = append(p.Authorities, v.ClientValidation.Authorities...)
		}
	}
	return p
}

// thaw lets everything through that was held back.
func (h *history) thaw() (routing, translate.Changes) {
	out := routing{
		listeners: values(h.wanted.listeners, h.held.listeners), hosts: values(h.wanted.hosts, h.held.hosts),
		tls: values(h.wanted.tls, h.held.tls), views: values(h.wanted.views, h.held.views),
	}
	var gone translate.Changes
	gone.Certificates, gone.Authorities = absent[model.CertificateID, model.Certificate](h.goneCertificates), absent[model.AuthorityID, model.Authority](h.goneAuthorities)
	clear(h.goneCertificates)
	clear(h.goneAuthorities)
	h.held, h.frozen, h.names = newRouting(), nil, nil
	return out, gone
}

// prepend puts steps of planes before this one before its own.
func (h *history) prepend(a adoption) error {
	h.lacks = a.lacks
	if len(h.log) > 0 && a.replaces < h.log[0].sequence-1 || len(a.steps) == 0 && !a.began.Before(h.began) {
		return nil // some own steps are gone already: they do not fit together
	}
	own := slices.IndexFunc(h.log, func(c *change) bool { return c.sequence > a.replaces })
	if own < 0 {
		own = len(h.log)
	}
	if n := len(a.steps); n > 0 && own < len(h.log) && !h.log[own].at.After(a.steps[n-1].at) {
		return errMoved
	}
	h.log = slices.Concat(a.steps, h.log[own:])
	h.began, h.letGo = a.began, a.letGo
	h.trim()
	return nil
}

// holds says whether a change of one of these hosts or listeners is held back.
func (h *history) holds(hosts []model.HostKey, listeners []model.ListenerID) bool {
	if h.frozen == nil {
		return false
	}
	if h.frozen.lost {
		return true
	}
	for _, k := range hosts {
		if _, is := h.held.hosts[k]; is {
			return true
		}
		if _, is := h.held.tls[k]; is {
			return true
		}
	}
	return slices.ContainsFunc(listeners, func(id model.ListenerID) bool { _, is := h.held.listeners[id]; return is })
}

// holdsName says whether the change of a server name is held back that an object has, or
// would have, at one of these listeners.
func (h *history) holdsName(owner model.Object, listeners []model.ListenerID) bool {
	if h.frozen == nil {
		return false
	}
	names := h.namesHeld()
	return slices.ContainsFunc(listeners, func(id model.ListenerID) bool { return names[ownedName{owner, id}] })
}

// ownedName is a server name's owner, and where it is: Gateways do not say which names
// they need, for they may have thousands.
type ownedName struct {
	owner    model.Object
	listener model.ListenerID
}

// namesHeld are the owners of the server names whose change is held back.
func (h *history) namesHeld() map[ownedName]bool {
	if h.names == nil {
		h.names = map[ownedName]bool{}
		for k, old := range h.held.tls {
			for _, v := range []*model.TLSHost{old, h.wanted.tls[k]} {
				if v != nil {
					h.names[ownedName{v.Owner, k.Listener}] = true
				}
			}
		}
	}
	return h.names
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

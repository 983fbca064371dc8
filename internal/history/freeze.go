package history

import (
	"maps"
	"slices"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
)

// Freeze is a Freeze that holds.
type Freeze struct {
	Since, AsOf time.Time
	Reason      string
	// Lost says that this plane does not know the state that holds: it began later.
	// Machines are sent nothing then and keep what they have.
	Lost bool
}

// Freeze holds the state as of a time, and returns the changes that lead there and what
// the state needs. Freezing again moves to another time. An error is a bug: the state is
// not known then.
func (h *History) Freeze(f Freeze) (Routing, translate.Pins, error) {
	h.names = nil
	h.frozen = &f
	if f.AsOf.Before(h.began) {
		f.Lost = true
		return newRouting(), translate.Pins{}, nil
	}
	target, groups, err := h.turnBack(h.asOf(f.AsOf))
	if err != nil {
		f.Lost = true
		return newRouting(), translate.Pins{}, err
	}
	out := Routing{
		listeners: turn(h.wanted.listeners, h.held.listeners, target.listeners), hosts: turn(h.wanted.hosts, h.held.hosts, target.hosts),
		tls: turn(h.wanted.tls, h.held.tls, target.tls), views: turn(h.wanted.views, h.held.views, target.views),
	}
	for id := range out.views {
		out.views[id] = h.publishedView(id)
	}
	return out, h.pins(groups), nil
}

// SetReason replaces the reason of the Freeze that holds.
func (h *History) SetReason(reason string) { h.frozen.Reason = reason }

// publishedView is a view as it is published while routing is frozen: what it had, and what it is to have. Which
// machines have a view, and where VIPs lead, is not held, and may have changed since.
func (h *History) publishedView(id model.ViewID) *model.View {
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
func (h *History) pins(groups map[model.GroupID]*model.BackendGroup) translate.Pins {
	var p translate.Pins
	used, certificates, authorities := map[model.GroupID]bool{}, map[model.CertificateID]bool{}, map[model.AuthorityID]bool{}
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
		for _, id := range v.Certificates {
			certificates[id] = true
		}
	}
	for _, v := range published(h.wanted.listeners, h.held.listeners) {
		use(v.Groups())
		if v.ClientValidation != nil {
			for _, id := range v.ClientValidation.Authorities {
				authorities[id] = true
			}
		}
	}
	p.Certificates, p.Authorities = slices.Sorted(maps.Keys(certificates)), slices.Sorted(maps.Keys(authorities))
	return p
}

// Thawed is what a Freeze held back: routing, and the certificates and authorities that are gone.
type Thawed struct {
	Routing
	certificates map[model.CertificateID]*model.Certificate
	authorities  map[model.AuthorityID]*model.Authority
}

// Under adds what was held back to changes, which go first.
func (t Thawed) Under(ch *translate.Changes) {
	maps.Copy(t.certificates, ch.Certificates)
	maps.Copy(t.authorities, ch.Authorities)
	ch.Certificates, ch.Authorities = t.certificates, t.authorities
	t.Routing.Under(ch)
}

// Thaw lets everything through that was held back.
func (h *History) Thaw() Thawed {
	out := Thawed{certificates: absent[model.CertificateID, model.Certificate](h.goneCertificates), authorities: absent[model.AuthorityID, model.Authority](h.goneAuthorities)}
	out.Routing = Routing{
		listeners: values(h.wanted.listeners, h.held.listeners), hosts: values(h.wanted.hosts, h.held.hosts),
		tls: values(h.wanted.tls, h.held.tls), views: values(h.wanted.views, h.held.views),
	}
	clear(h.goneCertificates)
	clear(h.goneAuthorities)
	h.held, h.frozen, h.names = newRouting(), nil, nil
	return out
}

// Holds says whether a change of one of these hosts or listeners is held back.
func (h *History) Holds(hosts []model.HostKey, listeners []model.ListenerID) bool {
	if h.frozen == nil {
		return false
	}
	if h.frozen.Lost {
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

// holdsServerName says whether the change of a server name is held back that an object has, or
// would have, at one of these listeners.
func (h *History) holdsServerName(owner model.Object, listeners []model.ListenerID) bool {
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
func (h *History) namesHeld() map[ownedName]bool {
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

// FreezeTime is the time whose state a Freeze holds that names none. created is when it was made, in
// whole seconds, as the API says.
func (h *History) FreezeTime(created, now time.Time) time.Time {
	if !created.Before(h.started.Truncate(time.Second)) {
		// A change of the same second may have come before or after; what is published holds.
		return now
	}
	for _, c := range h.log { // a plane before this one held it
		if c.mark != nil && c.mark.Since.Equal(created) {
			return c.mark.AsOf
		}
	}
	return created
}

// Mark notes the time whose state a Freeze holds, for a plane after this one.
func (h *History) Mark(m Mark, now time.Time) {
	if !slices.ContainsFunc(h.log, func(c *Step) bool { return c.mark != nil && *c.mark == m }) {
		h.add(&Step{at: now, mark: &m})
	}
}

// HeldText is the reason why the change of an object that needs these hosts and listeners is held
// back; empty: it is not.
func (h *History) HeldText(o model.Object, hosts []model.HostKey, listeners []model.ListenerID) string {
	if !h.Holds(hosts, listeners) && !h.holdsServerName(o, listeners) {
		return ""
	}
	text := "its change is held back: routing is frozen since " + h.frozen.Since.UTC().Format(time.RFC3339)
	if h.frozen.Reason != "" {
		text += " (" + h.frozen.Reason + ")"
	}
	return text + "; `fairlead unfreeze` lets it through"
}

// FreezeStatus is the Freeze that holds, for people; nil: none does.
func (h *History) FreezeStatus() *model.FreezeStatus {
	if h.frozen == nil {
		return nil
	}
	return &model.FreezeStatus{
		Since: h.frozen.Since, AsOf: h.frozen.AsOf, Reason: h.frozen.Reason, Held: h.held.Size(), Unknown: h.frozen.Lost,
	}
}

// Revisions are the steps of routing that can be turned back, newest first, and the state before
// them. epoch is that of the plane; kept says whether a step outlives it.
func (h *History) Revisions(epoch uint64, kept func(*Step) bool) []model.Revision {
	out := []model.Revision{}
	for _, step := range slices.Backward(h.log) {
		if step.count == 0 {
			continue
		}
		out = append(out, model.Revision{
			Number: step.revision.Number, Epoch: step.revision.Epoch, At: step.at, Changes: step.count, Owners: step.owners,
			Held: h.frozen != nil && step.at.After(h.frozen.AsOf), Kept: kept(step),
		})
	}
	return append(out, model.Revision{At: h.began, Epoch: epoch, First: true, LetGo: h.letGo, Lacks: h.lacks})
}

// Hosts are the virtual hosts as they are published.
func (h *History) Hosts() map[model.HostKey]*model.VirtualHost {
	return published(h.wanted.hosts, h.held.hosts)
}

// Since is since when states are known; zero before everything was read.
func (h *History) Since() time.Time { return h.began }

// Frozen is the Freeze that holds; nil: none does. It must not be changed.
func (h *History) Frozen() *Freeze { return h.frozen }

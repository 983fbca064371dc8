package plane

import (
	"context"
	"maps"
	"slices"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// ReasonFrozen is why an object is not programmed whose change a Freeze holds back.
const ReasonFrozen = "Frozen"

// followFreeze brings the history in line with the Freeze in the API.
func (l *loop) followFreeze() {
	o := l.snapshot.Freezes[snapshot.Name{Name: v1alpha1.FreezeName}]
	is := l.history.frozen
	switch {
	case o == nil && is == nil:
		return
	case o == nil:
		l.thaw()
		return
	}
	f := freeze{since: o.CreationTimestamp.Time, reason: o.Spec.Reason}
	switch {
	case o.Spec.AsOf != nil:
		f.asOf = o.Spec.AsOf.Time
	case is != nil && !is.lost:
		f.asOf = is.asOf
	default:
		f.asOf = l.history.frozenAt(f.since, l.plane.config.Now())
	}
	if is != nil && is.asOf.Equal(f.asOf) && is.lost == f.asOf.Before(l.history.began) {
		is.reason = f.reason
		return
	}
	l.freeze(f)
	if o.Spec.AsOf == nil && !l.history.frozen.lost {
		l.history.mark(freezeMark{Since: f.since, AsOf: f.asOf}, l.plane.config.Now())
	}
}

// frozenAt is the time whose state a Freeze holds that says none itself. The API gives in
// seconds when it was created.
func (h *history) frozenAt(created, now time.Time) time.Time {
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

// mark notes what a Freeze holds, for a plane after this one.
func (h *history) mark(m freezeMark, now time.Time) {
	if !slices.ContainsFunc(h.log, func(c *change) bool { return c.mark != nil && *c.mark == m }) {
		h.add(&change{at: now, mark: &m})
	}
}

func (l *loop) freeze(f freeze) {
	log := l.plane.config.Log
	old := l.history.frozen
	turned, pins, err := l.history.freeze(f)
	if err != nil {
		log.Error("a bug: the state cannot be turned back", "as_of", f.asOf, "error", err)
	}
	l.translator.Pin(pins)
	ch := l.translator.Apply(l.snapshot, nil)
	if old != nil {
		l.translator.Unpin(old.pins)
	}
	l.history.takeGroups(ch.Groups, l.plane.config.Now())
	if l.history.frozen.lost {
		l.send(ch)
		log.Warn("routing is frozen as of a time that this plane does not know; machines are sent nothing and keep what they have", "as_of", f.asOf, "reason", f.reason)
		l.place()
		return
	}
	log.Warn("routing is frozen", "as_of", f.asOf, "reason", f.reason, "changes_turned_back", turned.size())
	turned.into(&ch)
	l.send(ch)
	l.place()
}

func (l *loop) thaw() {
	old := *l.history.frozen
	freed, gone := l.history.thaw()
	l.translator.Unpin(old.pins)
	ch := l.translator.Apply(l.snapshot, nil)
	ch = l.history.take(ch, l.plane.config.Now(), l.rev)
	maps.Copy(freed.listeners, ch.Listeners)
	maps.Copy(freed.hosts, ch.VirtualHosts)
	maps.Copy(freed.tls, ch.TLSHosts)
	maps.Copy(freed.views, ch.Views)
	freed.into(&ch)
	for id := range gone.Certificates {
		if _, known := ch.Certificates[id]; !known {
			ch.Certificates[id] = nil
		}
	}
	for id := range gone.Authorities {
		if _, known := ch.Authorities[id]; !known {
			ch.Authorities[id] = nil
		}
	}
	l.plane.config.Log.Warn("routing is frozen no more", "changes_let_through", freed.size(), "frozen_for", l.plane.config.Now().Sub(old.since).Round(time.Second))
	l.send(ch)
	if old.lost {
		l.place()
		maps.Copy(l.due, l.tracker.all())
	}
}

// frozenText says why what an object needs is held back, or nothing.
func (h *history) frozenText(n *target) string {
	if !h.holds(n.hosts, n.listeners) && !h.holdsName(n.object, n.listeners) {
		return ""
	}
	text := "its change is held back: routing is frozen since " + h.frozen.since.UTC().Format(time.RFC3339)
	if h.frozen.reason != "" {
		text += " (" + h.frozen.reason + ")"
	}
	return text + "; `fairlead unfreeze` lets it through"
}

// freezeStatus is what people see of it.
func (h *history) freezeStatus() *model.FreezeStatus {
	if h.frozen == nil {
		return nil
	}
	return &model.FreezeStatus{
		Since: h.frozen.since, AsOf: h.frozen.asOf, Reason: h.frozen.reason, Held: h.held.size(), Unknown: h.frozen.lost,
	}
}

// adopt takes steps of planes before this one. A Freeze whose state was not known may hold
// one that is.
func (l *loop) adopt(a adoption) error {
	if err := l.history.prepend(a); err != nil {
		return err
	}
	if len(a.steps) > 0 {
		l.plane.config.Log.Info("revisions of planes before this one are known", "since", a.began, "steps", len(a.steps))
	}
	l.followFreeze()
	return nil
}

// Revisions are the changes of routing that can be turned back, newest first. Nobody may change them.
func (p *Plane) Revisions(ctx context.Context) ([]model.Revision, error) {
	return p.revisions.get(ctx, p, (*loop).revisions)
}

// revisions are the steps of routing that can be turned back, newest first.
func (l *loop) revisions() []model.Revision {
	out := []model.Revision{}
	h := l.history
	for _, step := range slices.Backward(h.log) {
		if step.count == 0 {
			continue
		}
		out = append(out, model.Revision{
			Number: step.revision.Number, Epoch: step.revision.Epoch, At: step.at, Changes: step.count, Owners: step.owners,
			Held: h.frozen != nil && step.at.After(h.frozen.asOf), Kept: h.keeper.has(step),
		})
	}
	return append(out, model.Revision{At: h.began, Epoch: l.rev.Epoch, First: true, LetGo: h.letGo, Lacks: h.lacks})
}

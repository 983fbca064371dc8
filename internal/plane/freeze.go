package plane

import (
	"context"
	"maps"
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
	f := freeze{since: o.CreationTimestamp.Time, asOf: o.CreationTimestamp.Time, reason: o.Spec.Reason}
	switch {
	case o.Spec.AsOf != nil:
		f.asOf = o.Spec.AsOf.Time
	case is == nil && !l.history.follows(f.since):
		// A change of the second in which the Freeze was created may have come before or
		// after; what is published holds.
		f.asOf = l.plane.config.Now()
	case is != nil:
		f.asOf = is.asOf
	}
	if is != nil && is.asOf.Equal(f.asOf) {
		is.reason = f.reason
		return
	}
	l.freeze(f)
}

// follows says whether this plane began to know routing after a time, which the API gives
// in seconds.
func (h *history) follows(created time.Time) bool {
	return created.Before(h.began.Truncate(time.Second))
}

func (l *loop) freeze(f freeze) {
	log := l.plane.config.Log
	old := l.history.frozen
	turned, pins := l.history.freeze(f)
	l.translator.Pin(pins)
	ch := l.translator.Apply(l.snapshot, nil)
	if old != nil {
		l.translator.Unpin(old.pins)
	}
	if l.history.frozen.lost {
		log.Warn("routing is frozen as of a time that this plane does not know; machines are sent nothing and keep what they have", "as_of", f.asOf, "reason", f.reason)
		l.place()
		return
	}
	log.Warn("routing is frozen", "as_of", f.asOf, "reason", f.reason, "changes_turned_back", turned.size())
	l.history.adopt(newRouting(), ch.Groups)
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

// Revisions are the changes of routing that can be turned back, newest first.
func (p *Plane) Revisions(ctx context.Context) ([]model.Revision, error) {
	var list []model.Revision
	err := p.ask(ctx, func(l *loop) { list = l.revisions() })
	return list, err
}

// revisions are the steps of routing that can be turned back, newest first.
func (l *loop) revisions() []model.Revision {
	out := []model.Revision{}
	h := l.history
	for i := len(h.log) - 1; i >= 0; i-- {
		step := h.log[i]
		out = append(out, model.Revision{
			Number: step.revision.Number, Epoch: step.revision.Epoch, At: step.at, Changes: step.count, Owners: step.owners,
			Held: h.frozen != nil && step.at.After(h.frozen.asOf),
		})
	}
	return append(out, model.Revision{At: h.began, Epoch: l.rev.Epoch, First: true})
}

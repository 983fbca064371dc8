package plane

import (
	"context"
	"maps"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/history"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// followFreeze brings the history in line with the Freeze in the API.
func (l *loop) followFreeze() {
	o := l.snapshot.Freezes[snapshot.Name{Name: v1alpha1.FreezeName}]
	is := l.history.Frozen()
	switch {
	case o == nil && is == nil:
		return
	case o == nil:
		l.thaw()
		return
	}
	f := history.Freeze{Since: o.CreationTimestamp.Time, Reason: o.Spec.Reason}
	switch {
	case o.Spec.AsOf != nil:
		f.AsOf = o.Spec.AsOf.Time
	case is != nil && !is.Lost:
		f.AsOf = is.AsOf
	default:
		f.AsOf = l.history.FreezeTime(f.Since, l.plane.config.Now())
	}
	if is != nil && is.AsOf.Equal(f.AsOf) && is.Lost == f.AsOf.Before(l.history.Since()) {
		l.history.SetReason(f.Reason)
		return
	}
	l.freeze(f)
	if o.Spec.AsOf == nil && !l.history.Frozen().Lost {
		l.history.Mark(history.Mark{Since: f.Since, AsOf: f.AsOf}, l.plane.config.Now())
	}
}

func (l *loop) freeze(f history.Freeze) {
	log := l.plane.config.Log
	turned, pins, err := l.history.Freeze(f)
	if err != nil {
		log.Error("a bug: the state cannot be turned back", "as_of", f.AsOf, "error", err)
	}
	unpin := l.translator.Pin(pins)
	ch := l.translator.Apply(l.snapshot, nil)
	if l.unpin != nil {
		l.unpin()
	}
	l.unpin = unpin
	l.history.ApplyGroups(ch.Groups, l.plane.config.Now())
	if l.history.Frozen().Lost {
		l.publish(ch)
		log.Warn("routing is frozen at a time before this plane's history; machines receive nothing and keep their configuration", "as_of", f.AsOf, "reason", f.Reason)
		l.placeMachines()
		return
	}
	log.Warn("routing is frozen", "as_of", f.AsOf, "reason", f.Reason, "changes_turned_back", turned.Size())
	turned.Into(&ch)
	l.publish(ch)
	l.placeMachines()
}

func (l *loop) thaw() {
	old := *l.history.Frozen()
	freed := l.history.Thaw()
	l.unpin()
	l.unpin = nil
	ch := l.translator.Apply(l.snapshot, nil)
	ch = l.history.Apply(ch, l.plane.config.Now(), l.rev)
	freed.Under(&ch)
	l.plane.config.Log.Warn("routing is unfrozen", "changes_let_through", freed.Size(), "frozen_for", l.plane.config.Now().Sub(old.Since).Round(time.Second))
	l.publish(ch)
	if old.Lost {
		l.placeMachines()
		maps.Copy(l.due, l.tracker.All())
	}
}

// adopt puts the steps of planes before this one before its own. The state of a Freeze may be known
// then.
func (l *loop) adopt(a history.Adoption) error {
	if err := l.history.Prepend(a); err != nil {
		return err
	}
	if len(a.Steps) > 0 {
		l.plane.config.Log.Info("revisions of planes before this one are known", "since", a.Began, "steps", len(a.Steps))
	}
	l.followFreeze()
	return nil
}

// Revisions are the changes of routing that can be turned back, newest first. Nobody may change them.
func (p *Plane) Revisions(ctx context.Context) ([]model.Revision, error) {
	return p.revisions.get(ctx, p, (*loop).revisions)
}

func (l *loop) revisions() []model.Revision {
	return l.history.Revisions(l.rev.Epoch, l.plane.keeper.has)
}

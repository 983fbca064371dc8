package plane

import (
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

const (
	// tellEvery is the least time between two lines of the log about what was published: while somebody writes without a pause,
	// a line tells of all that was written since the one before.
	tellEvery = time.Second
	// tellEndpointsEvery is the same where nothing but endpoints changed, which no person did.
	tellEndpointsEvery = time.Minute
	// tellObjects bounds the objects of which names are kept.
	tellObjects = 100
)

// announcements is what was published and the log does not say yet.
type announcements struct {
	since   delta.Revision // before the first of these publications
	pending bool
	names   map[string]bool // of objects that somebody changed
	objects int             // changes of such objects
	slices  int             // changes of EndpointSlices
	last    time.Time       // when the last line was written
}

// announce notes what a batch published, for the log. seen are the objects before, and before is the revision then.
func (l *loop) announce(seen []snapshot.Object, b snapshot.Batch, before delta.Revision) {
	a := &l.announcements
	if seen == nil || l.rev == before {
		return
	}
	if !a.pending {
		a.pending, a.since, a.names = true, before, map[string]bool{}
	}
	for i, c := range b.Changes {
		switch {
		case isRecorded(seen[i], c):
			a.objects++
			if len(a.names) < tellObjects {
				a.names[object(c.Key).String()] = true
			}
		case c.Key.Kind == snapshot.KindEndpointSlice:
			a.slices++
		}
	}
	l.tellPublished()
}

// tellPublished writes a line about what was published, if it is time for one. A plane that serves no agents has published for
// nobody.
func (l *loop) tellPublished() {
	a := &l.announcements
	if !a.pending {
		return
	}
	if l.plane.serving.Load() == 0 {
		*a = announcements{last: a.last}
		return
	}
	pause := tellEvery
	if a.objects == 0 {
		pause = tellEndpointsEvery
	}
	now := l.plane.config.Now()
	if passed := now.Sub(a.last); passed >= 0 && passed < pause {
		return
	}
	machines := 0
	for name := range l.machines {
		if _, wanted := l.plane.views.Placed(name); a.since.Compare(wanted) < 0 {
			machines++
		}
	}
	said := []any{"revision", l.rev, "machines", machines}
	if a.objects > 0 {
		var names []string
		for name := range a.names {
			names = append(names, name)
		}
		said = append(said, "changes", a.objects, "objects", model.List(names, ", "))
	}
	if a.slices > 0 {
		said = append(said, "endpoint_slices", a.slices)
	}
	if l.history.Frozen() != nil {
		said = append(said, "frozen", true)
	}
	l.plane.config.Log.Info("published", said...)
	*a = announcements{last: now}
}

package plane

import (
	crand "crypto/rand"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/collector"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/trail"
)

const (
	// maxFollowed is how many revisions are followed to the machines at a time. One more ends the oldest.
	maxFollowed = 64
	// followedFor is how long a revision is followed: a machine that does not run it by then is shown as such.
	followedFor = time.Minute
)

// stages are when the batch of changes that the loop carries out went through each step.
type stages struct{ received, translated, published time.Time }

// traces are the revisions with changes that not every machine runs yet, the oldest first.
type traces struct {
	followed []*followed
	send     func(trail.Trail)
}

type followed struct {
	trail    trail.Trail
	rev      delta.Revision
	machines map[string]*trail.Machine // that the revision concerns
	waits    map[string]bool           // for those of them that are connected
}

func newTraceCounts() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "change_traces_total",
		Help: "Traces of changes, by what became of them: sent to the collector, refused by it, or dropped.",
	}, []string{"result"})
	for _, r := range collector.Results() {
		c.WithLabelValues(string(r))
	}
	return c
}

func (m *metrics) countTraces(r collector.Result, n int) {
	m.traces.WithLabelValues(string(r)).Add(float64(n))
}

// traceChanges begins the trace of the changes that a batch has brought to machines with rev.
func (l *loop) traceChanges(seen []snapshot.Object, b snapshot.Batch, rev delta.Revision) {
	if l.plane.collector == nil || rev.Number == 0 {
		return
	}
	t := trail.Trail{
		Epoch: rev.Epoch, Revision: rev.Number, Received: l.stages.received, Translated: l.stages.translated, Published: l.stages.published,
	}
	for i, c := range b.Changes {
		switch {
		case !isRecorded(seen[i], c):
		case len(t.Objects) == trail.MaxObjects:
			t.MoreObjects++
		default:
			t.Objects = append(t.Objects, l.tracedObject(seen[i], c))
		}
	}
	if len(t.Objects) == 0 {
		return
	}
	now := l.plane.config.Now()
	if len(l.traces.followed) == maxFollowed {
		clear(l.traces.followed[0].waits)
		l.traces.finish(now)
	}
	_, _ = crand.Read(t.ID[:]) // it cannot fail
	if l.traces.send == nil {
		l.traces.send = func(t trail.Trail) { l.plane.collector.Send(t.Spans()) }
	}
	f := &followed{trail: t, rev: rev, machines: map[string]*trail.Machine{}, waits: map[string]bool{}}
	concerned := l.plane.views.Concerned()
	for _, name := range concerned {
		f.machines[name] = &trail.Machine{Name: name}
		if state, known := l.plane.server.Machine(name); known && state.Connected {
			f.waits[name] = true
		}
	}
	l.traces.followed = append(l.traces.followed, f)
	for _, name := range concerned {
		l.followTraces(name) // it may have been quick
	}
	l.traces.finish(now)
}

func (l *loop) tracedObject(before snapshot.Object, c snapshot.Change) trail.Object {
	o := trail.Object{Object: object(c.Key), Verb: model.ChangeChanged, Seen: c.Seen}
	switch {
	case c.Object == nil:
		o.Verb = model.ChangeDeleted
		return o
	case before == nil:
		o.Verb = model.ChangeCreated
	}
	o.Who = l.plane.recorder.stamp.author(c.Object)
	return o
}

// followTraces notes which of the followed revisions a machine has acknowledged, and which it runs.
func (l *loop) followTraces(name string) {
	if len(l.traces.followed) == 0 {
		return
	}
	state, known := l.plane.server.Machine(name)
	if !known {
		return
	}
	now, ended := l.plane.config.Now(), false
	for _, f := range l.traces.followed {
		m := f.machines[name]
		if m == nil {
			continue
		}
		if m.Acknowledged.IsZero() && state.Delivered.Compare(f.rev) >= 0 {
			m.Acknowledged = now
		}
		if m.Active.IsZero() && state.Applied.Compare(f.rev) >= 0 {
			m.Active = now
			delete(f.waits, name)
			ended = ended || len(f.waits) == 0
		}
	}
	if ended {
		l.traces.finish(now)
	}
}

// expire ends the traces that have been followed for long enough.
func (t *traces) expire(now time.Time) {
	for _, f := range t.followed {
		if now.Sub(f.trail.Published) > followedFor {
			clear(f.waits)
		}
	}
	t.finish(now)
}

// finish sends the traces that wait for no machine.
func (t *traces) finish(now time.Time) {
	t.followed = slices.DeleteFunc(t.followed, func(f *followed) bool {
		if len(f.waits) > 0 {
			return false
		}
		f.trail.Ended = now
		for _, name := range slices.Sorted(maps.Keys(f.machines)) {
			f.trail.Machines = append(f.trail.Machines, *f.machines[name])
		}
		t.send(f.trail)
		return true
	})
}

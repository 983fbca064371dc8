package plane

import (
	"slices"
	"time"

	"fairlead.dev/internal/delta"
)

// maxPublications bounds the publications whose times are remembered.
const maxPublications = 4096

// publication is when a revision was handed to the streams of machines.
type publication struct {
	revision delta.Revision
	at       time.Time
}

func (l *loop) timePublished(rev delta.Revision) {
	if len(l.published) == maxPublications {
		l.published = slices.Clone(l.published[maxPublications/2:])
	}
	l.published = append(l.published, publication{rev, l.plane.config.Now()})
}

// timeApplied notes how long a machine took to run what concerned it.
func (l *loop) timeApplied(name string, now *standing) {
	if now == nil {
		return
	}
	rev, is := l.plane.views.Reached(name, now.applied)
	if !is {
		return
	}
	i, known := slices.BinarySearchFunc(l.published, rev, func(p publication, r delta.Revision) int { return p.revision.Compare(r) })
	if known {
		l.plane.metrics.applied.Observe(l.plane.config.Now().Sub(l.published[i].at).Seconds())
	}
}

package progress

import (
	"slices"
	"time"

	"fairlead.dev/internal/delta"
)

// maxPublications bounds the publications whose times are remembered.
const maxPublications = 4096

// Publications are the last revisions that were handed to the streams of machines, and when. The
// zero value is ready.
type Publications struct{ list []publication }

type publication struct {
	revision delta.Revision
	at       time.Time
}

// Add notes a publication; revisions grow.
func (p *Publications) Add(rev delta.Revision, at time.Time) {
	if len(p.list) == maxPublications {
		p.list = slices.Clone(p.list[maxPublications/2:])
	}
	p.list = append(p.list, publication{rev, at})
}

// At is when a revision was published, if that is remembered.
func (p *Publications) At(rev delta.Revision) (time.Time, bool) {
	i, known := slices.BinarySearchFunc(p.list, rev, func(p publication, r delta.Revision) int { return p.revision.Compare(r) })
	if !known {
		return time.Time{}, false
	}
	return p.list[i].at, true
}

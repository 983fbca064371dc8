package file

import "fairlead.dev/internal/snapshot"

// Positions are where the objects of a snapshot stand.
type Positions struct{ at map[snapshot.Key]lines }

// Where is "file:line" of a field of an object, or of the last part of its path that is
// there: what is left out is decided by what stands around it. It is empty for an object
// that was not read.
func (p Positions) Where(k snapshot.Key, field string) string {
	at, known := p.at[k]
	if !known {
		return ""
	}
	return at.where(field)
}

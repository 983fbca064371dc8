package delta

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Revision orders everything that a plane publishes: first by the epoch of its
// lease, then by a number that grows within the epoch. The zero value is before
// every published revision.
type Revision struct {
	Epoch, Number uint64
}

// Compare returns -1, 0 or +1 as r is before, equal to or after o.
func (r Revision) Compare(o Revision) int {
	return cmp.Or(cmp.Compare(r.Epoch, o.Epoch), cmp.Compare(r.Number, o.Number))
}

// String gives the form that travels in system_version_info: "<epoch>/<number>".
func (r Revision) String() string {
	return strconv.FormatUint(r.Epoch, 10) + "/" + strconv.FormatUint(r.Number, 10)
}

// ParseRevision reads what String gives.
func ParseRevision(s string) (Revision, error) {
	epoch, number, ok := strings.Cut(s, "/")
	if !ok {
		return Revision{}, fmt.Errorf("parse revision %q: want <epoch>/<number>", s)
	}
	e, err := strconv.ParseUint(epoch, 10, 64)
	if err != nil {
		return Revision{}, fmt.Errorf("parse epoch of revision %q: %w", s, err)
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return Revision{}, fmt.Errorf("parse number of revision %q: %w", s, err)
	}
	return Revision{Epoch: e, Number: n}, nil
}

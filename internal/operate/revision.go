package operate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/delta"
)

// ErrSyntax is the class of texts that name no revision.
var ErrSyntax = errors.New("no revision")

// syntaxError is an ErrSyntax without its words.
type syntaxError struct{ error }

func (syntaxError) Is(target error) bool { return target == ErrSyntax }

// FindRevision finds the revision that a text names: a number of the leading plane's up to the newest, one of an earlier
// epoch (EPOCH/NUMBER), a time, or "start", the oldest state. The list is the plane's, newest first, and not empty.
func FindRevision(list []v1.Revision, newest delta.Revision, text string) (v1.Revision, error) {
	if text == "start" {
		return list[len(list)-1], nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		for _, r := range list {
			if !r.At.After(at) {
				return r, nil
			}
		}
		return v1.Revision{}, fmt.Errorf("what held at %s is not known: the oldest state is of %s, as 'fairlead revisions' says", text, list[len(list)-1].At.UTC().Format(time.RFC3339))
	}
	want := delta.Revision{Epoch: newest.Epoch}
	var err error
	if strings.Contains(text, "/") {
		want, err = delta.ParseRevision(text)
	} else {
		want.Number, err = strconv.ParseUint(text, 10, 64)
	}
	if err != nil {
		return v1.Revision{}, syntaxError{fmt.Errorf("revision %q: want a number that 'fairlead revisions' lists, EPOCH/NUMBER, a time such as 2026-01-31T09:30:00Z, or start", text)}
	}
	earlier := "" // what a bare number of before a restart means
	if i := slices.IndexFunc(list, func(r v1.Revision) bool { return !r.First && r.Number == want.Number && r.Epoch != newest.Epoch }); i >= 0 && want.Epoch == newest.Epoch {
		earlier = "; a plane before it had one, " + list[i].NameAt(newest.Epoch)
	}
	if want.Compare(newest) > 0 {
		if earlier != "" {
			return v1.Revision{}, fmt.Errorf("there is no revision %s yet: the plane is at %d%s", text, newest.Number, earlier)
		}
		return v1.Revision{}, fmt.Errorf("there is no revision %s yet: the plane is at %d, and 'fairlead revisions' lists the revisions that it can revert to", text, newest.Number)
	}
	// A revision between two that changed routing is the earlier one of them.
	for _, r := range list {
		if !r.First && r.Epoch == want.Epoch && r.Number <= want.Number {
			return r, nil
		}
	}
	return v1.Revision{}, fmt.Errorf("the plane knows no revision of routing up to %s%s: 'fairlead revisions' lists the revisions that it can revert to", text, earlier)
}

package plane

import (
	"fmt"
	"slices"
	"strings"

	"fairlead.dev/internal/near"
	"fairlead.dev/internal/snapshot"
)

// ChangedKinds are the kinds of objects whose changes are kept.
func ChangedKinds() (kinds []string) {
	for _, k := range snapshot.Kinds() {
		if k != snapshot.KindEndpointSlice { // they change with each pod
			kinds = append(kinds, string(k))
		}
	}
	return kinds
}

// ChangedKind is why no changes of a kind of objects are kept, whatever the case of its letters; nil: they are.
func ChangedKind(kind string) error {
	kinds := ChangedKinds()
	if slices.ContainsFunc(kinds, func(k string) bool { return strings.EqualFold(k, kind) }) {
		return nil
	}
	last := len(kinds) - 1
	return fmt.Errorf("no changes are kept of kind %q, only of %s and %s%s", kind, strings.Join(kinds[:last], ", "), kinds[last], near.DidYouMean(kind, kinds))
}

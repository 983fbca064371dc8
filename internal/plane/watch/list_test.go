package watch

import (
	"context"
	"testing"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/listing"
	"fairlead.dev/internal/model"
)

// TestOtherEpochsBeginAnew: a position of another plane's list says nothing of this one.
func TestOtherEpochsBeginAnew(t *testing.T) {
	f := NewList(func(model.RouteRow) string { return "" })
	f.Change(delta.Revision{Epoch: 3, Number: 7}, func(l *listing.List[model.RouteRow]) { l.Put("k", []model.RouteRow{{Host: "a"}}) })
	u, err := f.Follow(t.Context(), 3, nil, "")
	if err != nil || !u.Reset || u.At != (console.Position{Epoch: 3, Revision: 7, Change: 1}) {
		t.Fatalf("the list begins with %+v: %v", u, err)
	}
	if u, err = f.Follow(t.Context(), 4, &u.At, ""); err != nil || !u.Reset {
		t.Errorf("in another epoch it is told %+v: %v", u, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if u, err = f.Follow(ctx, 4, &u.At, ""); err == nil {
		t.Errorf("nothing has changed, and it is told %+v", u)
	}
}

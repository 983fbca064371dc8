package agent

import (
	"context"
	"errors"
	"slices"
	"testing"

	"fairlead.dev/internal/delta"
)

// TestEveryTypeIsWired: what a plane is asked for has a part that receives it, and what a part
// receives is asked for.
func TestEveryTypeIsWired(t *testing.T) {
	a := idle(t, Config{})
	received := []delta.Type{typeMachine, typeCheckpoint} // by all parts, with commit
	for _, p := range a.parts {
		received = append(received, p.types...)
	}
	for _, typ := range planeTypes {
		if !slices.Contains(received, typ) {
			t.Errorf("nobody receives %s", typ)
		}
	}
	for _, typ := range received {
		if !slices.Contains(a.desired.types, typ) {
			t.Errorf("%s is not asked for", typ)
		}
	}
	if last := a.desired.types[len(a.desired.types)-1]; last != typeCheckpoint {
		t.Errorf("%s is asked for last: a checkpoint speaks of all before it", last)
	}
}

// TestTogether: the first failure ends the others and is what is said; ends that were asked for
// are no failures.
func TestTogether(t *testing.T) {
	broken := errors.New("broken")
	waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	if err := together(t.Context(), waits, func(context.Context) error { return broken }, waits); !errors.Is(err, broken) {
		t.Errorf("it ended with %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := together(ctx, waits, func(context.Context) error { return nil }); err != nil {
		t.Errorf("it was ended, and ended with %v", err)
	}
}

// TestSignalsAreOne until somebody looks.
func TestSignalsAreOne(t *testing.T) {
	one, other := newSignal(), newSignal()
	var e event
	e.wakes(one, other)
	e.raise()
	e.raise()
	<-one
	<-other
	select {
	case <-one:
		t.Error("it was woken twice")
	default:
	}
}

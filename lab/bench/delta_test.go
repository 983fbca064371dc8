package bench

import (
	"context"
	"errors"
	"testing"
)

func TestDelta(t *testing.T) {
	r, err := Delta(t.Context(), DeltaOptions{Resources: []int{50, 500}, Subscribers: []int{1, 20}, Rounds: 5})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 4 {
		t.Fatalf("%d rows, want 4", len(r.Rows))
	}
	for _, row := range r.Rows {
		if row.MicrosPerSubscriber <= 0 || row.BytesPerSubscriber < 100 || row.UnconcernedWakes != 0 || row.UnconcernedSubscribers == 0 {
			t.Errorf("implausible row %+v", row)
		}
		if row.BytesPerSubscriber > r.Rows[0].BytesPerSubscriber+8 {
			t.Errorf("the bytes of one change grow with the world: %+v", r.Rows)
		}
	}
}

func TestDeltaStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Delta(ctx, DeltaOptions{Resources: []int{10}, Subscribers: []int{1}}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

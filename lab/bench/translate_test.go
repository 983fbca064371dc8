package bench

import (
	"context"
	"errors"
	"testing"
)

func TestTranslate(t *testing.T) {
	// The benchmark checks each change itself.
	r, err := Translate(t.Context(), TranslateOptions{Routes: 400, Endpoints: 2_001, Large: 250, Changes: 401, Full: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r.Hosts != 300 || r.FullMillis <= 0 || r.EndpointMicros <= 0 || r.LargeMicros <= 0 || r.RouteMicros <= 0 || r.NewRouteMicros <= 0 ||
		r.EndpointMicrosP99 < r.EndpointMicros || r.RouteMicrosP99 < r.RouteMicros {
		t.Errorf("implausible figures: %+v", r)
	}
}

func TestTranslateStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Translate(ctx, TranslateOptions{Routes: 8, Endpoints: 8, Large: 1, Changes: 1, Full: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped with %v", err)
	}
}

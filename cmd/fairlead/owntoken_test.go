package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"fairlead.dev/internal/agent"
)

// TestOwnTokenIsOneAndSoon: the agent of `up` gets one token, however often it asks, and none when it
// first asks late.
func TestOwnTokenIsOneAndSoon(t *testing.T) {
	made := 0
	failed := errors.New("the API is away")
	source := onceBefore(time.Now().Add(time.Hour), func(context.Context) (string, error) {
		if made++; made == 1 {
			return "", failed
		}
		return "token", nil
	})
	if _, err := source(t.Context()); !errors.Is(err, failed) {
		t.Errorf("the first try: %v", err)
	}
	for range 2 {
		if token, err := source(t.Context()); token != "token" || err != nil {
			t.Errorf("got %q, %v", token, err)
		}
	}
	if made != 2 {
		t.Errorf("%d were made", made)
	}
	late := onceBefore(time.Now().Add(-time.Second), source)
	if token, err := late(t.Context()); token != "" || !errors.Is(err, agent.ErrNoToken) {
		t.Errorf("late it got %q, %v", token, err)
	}
}

package agent

import (
	"testing"
	"time"
)

// TestLeavingsDifferWhenTheClockIsSetBack: what the others noticed of one leaving says nothing of
// the next, whatever the clock says.
func TestLeavingsDifferWhenTheClockIsSetBack(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	b := &balancer{news: newSignal(), now: func() time.Time { return now }}
	b.leave(true)
	first := b.leavesAs()
	b.noticed(first)
	if !b.isNoticed() {
		t.Fatal("all have noticed, and it does not count")
	}
	b.leave(false)
	now = now.Add(-time.Hour)
	b.leave(true)
	second := b.leavesAs()
	b.noticed(first) // the plane tells it again to each stream
	if b.isNoticed() {
		t.Errorf("leaving %d counts as noticed, as %d was", second, first)
	}
	b.noticed(second)
	if !b.isNoticed() {
		t.Errorf("leaving %d is noticed, and does not count", second)
	}
	// An agent that starts anew may hear of a later one that it had.
	b = &balancer{news: newSignal(), now: func() time.Time { return now }}
	b.noticed(first)
	b.leave(true)
	if b.isNoticed() || b.leavesAs() <= first {
		t.Errorf("leaving %d counts as noticed, as %d was before the agent started", b.leavesAs(), first)
	}
}

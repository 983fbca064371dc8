package cloud

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestBackoffDoublesUpToItsLast(t *testing.T) {
	b := Backoff{First: time.Second, Last: time.Minute}
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 7: time.Minute, 64: time.Minute, 1 << 20: time.Minute} {
		for range 100 {
			if got := b.After(failures, errors.New("no answer")); got < want*3/4 || got > want*5/4 {
				t.Fatalf("the pause after %d failures is %s, want %s with a quarter of jitter", failures, got, want)
			}
		}
	}
}

func TestBackoffWaitsAsLongAsTheAnswerSays(t *testing.T) {
	b := Backoff{First: time.Second, Last: time.Minute}
	err := fmt.Errorf("list: %w", &Error{RetryAfter: 2 * time.Minute})
	if got := b.After(1, err); got != 2*time.Minute {
		t.Errorf("the pause is %s, want that of Retry-After, 2m", got)
	}
	if got := b.After(9, fmt.Errorf("list: %w", &Error{RetryAfter: time.Second})); got < 45*time.Second {
		t.Errorf("the pause is %s, want no less than without Retry-After", got)
	}
}

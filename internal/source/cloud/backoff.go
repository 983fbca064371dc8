package cloud

import (
	"errors"
	"math/rand/v2"
	"time"
)

// Backoff are the pauses after failures in a row: the first, then twice as long each time, up to the last.
type Backoff struct {
	First, Last time.Duration
}

// After is the pause after a number of failures in a row (at least 1), with jitter. It is longer if the answer that came as
// err says so (Retry-After, RFC 9110, section 10.2.3).
func (b Backoff) After(failures int, err error) time.Duration {
	pause := b.Last
	if n := failures - 1; n < 10 {
		pause = min(b.First<<n, b.Last)
	}
	pause = Jitter(pause)
	var e *Error
	if errors.As(err, &e) {
		pause = max(pause, e.RetryAfter)
	}
	return pause
}

// Jitter is from three to five quarters of d, so that many upstreams do not work at once.
func Jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(max(d/2, 1)) //nolint:gosec // no secret
}

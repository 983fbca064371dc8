package openstack

import (
	"errors"
	"math/rand/v2"
	"time"

	"fairlead.dev/internal/source/cloud"
)

// Bounds of the time between two attempts to read.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// backoff is the time to wait after a number of failures in a row, with jitter; longer if the
// cloud says so.
func (s *Source) backoff(failures int, err error) time.Duration {
	delay := s.jitter(min(firstRetry<<min(failures-1, 10), lastRetry))
	var e *cloud.Error
	if errors.As(err, &e) {
		delay = max(delay, e.RetryAfter)
	}
	return delay
}

// jitter spreads a time by up to a tenth in both directions, so that many upstreams do not
// work at once.
func (s *Source) jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d)) //nolint:gosec // no secret
}

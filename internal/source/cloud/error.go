package cloud

import (
	"errors"
	"time"

	"fairlead.dev/api/v1alpha1"
)

// Error is an error of an upstream, with its class.
type Error struct {
	// Reason of the condition Reachable, such as v1alpha1.ReasonUnauthorized.
	Reason string
	// RetryAfter is when the upstream wants to be asked again; 0: it does not say.
	RetryAfter time.Duration
	Err        error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// ReasonOf is the class of an error: a reason of the condition Reachable.
func ReasonOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return v1alpha1.ReasonUnreachable
}

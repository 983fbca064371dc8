package discovery

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// errStopped is the error of questions to a Discovery that does not run.
var errStopped = errors.New("discovery does not run")

// ask runs f in the goroutine of Run, and waits for it.
func (d *Discovery) ask(ctx context.Context, f func(*state)) error {
	answered := make(chan struct{})
	select {
	case d.calls <- func(s *state) { f(s); close(answered) }:
	case <-ctx.Done():
		return ctx.Err()
	case <-d.done:
		return errStopped
	}
	<-answered
	return nil
}

func sortedNames[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

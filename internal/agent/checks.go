package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// Checker asks backends whether they work. Its methods may be called from any goroutine.
type Checker interface {
	// Run checks until ctx is done.
	Run(ctx context.Context) error
	// Set is all that is to be checked, sorted by ID. It does not block, and keeps what it
	// knows of a check that it had before.
	Set([]model.Check)
	// Results are sorted by ID.
	Results() []model.CheckResult
}

// Checking is what checks backends at a machine. Without a Checker nothing is checked.
type Checking struct {
	Checker Checker
	// Changed gets a token from the checker when its results may differ.
	Changed chan struct{}
}

// checks hands the checker what the plane wants to be checked.
type checks struct {
	parts   Checking
	changed func() // what a report says may differ
	news    chan struct{}

	mu     sync.Mutex
	wanted map[string]model.Check
}

func newChecks(parts Checking, changed func()) *checks {
	return &checks{parts: parts, changed: changed, news: make(chan struct{}, 1), wanted: map[string]model.Check{}}
}

// take notes what the plane wants. An error is one to refuse the change with.
func (k *checks) take(c delta.Change) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer poke(k.news)
	if c.Resource == nil {
		delete(k.wanted, c.Name)
		return nil
	}
	var m agentv1.Check
	if err := unmarshal(c.Resource, &m); err != nil {
		return err
	}
	check, err := wire.CheckOf(c.Name, &m)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	k.wanted[c.Name] = check
	return nil
}

// run keeps the checker told until ctx is done.
func (k *checks) run(ctx context.Context) error {
	if k.parts.Checker == nil {
		return nil
	}
	var checking sync.WaitGroup
	defer checking.Wait()
	failed := make(chan error, 1)
	checking.Go(func() { failed <- k.parts.Checker.Run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("check backends: %w", err)
			}
			return nil
		case <-k.parts.Changed:
			k.changed()
			continue
		case <-k.news:
		}
		k.mu.Lock()
		list := slices.Collect(maps.Values(k.wanted))
		k.mu.Unlock()
		slices.SortFunc(list, func(a, b model.Check) int { return cmp.Compare(a.ID, b.ID) })
		k.parts.Checker.Set(list)
	}
}

// results are what was found, sorted by ID.
func (k *checks) results() []model.CheckResult {
	if k.parts.Checker == nil {
		return nil
	}
	return k.parts.Checker.Results()
}

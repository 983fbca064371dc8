package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

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
	// Result is that of one check; HealthUnchecked where there is none of that ID.
	Result(id string) model.CheckResult
}

// Checking is what checks backends at a machine. Without a Checker nothing is checked.
type Checking struct {
	Checker Checker
	// Changed gets a token from the checker when its results may differ.
	Changed chan struct{}
}

// CheckCounter is a Checker that counts what it does.
type CheckCounter interface {
	// Figures are what has ended, by kind; underWay are the probes that have not. It does not
	// block.
	Figures() (list []model.CheckFigures, underWay int)
}

// Ejector is a Proxy that takes backends out by itself when requests to them fail.
type Ejector interface {
	// Ejected are those that are out, sorted. It does not block.
	Ejected() []model.Ejection
}

// checks hands the checker what the plane wants to be checked. What it finds goes to the
// plane and, for what the plane does not know or while it is away, to this machine's own.
type checks struct {
	parts Checking
	found func() // what a report says differs, and must be said at once
	// reassess has what the machine does follow its own results.
	reassess func()
	news     chan struct{}
	moved    chan struct{} // the plane came or went
	present  atomic.Bool   // the plane is there

	mu     sync.Mutex
	wanted map[string]model.Check
}

func newChecks(parts Checking, found, reassess func()) *checks {
	return &checks{
		parts: parts, found: found, reassess: reassess,
		news: make(chan struct{}, 1), moved: make(chan struct{}, 1), wanted: map[string]model.Check{},
	}
}

// plane notes whether there is a plane.
func (k *checks) plane(present bool) {
	if k.present.Swap(present) != present {
		poke(k.moved)
	}
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
			k.found()
			k.reassess()
		case <-k.moved:
			k.reassess()
		case <-k.news:
			k.mu.Lock()
			list := slices.Collect(maps.Values(k.wanted))
			k.mu.Unlock()
			slices.SortFunc(list, func(a, b model.Check) int { return cmp.Compare(a.ID, b.ID) })
			k.parts.Checker.Set(list)
		}
	}
}

// results are what was found, sorted by ID. What is not known yet is left out.
func (k *checks) results() []model.CheckResult {
	if k.parts.Checker == nil {
		return nil
	}
	return slices.DeleteFunc(k.parts.Checker.Results(), func(r model.CheckResult) bool { return !decided(r.Health) })
}

// unhealthy are the results of checks that fail.
func (k *checks) unhealthy() []model.CheckResult {
	return slices.DeleteFunc(slices.Clone(k.results()), func(r model.CheckResult) bool { return r.Health != model.Unhealthy })
}

// finding is what this machine itself found of a check.
type finding struct {
	health model.Health
	first  bool // as in model.CheckResult
	alone  bool // there is no plane
}

// sure says that it stands beside what a plane knew.
func (f finding) sure() bool { return decided(f.health) && !f.first }

// holds says that it stands whatever the plane said.
func (f finding) holds() bool { return f.sure() && f.alone }

// own is what this machine itself found of a check.
func (k *checks) own(id string) finding {
	if k.parts.Checker == nil || id == "" {
		return finding{health: model.HealthUnchecked}
	}
	r := k.parts.Checker.Result(id)
	return finding{health: r.Health, first: r.First, alone: !k.present.Load()}
}

// decided says that a health is known.
func decided(h model.Health) bool { return h == model.Healthy || h == model.Unhealthy }

package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"fairlead.dev/internal/agent/health"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// checks hands the checker what the plane wants to be checked. What it finds goes to the
// plane and, for what the plane does not know or while it is away, to this machine's own.
type checks struct {
	drivers Checking
	found   event // the checker found something else, which must be reported at once
	changed event // what this machine itself finds may differ: also by a plane that came or went
	news    signal
	present atomic.Bool // the plane is there

	mu     sync.Mutex
	wanted map[string]model.Check
	fresh  bool // wanted differs from what the checker was told
}

func newChecks(c Config) *checks {
	return &checks{drivers: c.Checking, news: newSignal(), wanted: map[string]model.Check{}}
}

// plane notes whether there is a plane.
func (k *checks) plane(present bool) {
	if k.present.Swap(present) != present {
		k.changed.raise()
	}
}

// receive implements part.
func (k *checks) receive(c delta.Change) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.Resource == nil {
		delete(k.wanted, c.Name)
		k.fresh = true
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
	k.fresh = true
	return nil
}

// commit implements part.
func (k *checks) commit(received) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fresh {
		k.fresh = false
		k.news.raise()
	}
}

// run implements part: it keeps the checker told.
func (k *checks) run(ctx context.Context) error {
	if k.drivers.Checker == nil {
		return nil
	}
	var checking sync.WaitGroup
	defer checking.Wait()
	failed := make(chan error, 1)
	checking.Go(func() { failed <- k.drivers.Checker.Run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("check backends: %w", err)
			}
			return nil
		case <-k.drivers.Changed:
			k.found.raise()
			k.changed.raise()
		case <-k.news:
			k.mu.Lock()
			list := slices.Collect(maps.Values(k.wanted))
			k.mu.Unlock()
			slices.SortFunc(list, func(a, b model.Check) int { return cmp.Compare(a.ID, b.ID) })
			k.drivers.Checker.Set(list)
		}
	}
}

// report implements part.
func (k *checks) report(to *agentv1.Report) { to.Checks = wire.CheckResults(k.reported()) }

// results are what was found, sorted by ID. What is not known yet is left out.
func (k *checks) results() []model.CheckResult {
	if k.drivers.Checker == nil {
		return nil
	}
	return slices.DeleteFunc(k.drivers.Checker.Results(), func(r model.CheckResult) bool { return !health.Decided(r.Health) })
}

// unhealthy are the results of checks that fail.
func (k *checks) unhealthy() []model.CheckResult {
	return slices.DeleteFunc(slices.Clone(k.results()), func(r model.CheckResult) bool { return r.Health != model.Unhealthy })
}

// own is what this machine itself found of a check.
func (k *checks) own(id string) health.Finding {
	if k.drivers.Checker == nil || id == "" {
		return health.Finding{Health: model.HealthUnchecked}
	}
	r := k.drivers.Checker.Result(id)
	return health.Finding{Health: r.Health, First: r.First, Alone: !k.present.Load()}
}

// reported are the results that a report has room for, sorted by ID: a plane that refused the
// report would hold the machine for lost.
func (k *checks) reported() []model.CheckResult {
	results := k.results()
	k.mu.Lock()
	defer k.mu.Unlock()
	return fitting(results, func(id string) bool { return k.wanted[id].Presumed })
}

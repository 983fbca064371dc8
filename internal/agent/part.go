package agent

import (
	"context"
	"sync"
	"time"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// part is one thing that the machine does with what a plane sends. A part knows the parts that
// it uses, and none that uses it: what moves in it wakes whom New says.
type part interface {
	// receive takes in a change of one of the part's types. It does not block. An error refuses
	// the change and leaves everything as it was.
	receive(delta.Change) error
	// commit says how far the machine is once everything that came together was received: now
	// the part acts on it. It does not block.
	commit(received)
	// run does the part's work until ctx is done. An error ends the agent.
	run(ctx context.Context) error
	// report adds to a report what the part sees. It does not wait for the proxy or the kernel.
	report(*agentv1.Report)
}

// received is how far the machine has received what a plane wants.
type received struct {
	config     *agentv1.MachineConfig // of the machine; never nil, and not changed
	revision   delta.Revision         // the newest of which anything was accepted
	checkpoint delta.Revision         // the newest up to which everything was accepted
	whole      bool                   // there is such a checkpoint

	// What came last.
	completes  bool // a checkpoint was part of it
	unproxied  bool // that is of an agent without a proxy: nothing that is for one belongs to it
	remembered bool // no plane sent it, but an agent before this one remembered it
}

// wiredPart is a part with the types that it receives.
type wiredPart struct {
	part
	types []delta.Type
}

// signal wakes one goroutine. However often it is raised before the goroutine looks, the
// goroutine looks once.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// event is something that happens in a part. It raises the signals of those that are to look
// then, which are wired before anything runs.
type event struct{ signals []signal }

func (e *event) wakes(s ...signal) { e.signals = append(e.signals, s...) }

func (e *event) raise() {
	for _, s := range e.signals {
		s.raise()
	}
}

// together runs functions until all have returned. The first that fails before ctx is done ends
// the others, and its error is returned.
func together(ctx context.Context, functions ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	var mu sync.Mutex
	var first error
	for _, f := range functions {
		running.Go(func() {
			err := f(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && ctx.Err() == nil {
				first = err
				cancel()
			}
		})
	}
	running.Wait()
	return first
}

// until waits until something is so, and says whether it is. It looks with a pause between, and
// gives up after a time, when enough says so, or with ctx.
func until(ctx context.Context, limit, pause time.Duration, enough, is func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !is() {
		if enough != nil && enough() {
			return false
		}
		select {
		case <-ctx.Done():
			return is()
		case <-time.After(pause):
		}
	}
	return true
}

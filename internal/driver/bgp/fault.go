package bgp

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"fairlead.dev/internal/model"
)

// panicKinds bounds the places whose panics are logged with a stack, for each peer.
const panicKinds = 16

// guard does a part of a peer's work. A panic in it, a bug of ours or of the packet library, costs the session of this
// peer only: it is counted, logged, and the failure of the session.
func (p *peer) guard(work func() *failure) (f *failure) {
	defer func() {
		if v := recover(); v != nil {
			f = p.panicked(v)
		}
	}()
	return work()
}

// panicked counts and logs the panic v, and returns the failure that it is. Call it while the panic's stack stands, in
// the function that recovered. Any goroutine of the peer may.
func (p *peer) panicked(v any) *failure {
	at := panicSource()
	p.mu.Lock()
	conf := p.conf
	p.status.Panics++
	p.panics++
	pause := min(flapDelay<<min(p.panics-1, 10), maxFlapDelay)
	known := p.panicsAt[at] || len(p.panicsAt) >= panicKinds
	if !known {
		p.panicsAt[at] = true
	}
	established := p.status.State == model.SessionEstablished
	lasted := time.Duration(0)
	if established {
		lasted = p.s.now().Sub(p.status.Since)
	}
	p.mu.Unlock()
	if !known {
		p.log.Error("a bug in Fairlead ended the BGP session: report this stack trace (repetitions are only counted)", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	}
	f := fail(conf, model.SessionFault, "this machine's BGP speaker failed (%v, at %s): the stack is in the agent's log; report it", v, at)
	f.pause, f.lost, f.lasted = pause, established, lasted
	return f
}

// panicSource is the place of the panic that is being recovered from.
func panicSource() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	panicking := false
	for {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		if panicking && !inRuntime {
			return fmt.Sprintf("%s:%d", f.Function, f.Line)
		}
		panicking = panicking || f.Function == "runtime.gopanic"
		if !more {
			return "an unknown location"
		}
	}
}

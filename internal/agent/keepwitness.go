package agent

import (
	"context"
	"time"

	"fairlead.dev/internal/gate"
)

// pollMost is the longest pause between two questions while a listener is in doubt. The first
// is pollEvery, and each next one longer.
const pollMost = time.Second

// keepWitness asks Envoy what it uses until ctx is done, and has mended what it does not.
func (a *Agent) keepWitness(ctx context.Context) {
	w, able := a.config.Proxy.(Witness)
	if !able {
		return
	}
	pause, last := pollEvery, uint64(0)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.look:
		case <-timer.C:
		}
		look, wanted, next, round := a.state.looks()
		if !wanted {
			if !next.IsZero() {
				timer.Reset(max(pollEvery, next.Sub(a.config.Now())))
			}
			continue
		}
		if round != last {
			last, pause = round, pollEvery
		}
		if seen, err := see(ctx, w, look); err == nil {
			a.mended(w, a.state.saw(look, seen))
		} else {
			a.config.Log.Debug("what the proxy uses is not known", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(pause*3/2, pollMost)
		poke(a.look)
	}
}

// see asks Envoy.
func see(ctx context.Context, w Witness, look gate.Look) (seen gate.Seen, err error) {
	if seen.Serving, seen.Warming, err = w.Listeners(ctx); err != nil {
		return seen, err
	}
	if len(look.Routes) > 0 {
		seen.Routes, err = w.Routes(ctx, look.Routes)
	}
	return seen, err
}

// mended says what is done about what Envoy does not use, and does what the state cannot.
func (a *Agent) mended(w Witness, m gate.Mend) {
	if m.Step == gate.MendNothing {
		return
	}
	a.config.Log.Warn("the proxy does not use what it accepted", "step", m.Describe(), "reason", m.Reason)
	if a.mends != nil {
		a.mends(m.Step.String())
	}
	if m.Step == gate.MendReplace {
		w.Replace(m.Reason)
	}
}

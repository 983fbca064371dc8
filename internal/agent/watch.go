package agent

import (
	"context"
	"time"

	"fairlead.dev/internal/gate"
)

const (
	// pollEvery is how often Envoy is asked which clusters are warming, while that matters.
	pollEvery = 50 * time.Millisecond
	// pollMost is the longest pause between two questions while a listener is in doubt. The first
	// is pollEvery, and each next one longer.
	pollMost = time.Second
)

// keepTime does what is due by time alone.
func (r *relay) keepTime(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.timed:
		}
		if at := r.tick(); !at.IsZero() {
			timer.Reset(max(0, at.Sub(r.now())))
		}
	}
}

// keepHealth has Envoy follow what this machine itself finds of backends.
func (r *relay) keepHealth(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.checked:
			r.reassess()
		}
	}
}

// keepPolling asks Envoy which clusters are warming while that decides anything.
func (r *relay) keepPolling(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.polls:
		}
		wanted, seq := r.polling()
		if !wanted {
			continue
		}
		names, err := r.proxy.Warming(ctx)
		if err == nil {
			r.warming(seq, names)
		} else {
			r.log.Debug("cannot read the proxy's warming clusters", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pollEvery):
		}
		r.polls.raise()
	}
}

// keepWitness asks Envoy what it uses until ctx is done, and has mended what it does not.
func (r *relay) keepWitness(ctx context.Context) error {
	w, able := r.proxy.(Witness)
	if !able {
		return nil
	}
	pause, last := pollEvery, uint64(0)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.asks:
		case <-timer.C:
		}
		look, wanted, next, round := r.looks()
		if !wanted {
			if !next.IsZero() {
				timer.Reset(max(pollEvery, next.Sub(r.now())))
			}
			continue
		}
		if round != last {
			last, pause = round, pollEvery
		}
		if seen, err := see(ctx, w, look); err == nil {
			r.mend(w, r.saw(look, seen))
		} else {
			r.log.Debug("cannot read which resources the proxy uses", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(pause*3/2, pollMost)
		r.asks.raise()
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

// mend says what is done about what Envoy does not use, and does what the feed cannot.
func (r *relay) mend(w Witness, m gate.Mend) {
	if m.Step == gate.MendNothing {
		return
	}
	r.log.Warn("the proxy does not use a resource that it accepted", "step", m.Describe(), "reason", m.Reason)
	r.mended(m.Step.String())
	if m.Step == gate.MendReplace {
		w.Replace(m.Reason)
	}
}

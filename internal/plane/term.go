package plane

import (
	"context"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/southbound"
)

// followTerm follows the election.
func (l *loop) followTerm(ctx context.Context) {
	p, t := l.plane, l.plane.lease.current()
	switch serving := p.serving.Load(); {
	case t.Held && l.synced && serving != t.Epoch && !l.awaitsStaples() && p.trust.askFor(t.Epoch):
		if serving == 0 {
			l.leadSince, l.inGrace = p.config.Now(), true
		}
		// Nothing changed, but every machine has to hear it from this epoch.
		l.send(delta.Revision{Epoch: t.Epoch, Number: 1}, southbound.Update{})
		p.serving.Store(t.Epoch)
		p.keeper.lead(t.Epoch)
		p.recorder.lead(l.rev)
		p.metrics.leading.Set(1)
		p.metrics.epoch.Set(float64(t.Epoch))
		l.forbidWrites()
		l.tracker.Restart(l.rev)
		l.frontends.restart(l.rev)
		l.restartNewcomers(l.rev)
		l.refreshAll()
		p.discovery.Lead(ctx, true)
	case !t.Held && serving != 0:
		p.serving.Store(0)
		p.keeper.lead(0)
		p.recorder.lead(delta.Revision{})
		p.metrics.leading.Set(0)
		l.forbidWrites()
		p.server.StepDown()
		p.discovery.Lead(ctx, false)
		l.refreshAll()
	}
	switch may := t.Renewing && p.serving.Load() != 0; {
	case may && l.endTerm == nil:
		var term context.Context
		term, l.endTerm = context.WithCancel(ctx)
		p.writer.Enable(term)
		p.derived.Enable(term)
		p.discovered.Enable(term)
		p.discovery.Rewrite(ctx)
		p.offerAuthority()
		l.offerAll()
	case !may:
		l.forbidWrites()
	}
}

func (l *loop) forbidWrites() {
	if l.endTerm != nil {
		l.endTerm()
		l.endTerm = nil
		l.plane.writer.Disable()
		l.plane.derived.Disable()
		l.plane.discovered.Disable()
	}
}

// stapleTime is how long a plane that begins waits at most for the responses without which
// certificates cannot be shown, before it serves machines: they have some from before.
const stapleTime = 10 * time.Second

// awaitsStaples says whether a plane that begins should know more responses before it
// serves: a certificate that must be shown with one would be taken away from machines.
func (l *loop) awaitsStaples() bool {
	begins := l.plane.serving.Load() == 0 && l.plane.config.Now().Before(l.history.Since().Add(stapleTime))
	return begins && l.certificates.awaitStaples()
}

package plane

import (
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// typeMachine is the type of the configuration that each machine is sent.
const typeMachine delta.Type = agentv1.MachineConfigType

// send hands an update to the machines' streams. A standby does so too: it has no
// streams, and is ready when it leads.
func (l *loop) send(rev delta.Revision, u southbound.Update) {
	if err := l.plane.views.Publish(rev, u); err != nil {
		l.plane.config.Log.Error("a bug: nothing was published", "revision", rev, "error", err)
		return
	}
	l.rev = rev
	l.published.Add(rev, l.plane.config.Now())
	l.recount = true
	l.plane.metrics.revision.Set(float64(rev.Number))
}

// next is the revision of the next publication.
func (l *loop) next() delta.Revision {
	return delta.Revision{Epoch: l.rev.Epoch, Number: l.rev.Number + 1}
}

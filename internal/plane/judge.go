package plane

import (
	"fmt"
	"maps"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// judgeChunk is how many objects are judged before the loop looks for changes again.
const judgeChunk = 256

// receiveReports reads the reports of machines that the server has received.
func (l *loop) receiveReports(names map[string]bool) {
	for name := range names {
		l.refresh(name)
		l.offerMachine(name)
		l.offerPeers(name)
	}
}

// review notes the changed objects that have a status: another writer may have written over it.
func (l *loop) review(keys []snapshot.Key) {
	for _, k := range keys {
		if o := object(k); l.statuses[o] != nil || l.disowned(o) {
			l.due[o] = true
		}
		if k.Kind == snapshot.KindMachine {
			l.refresh(k.Name.Name)
			l.offerMachine(k.Name.Name)
		}
	}
}

// reviewChanges notes the objects that may show something else after changes were published.
func (l *loop) reviewChanges(ch translate.Changes) {
	for o, s := range ch.Statuses {
		if s == nil {
			delete(l.statuses, o)
			l.countObject(o)
		} else {
			l.statuses[o] = s
		}
	}
	maps.Copy(l.due, l.tracker.Apply(l.rev, ch))
	for name := range ch.Machines {
		l.refresh(name)
		l.offerMachine(name) // an address that it reports may have another owner
	}
}

// refresh looks at one machine again and notes the objects that this concerns.
func (l *loop) refresh(name string) {
	l.recount = true
	now := l.progressOf(name)
	l.timeApplied(name, now)
	l.followTraces(name)
	l.finishBatches(name)
	maps.Copy(l.due, l.tracker.SetMachine(name, now))
	l.followMachine(name)
	l.followChecker(name)
}

func (l *loop) refreshAll() {
	for name := range l.machines {
		l.refresh(name)
	}
}

// judge judges some of the objects that are due, and offers the status writer what they should show.
func (l *loop) judge() {
	l.recount = true
	l.tracker.SetWanted(func(machine string) delta.Revision {
		_, wanted := l.plane.views.Placed(machine)
		return wanted
	})
	n := 0
	for o := range l.due {
		delete(l.due, o)
		l.offerObject(o, l.tracker.Judge(o))
		l.countObject(o)
		if n++; n == judgeChunk {
			return
		}
	}
}

// progressOf is how far a machine is now; nil when there is no Machine.
func (l *loop) progressOf(name string) *progress.Machine {
	m := l.machines[name]
	if m == nil {
		return nil
	}
	s := &progress.Machine{Name: name, Views: fmt.Sprint(m.Views), Cordoned: m.Cordoned}
	state, known := l.plane.server.Machine(name)
	s.Unheard, s.Silent, s.Lost = l.hearing(name, state)
	if !known {
		return s
	}
	s.Applied, s.Wanted, s.Unproxied = state.Applied, state.Wanted, unproxied(state.Proxy)
	for _, p := range state.Problems {
		s.Note(p.Type, p.Name, progress.Fault{Refused: p.Kind != agentv1.Problem_KIND_WAITING, Message: p.Message})
	}
	return s
}

// timeApplied notes how long a machine took to run the revision that concerned it, and which changes it has.
func (l *loop) timeApplied(name string, now *progress.Machine) {
	if now == nil {
		return
	}
	reached := l.plane.views.Reached(name, now.Applied)
	if len(reached) == 0 {
		return
	}
	l.plane.recorder.reached(name, reached)
	if at, known := l.published.At(reached[0]); known {
		l.plane.metrics.applied.Observe(l.plane.config.Now().Sub(at).Seconds())
	}
}

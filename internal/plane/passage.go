package plane

import "fairlead.dev/internal/delta"

// maxUnfinished bounds the batches that are followed at once.
const maxUnfinished = 256

// unfinishedBatches are batches of discovered changes that were published and that some machine does not carry out yet, oldest first.
type unfinishedBatches []unfinishedBatch

type unfinishedBatch struct {
	number   uint64 // of the batch
	rev      delta.Revision
	machines map[string]bool // that do not carry it out yet
}

// followBatch follows a batch that was received. before is the revision before it.
func (l *loop) followBatch(number uint64, before delta.Revision) {
	if number == 0 {
		return
	}
	now := l.plane.config.Now()
	concerned := l.plane.views.Concerned()
	if l.rev == before || len(concerned) == 0 {
		l.plane.discovery.Published(number, 0, now)
		return
	}
	l.plane.discovery.Published(number, l.rev.Number, now)
	f := unfinishedBatch{number: number, rev: l.rev, machines: map[string]bool{}}
	for _, name := range concerned {
		if !l.carriesOut(name, l.rev) {
			f.machines[name] = true
		}
	}
	if len(f.machines) == 0 {
		l.plane.discovery.InForce(number, now)
		return
	}
	if len(l.unfinished) == maxUnfinished {
		l.unfinished = append(unfinishedBatches{}, l.unfinished[maxUnfinished/2:]...)
	}
	l.unfinished = append(l.unfinished, f)
}

// finishBatches notes which batches a machine carries out by its last report.
func (l *loop) finishBatches(name string) {
	if l.plane.serving.Load() == 0 {
		l.unfinished = nil // another plane hears the machines
		return
	}
	kept := l.unfinished[:0]
	for _, f := range l.unfinished {
		if f.machines[name] && l.carriesOut(name, f.rev) {
			delete(f.machines, name)
		}
		if len(f.machines) > 0 {
			kept = append(kept, f)
			continue
		}
		l.plane.discovery.InForce(f.number, l.plane.config.Now())
	}
	l.unfinished = kept
}

// carriesOut says that a machine's proxy and its kernel carry out a revision. A machine that is not connected is not waited for.
func (l *loop) carriesOut(name string, rev delta.Revision) bool {
	state, known := l.plane.server.Machine(name)
	if l.machines[name] == nil || !seen(state, known) {
		return true
	}
	if !l.hostsOnly(name) && !unproxied(state.Proxy) && state.Applied.Compare(rev) < 0 {
		return false
	}
	if !state.TellsCarried {
		return reached(state, rev)
	}
	return state.Carried.Compare(rev) >= 0
}

package plane

import (
	"maps"

	"fairlead.dev/internal/catalog"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/placement"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/wire"
)

// publish sends machines what changes for them, and notes the objects that may show something else.
func (l *loop) publish(ch translate.Changes) {
	moved := l.placement.Apply(&ch, l.plane.config.Now(), func(id model.ListenerID) bool {
		if listener, changes := ch.Listeners[id]; changes {
			return listener != nil
		}
		return l.catalog.Listener(id) != nil
	})
	l.publishPlaced(ch, moved)
}

// publishPlaced is publish once each machine has its view. moved are the machines that are on another
// view now.
func (l *loop) publishPlaced(ch translate.Changes, moved map[string]bool) {
	ch.Certificates = l.plane.staples.attach(ch.Certificates)
	clear(l.peeked)
	update := southbound.Update{Shared: map[southbound.ViewID][]delta.Change{}, Machine: map[string][]delta.Change{}, Placement: map[string]southbound.ViewID{}}
	l.tellViews(ch, &update)
	was := l.tellMachines(&ch, &update)
	for name := range moved {
		update.Placement[name] = l.viewOf(name)
	}
	l.certificates.apply(ch)
	l.keepVIPs(&ch, was)
	if err := l.network.apply(ch, &update); err != nil {
		l.plane.config.Log.Error("a bug: a peer cannot be encoded", "error", err)
	}
	next := l.next()
	l.frontends.note(ch)
	for name := range ch.Machines {
		l.followMachine(name)
	}
	l.balance(&update, next)
	if len(update.Shared)+len(update.Machine)+len(update.Placement) > 0 {
		l.send(next, update)
	}
	l.placement.Published(moved, ch.Views, l.rev)
	l.routeRows.note(ch)
	l.reviewChanges(ch)
}

// tellViews adds to an update what changes for views.
func (l *loop) tellViews(ch translate.Changes, update *southbound.Update) {
	unfit := maps.Clone(l.catalog.AllUnfit())
	for v, changes := range l.catalog.Apply(ch) {
		update.Shared[southbound.ViewID(v)] = changes
		for _, c := range changes {
			l.plane.metrics.resources.WithLabelValues(catalog.ShortType(c.Type)).Inc()
		}
	}
	l.tellUnfit(unfit)
}

// tellMachines adds to an update the machines that change, as their agents are told of them. It returns
// them as they were before.
func (l *loop) tellMachines(ch *translate.Changes, update *southbound.Update) (was map[string]*model.Machine) {
	was = map[string]*model.Machine{}
	for name := range ch.Machines {
		was[name] = l.machines[name]
	}
	merge(l.machines, ch.Machines)
	for name, m := range ch.Machines {
		change := delta.Change{Type: typeMachine, Name: name}
		if m != nil {
			r, err := delta.NewResource(name, wire.MachineConfig(l.told(name, was[name], *m, ch), l.plane.config.TTL))
			if err != nil {
				l.plane.config.Log.Error("a bug: a machine cannot be encoded", "machine", name, "error", err)
				continue
			}
			change.Resource = &r
		}
		update.Machine[name] = []delta.Change{change}
	}
	return was
}

// viewOf is the view that a machine is placed on: none while a Freeze holds a state that
// this plane does not know, nor where there is no such machine.
func (l *loop) viewOf(name string) southbound.ViewID {
	if f := l.history.Frozen(); f != nil && f.Lost {
		return ""
	}
	return southbound.ViewID(l.placement.View(name))
}

// placeMachines puts every machine where it belongs.
func (l *loop) placeMachines() {
	update := southbound.Update{Placement: map[string]southbound.ViewID{}}
	for name := range l.machines {
		update.Placement[name] = l.viewOf(name)
	}
	l.send(l.next(), update)
	maps.Copy(l.due, l.tracker.All())
}

// publishExpired takes from machines the listeners that they have ended.
func (l *loop) publishExpired() {
	var ch translate.Changes
	moved, ended := l.placement.Expire(&ch, l.plane.config.Now(), placement.Uses{
		Kept:   func() map[placement.ListenerAt]bool { return l.handover.uses(&l.network) },
		Passed: l.frontends.passed,
	})
	if ended {
		l.publishPlaced(ch, moved)
	}
}

// publishStale publishes what became stale without a translation.
func (l *loop) publishStale() {
	update := southbound.Update{Shared: map[southbound.ViewID][]delta.Change{}, Machine: map[string][]delta.Change{}}
	next := l.next()
	// Before it is looked who waits for whom: one report may say that a machine follows, and
	// that its tunnels are another thing now, which those that come must follow in turn.
	l.tellNodes(&update, next)
	l.admitNewcomers()
	l.releaseVIPs(&update)
	for v, changes := range l.judgeHealth() {
		update.Shared[southbound.ViewID(v)] = changes
	}
	stale := l.frontends.isStale() || l.network.isStale() || l.newcomers.isStale() || !l.health.Told()
	if !stale && len(update.Shared)+len(update.Machine) == 0 {
		return
	}
	l.balance(&update, next)
	if len(update.Shared)+len(update.Machine) > 0 {
		l.send(next, update)
	}
}

// publishStapled publishes the certificates whose response is another now.
func (l *loop) publishStapled() {
	if changed := l.certificates.restapled(l.plane.stapled.receive()); len(changed) > 0 {
		l.publish(translate.Changes{Certificates: changed})
	}
	if l.plane.serving.Load() == 0 {
		signal(l.plane.signals.term) // it may have waited for this
	}
}

// toldUnfit is how many resources that cannot be sent one publication logs; the status names all.
const toldUnfit = 16

// tellUnfit logs what cannot be sent that could be before.
func (l *loop) tellUnfit(before map[catalog.Key]string) {
	told, more := 0, 0
	for k, why := range l.catalog.AllUnfit() {
		switch {
		case before[k] != "":
		case told == toldUnfit:
			more++
		default:
			told++
			l.plane.config.Log.Error("a resource cannot be sent; machines keep the version that they have, or get one that answers 503 for a host", "type", catalog.ShortType(k.Type), "name", k.Name, "reason", why)
		}
	}
	if more > 0 {
		l.plane.config.Log.Error("more resources cannot be sent; the status names them", "count", more)
	}
}

package plane

import (
	"context"
	"maps"
	"slices"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/catalog"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/history"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/wire"
)

const (
	// beat is how often the loop looks at what time alone changes.
	beat = time.Second
	// validityBeat is how often the validity of certificates is judged again.
	validityBeat = time.Minute
	// settleChunk is how many objects are judged before the loop looks for changes
	// again.
	settleChunk = 256
	// takeTime is how long batches of changes are taken one after another while other
	// inputs wait: writers without a pause must not keep a backend's health from the machines, nor
	// a probe from its answer. Then each of the others has one turn.
	takeTime = 20 * time.Millisecond
)

// loop owns what the plane knows. Everything in it belongs to the goroutine of run.
type loop struct {
	plane        *Plane
	snapshot     *snapshot.Snapshot
	translator   *translate.Translator
	health       *health.Checks
	catalog      *catalog.Catalog
	tracker      *progress.Tracker
	history      *history.History
	counts       counts
	statuses     map[model.Object]*translate.Status
	machines     map[string]*model.Machine
	network      network
	frontends    *frontends
	leaving      leaving
	coming       coming
	placement    placement
	handover     handover
	answering    answering
	peeked       map[string]southbound.MachineState
	certificates certificates

	synced  bool
	toldOf  bool           // that IngressRoutes are another controller's
	backlog []snapshot.Key // changed before everything was synced

	rev       delta.Revision // of the last publication
	leadSince time.Time
	inGrace   bool
	due       map[model.Object]bool // to be judged and offered to the status writer
	endTerm   context.CancelFunc    // of the status writer's term; nil while it may not write
	blinded   map[model.Object]bool // pools that wait until every kind of owner can be read
	recount   bool                  // the metrics of objects and machines are stale

	checkersStale bool // other machines may be able to check
	published     progress.Publications
}

func newLoop(p *Plane) *loop {
	h := health.New()
	c := catalog.New(catalog.Config{XDS: p.config.XDS, Health: h, Last: p.views.Any})
	l := &loop{
		plane:        p,
		history:      history.New(p.keeper),
		counts:       newCounts(),
		snapshot:     snapshot.New(),
		translator:   translate.New(p.config.Translate),
		health:       h,
		catalog:      c,
		statuses:     map[model.Object]*translate.Status{},
		machines:     map[string]*model.Machine{},
		network:      newNetwork(),
		frontends:    newFrontends(),
		leaving:      newLeaving(),
		coming:       newComing(),
		placement:    newPlacement(),
		handover:     newHandover(func(d time.Duration) { time.AfterFunc(d, func() { signal(p.signals.turn) }) }),
		answering:    answering{now: time.Now}, // setting the clock does not matter
		peeked:       map[string]southbound.MachineState{},
		certificates: newCertificates(p.metrics, p.staples),
		due:          map[model.Object]bool{},
		blinded:      map[model.Object]bool{},
	}
	l.tracker = progress.New(c, progress.Inputs{Serving: l.placement.serves, Frozen: l.history.HeldText, Balanced: l.balanced})
	return l
}

func (l *loop) run(ctx context.Context) {
	p := l.plane
	batches := make(chan snapshot.Batch)
	go func() {
		for {
			b, err := p.source.Next(ctx)
			if err != nil {
				return // ctx is done
			}
			select {
			case batches <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	defer func() {
		p.serving.Store(0)
		l.forbidWrites()
	}()
	always := make(chan struct{})
	close(always)
	served := time.Now() // when the other inputs had their turn; setting the clock does not matter
	for {
		select {
		case b := <-batches: // before everything else that waits, for a while
			l.take(ctx, b)
			if time.Since(served) < takeTime {
				continue
			}
			l.serveOthers(ctx, ticker.C)
		default:
		}
		served = time.Now()
		clear(l.peeked)
		l.narrow()
		l.rebalance()
		l.tellLeaving()
		clear(l.peeked) // it may be long until something comes
		var due chan struct{}
		if len(l.due) > 0 {
			due = always
		}
		select {
		case <-ctx.Done():
			return
		case b := <-batches:
			l.take(ctx, b)
		case <-due:
			l.settle()
		case <-p.signals.term:
			l.term(ctx)
		case <-p.signals.fleet:
			l.fleet(p.takeTouched())
		case <-p.signals.staples:
			l.staple()
		case <-p.signals.turn:
		case f := <-p.calls:
			f(l)
		case f := <-l.questions():
			l.answer(f)
		case <-ticker.C:
			l.beat()
		}
	}
}

// questions has what consoles ask; nil while answers have had their part of the time.
func (l *loop) questions() <-chan func(*loop) {
	if l.answering.may() {
		return l.plane.questions
	}
	return nil
}

func (l *loop) answer(f func(*loop)) {
	rest := l.answering.answer(func() { f(l) })
	l.plane.metrics.answer.Observe((rest / (answerShare - 1)).Seconds())
	time.AfterFunc(rest, func() { signal(l.plane.signals.turn) }) // to look for questions again
}

// serveOthers gives each input of run beside the changes one turn, if it has something: an input
// that is missing here starves while somebody writes.
func (l *loop) serveOthers(ctx context.Context, tick <-chan time.Time) {
	p := l.plane
	clear(l.peeked)
	if len(l.due) > 0 {
		l.settle()
	}
	if taken(p.signals.term) {
		l.term(ctx)
	}
	if taken(p.signals.fleet) {
		l.fleet(p.takeTouched())
	}
	if taken(p.signals.staples) {
		l.staple()
	}
	taken(p.signals.turn) // the turn follows
	select {
	case f := <-p.calls:
		f(l)
	default:
	}
	select {
	case f := <-l.questions():
		l.answer(f)
	default:
	}
	select {
	case <-tick:
		l.beat()
	default:
	}
}

// taken takes a signal that waits.
func taken(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}

// take brings a batch of changes to the machines, and then into statuses.
func (l *loop) take(ctx context.Context, b snapshot.Batch) {
	keys := make([]snapshot.Key, 0, len(b.Changes))
	for _, c := range b.Changes {
		keys = append(keys, l.set(c))
	}
	l.plane.metrics.changes.Add(float64(len(keys)))
	if !l.synced {
		l.backlog = append(l.backlog, keys...)
		if !b.Synced {
			return
		}
		l.synced = true
		l.plane.machine.know()
		l.snapshot.Now = l.plane.config.Now().UTC().Truncate(validityBeat)
		l.followOwn()
		keys, l.backlog = append(l.backlog, snapshot.Key{Kind: snapshot.KindTime}, snapshot.Key{Kind: snapshot.KindOwn}), nil
		l.plane.config.Log.Info("every resource of the API is read", "objects", len(keys))
	}
	begins := l.history.Since().IsZero()
	if begins {
		l.history.Begin(l.plane.config.Now())
	} else if slices.ContainsFunc(keys, func(k snapshot.Key) bool { return k.Kind == snapshot.KindFreeze }) {
		l.followFreeze() // first: nothing of the same batch slips through
	}
	l.translate(keys)
	l.tellOfOthers()
	if begins {
		l.followFreeze() // no machine is served yet
	}
	for _, k := range keys {
		if o := object(k); l.statuses[o] != nil || l.disowned(o) {
			l.due[o] = true // its own status may have been written over
		}
		if k.Kind == snapshot.KindMachine {
			l.refresh(k.Name.Name)
			l.offerMachine(k.Name.Name)
		}
	}
	l.term(ctx)
}

// tellOfOthers says once that there are IngressRoutes that nobody of ours serves: they have no status.
func (l *loop) tellOfOthers() {
	if n := l.translator.OfOthers(); n > 0 && !l.toldOf {
		l.toldOf = true
		l.plane.config.Log.Info("IngressRoutes of other classes are not ours (--ingress-class)", "count", n)
	}
}

// set puts one change into the snapshot.
func (l *loop) set(c snapshot.Change) snapshot.Key {
	if c.Object == nil {
		l.snapshot.Delete(c.Key)
		l.plane.writer.Forget(object(c.Key))
		if c.Key.Kind == snapshot.KindGateway {
			l.plane.derived.Forget(infrastructureAccount(c.Key.Name))
		}
	} else if _, err := l.snapshot.Set(c.Object); err != nil {
		l.plane.config.Log.Error("a bug: the source knows more kinds than the snapshot", "error", err)
	}
	if c.Key.Kind == snapshot.KindMachine {
		m, _ := c.Object.(*v1alpha1.Machine)
		l.plane.machine.set(c.Key.Name.Name, m)
	}
	return c.Key
}

// translate publishes what follows from the changed keys, and notes the objects whose
// status may be another now.
func (l *loop) translate(keys []snapshot.Key) {
	began := l.plane.config.Now()
	ch := l.translator.Apply(l.snapshot, keys)
	l.remember(ch)
	translated := l.plane.config.Now()
	l.plane.metrics.translate.Observe(translated.Sub(began).Seconds())
	if ch.Empty() {
		return
	}
	next := delta.Revision{Epoch: l.rev.Epoch, Number: l.rev.Number + 1}
	l.send(l.history.Apply(ch, translated, next))
	if l.rev != next && l.history.LastRevision() == next {
		l.publish(next, southbound.Update{}) // it is held back; no other step may have its number
	}
	l.plane.metrics.publish.Observe(l.plane.config.Now().Sub(translated).Seconds())
}

// remember keeps what BGPPeers came to for the translations after this one: a bad edit must
// find it, also one that comes before the status is written.
func (l *loop) remember(ch translate.Changes) {
	for o, s := range ch.Statuses {
		if s != nil && s.BGPPeer != nil && s.BGPPeer.InForce != nil {
			l.snapshot.PeersInForce[snapshot.Name{Name: o.Name}] = s.BGPPeer.InForce
		}
	}
}

// send publishes changes, and notes the objects whose status may be another now.
func (l *loop) send(ch translate.Changes) {
	moved := l.placement.apply(&ch, l.plane.config.Now(), func(id model.ListenerID) bool {
		if listener, changes := ch.Listeners[id]; changes {
			return listener != nil
		}
		return l.catalog.Listener(id) != nil
	})
	l.sendPlaced(ch, moved)
}

// sendPlaced is send once it is settled what each machine is sent. moved are machines that are on
// another view now.
func (l *loop) sendPlaced(ch translate.Changes, moved map[string]bool) {
	ch.Certificates = l.plane.staples.attach(ch.Certificates)
	unfit := maps.Clone(l.catalog.AllUnfit())
	shared := l.catalog.Apply(ch)
	l.tellUnfit(unfit)
	update := southbound.Update{Shared: map[southbound.ViewID][]delta.Change{}, Machine: map[string][]delta.Change{}, Placement: map[string]southbound.ViewID{}}
	for v, changes := range shared {
		update.Shared[southbound.ViewID(v)] = changes
		for _, c := range changes {
			l.plane.metrics.resources.WithLabelValues(catalog.ShortType(c.Type)).Inc()
		}
	}
	clear(l.peeked)
	was := map[string]*model.Machine{}
	for name := range ch.Machines {
		was[name] = l.machines[name]
	}
	merge(l.machines, ch.Machines)
	for name, m := range ch.Machines {
		change := delta.Change{Type: typeMachine, Name: name}
		if m != nil {
			told := l.told(name, was[name], *m, &ch)
			r, err := delta.NewResource(name, wire.MachineConfig(told, l.plane.config.TTL))
			if err != nil {
				l.plane.config.Log.Error("a bug: a machine cannot be encoded", "machine", name, "error", err)
				continue
			}
			change.Resource = &r
		}
		update.Machine[name] = []delta.Change{change}
	}
	for name := range moved {
		update.Placement[name] = l.placedOn(name)
	}
	l.certificates.apply(ch)
	l.keep(&ch, was)
	if err := l.network.apply(ch, &update); err != nil {
		l.plane.config.Log.Error("a bug: a peer cannot be encoded", "error", err)
	}
	next := delta.Revision{Epoch: l.rev.Epoch, Number: l.rev.Number + 1}
	l.frontends.note(ch)
	for name := range ch.Machines {
		l.followMachine(name)
	}
	l.balance(&update, next)
	if len(update.Shared)+len(update.Machine)+len(update.Placement) > 0 {
		l.publish(next, update)
	}
	l.placement.published(moved, ch.Views, l.rev)
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
		l.offerMachine(name) // who claims its addresses may be another
	}
}

// placedOn is the view that a machine is placed on: none while a Freeze holds a state that
// this plane does not know, nor where there is no such machine.
func (l *loop) placedOn(name string) southbound.ViewID {
	if f := l.history.Frozen(); f != nil && f.Lost || l.placement.machines[name] == nil {
		return ""
	}
	return southbound.ViewID(l.placement.machines[name].on)
}

// place puts every machine where it belongs.
func (l *loop) place() {
	update := southbound.Update{Placement: map[string]southbound.ViewID{}}
	for name := range l.machines {
		update.Placement[name] = l.placedOn(name)
	}
	l.publish(delta.Revision{Epoch: l.rev.Epoch, Number: l.rev.Number + 1}, update)
	maps.Copy(l.due, l.tracker.All())
}

// publish hands an update to the machines' streams. A standby does so too: it has no
// streams, and is ready when it leads.
func (l *loop) publish(rev delta.Revision, u southbound.Update) {
	if err := l.plane.views.Publish(rev, u); err != nil {
		l.plane.config.Log.Error("a bug: nothing was published", "revision", rev, "error", err)
		return
	}
	l.rev = rev
	l.published.Add(rev, l.plane.config.Now())
	l.recount = true
	l.plane.metrics.revision.Set(float64(rev.Number))
}

// term follows the election.
func (l *loop) term(ctx context.Context) {
	p, t := l.plane, l.plane.lease.current()
	switch serving := p.serving.Load(); {
	case t.Held && l.synced && serving != t.Epoch && !l.awaitsStaples() && p.trust.askFor(t.Epoch):
		if serving == 0 {
			l.leadSince, l.inGrace = p.config.Now(), true
		}
		// Nothing changed, but every machine has to hear it from this epoch.
		l.publish(delta.Revision{Epoch: t.Epoch, Number: 1}, southbound.Update{})
		p.serving.Store(t.Epoch)
		p.keeper.lead(t.Epoch)
		p.metrics.leading.Set(1)
		p.metrics.epoch.Set(float64(t.Epoch))
		l.forbidWrites()
		l.tracker.Restart(l.rev)
		l.frontends.restart(l.rev)
		l.restartComing(l.rev)
		l.refreshAll()
	case !t.Held && serving != 0:
		p.serving.Store(0)
		p.keeper.lead(0)
		p.metrics.leading.Set(0)
		l.forbidWrites()
		p.server.StepDown()
		l.refreshAll()
	}
	switch may := t.Renewing && p.serving.Load() != 0; {
	case may && l.endTerm == nil:
		var term context.Context
		term, l.endTerm = context.WithCancel(ctx)
		p.writer.Enable(term)
		p.derived.Enable(term)
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
	}
}

// fleet takes in what the server knows anew of machines.
func (l *loop) fleet(names map[string]bool) {
	for name := range names {
		l.refresh(name)
		l.offerMachine(name)
		l.offerPeers(name)
	}
}

// beat looks at what time alone changes.
func (l *loop) beat() {
	p := l.plane
	p.server.Sweep()
	if now := p.config.Now(); now.Before(l.leadSince) {
		l.leadSince = now // the clock was set back
	}
	if l.inGrace && !p.config.Now().Before(l.leadSince.Add(2*p.config.TTL)) {
		l.inGrace = false
		l.refreshAll()
		l.offerAll()
	}
	l.expireFrontends()
	if len(l.blinded) > 0 && !l.blind() {
		maps.Copy(l.due, l.blinded)
		clear(l.blinded)
	}
	if now := p.config.Now().UTC().Truncate(validityBeat); l.synced && !now.Equal(l.snapshot.Now) {
		l.snapshot.Now = now
		l.translate([]snapshot.Key{{Kind: snapshot.KindTime}})
		l.recount = true
	}
	if l.synced && l.followOwn() {
		l.translate([]snapshot.Key{{Kind: snapshot.KindOwn}})
	}
	if p.staples.keeper != nil && l.synced && p.serving.Load() == 0 {
		signal(p.signals.term) // it may have waited for responses
	}
	if l.recount {
		l.recount = false
		l.count()
	}
}

// refresh looks at one machine again and notes the objects that this concerns.
func (l *loop) refresh(name string) {
	l.recount = true
	now := l.progressOf(name)
	l.timeApplied(name, now)
	maps.Copy(l.due, l.tracker.SetMachine(name, now))
	l.followMachine(name)
	l.followChecker(name)
}

func (l *loop) refreshAll() {
	for name := range l.machines {
		l.refresh(name)
	}
}

// settle judges some of the objects that are due and hands what they should show to
// the status writer.
func (l *loop) settle() {
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
		if n++; n == settleChunk {
			return
		}
	}
}

func object(k snapshot.Key) model.Object {
	return model.Object{Kind: string(k.Kind), Namespace: k.Name.Namespace, Name: k.Name.Name}
}

// sortedMachines returns the machines' names in order.
func (l *loop) sortedMachines() []string { return slices.Sorted(maps.Keys(l.machines)) }

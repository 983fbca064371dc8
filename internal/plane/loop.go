package plane

import (
	"context"
	"maps"
	"slices"
	"time"

	"fairlead.dev/internal/catalog"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/history"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/placement"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/translate"
)

const (
	// beat is how often the loop looks at what time alone changes.
	beat = time.Second
	// validityBeat is how often the validity of certificates is judged again.
	validityBeat = time.Minute
	// receiveTime is how long batches of changes are received one after another while other
	// inputs wait: writers without a pause must not keep a backend's health from the machines, nor
	// a probe from its answer. Then each of the others has one turn.
	receiveTime = 20 * time.Millisecond
)

// loop owns the plane's knowledge. Everything in it belongs to the goroutine of run.
//
// A change of a resource goes through five steps, each in a file of its name:
//
//	receive    a batch of changes goes into the snapshot
//	translate  the translator says what changes with it; the history holds back what is frozen
//	publish    each machine is sent what changes for it
//	judge      objects are compared with the reports of machines
//	offer      the status writer is offered what objects should show
//
// A report of a machine begins at judge; it may also change what others are sent: publishStale.
type loop struct {
	plane *Plane

	// Of receive.
	snapshot *snapshot.Snapshot
	synced   bool           // every resource of the API is read
	backlog  []snapshot.Key // changed before that
	toldOf   bool           // that IngressRoutes are another controller's

	// Of translate.
	translator *translate.Translator
	inForce    []snapshot.Key // BGPPeers whose settings in force the translation has yet to be told
	history    *history.History
	unpin      func() // removes the pins of the Freeze that holds; nil: none does

	// Of publish.
	rev           delta.Revision // of the last publication
	published     progress.Publications
	placement     placement.Placement
	catalog       *catalog.Catalog
	machines      map[string]*model.Machine
	network       network
	frontends     *frontends
	newcomers     newcomers
	leaving       leaving
	handover      handover
	health        *health.Checks
	checkersStale bool // other machines may be able to check
	certificates  certificates
	unfinished    unfinishedBatches
	stages        stages
	traces        traces

	// Of judge.
	statuses  map[model.Object]*translate.Status
	tracker   *progress.Tracker
	peeked    map[string]southbound.MachineState // in this turn
	leadSince time.Time
	inGrace   bool                  // machines may still report for the first time
	due       map[model.Object]bool // to be judged

	// Of offer.
	endTerm context.CancelFunc    // of the status writer's term; nil while it may not write
	blinded map[model.Object]bool // pools that wait until every kind of owner can be read

	// For people.
	answering answering
	counts    counts
	pools     *poolCounts
	routeRows *routeRows
	recount   bool // the metrics of objects and machines are stale

	announcements announcements
}

func newLoop(p *Plane) *loop {
	h := health.New()
	c := catalog.New(catalog.Config{XDS: p.config.XDS, Health: h, Last: p.views.Any})
	l := &loop{
		plane:        p,
		history:      history.New(p.keeper),
		counts:       newCounts(),
		pools:        newPoolCounts(),
		routeRows:    newRouteRows(p.routes),
		snapshot:     snapshot.New(),
		translator:   translate.New(p.config.Translate),
		health:       h,
		catalog:      c,
		statuses:     map[model.Object]*translate.Status{},
		machines:     map[string]*model.Machine{},
		network:      newNetwork(),
		frontends:    newFrontends(),
		leaving:      newLeaving(),
		newcomers:    newNewcomers(),
		placement:    placement.New(),
		handover:     newHandover(func(d time.Duration) { time.AfterFunc(d, func() { signal(p.signals.turn) }) }),
		answering:    answering{now: time.Now}, // setting the clock does not matter
		peeked:       map[string]southbound.MachineState{},
		certificates: newCertificates(p.staples),
		due:          map[model.Object]bool{},
		blinded:      map[model.Object]bool{},
	}
	l.tracker = progress.New(c, progress.Inputs{Serving: l.placement.Serves, Frozen: l.history.HeldText, Balanced: l.balanced})
	return l
}

// run serves every input until ctx is done. Changes that wait come first, then whatever is stale is published. Of the
// other inputs any may be next; those of consoles have a bounded share of the time (questions).
func (l *loop) run(ctx context.Context) {
	batches := l.batches(ctx)
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	defer func() {
		l.plane.ended.Store(true) // first: a plane that serves nobody and has not ended starts to lead
		l.plane.serving.Store(0)
		l.forbidWrites()
	}()
	served := time.Now() // when the other inputs had their turn; setting the clock does not matter
	for ctx.Err() == nil {
		select {
		case b := <-batches: // before everything else that waits, for a while
			l.change(ctx, b)
			if time.Since(served) < receiveTime {
				continue
			}
			clear(l.peeked)
			for _, in := range l.otherInputs(ctx, ticker.C) {
				in.poll()
			}
		default:
		}
		served = time.Now()
		clear(l.peeked)
		l.publishExpired()
		l.publishStale()
		l.tellLeaving()
		clear(l.peeked) // it may be long until something comes
		serveNext(append(l.otherInputs(ctx, ticker.C),
			from(batches, func(b snapshot.Batch) { l.change(ctx, b) }),
			from(ctx.Done(), func(struct{}) {}),
		)...)
	}
}

// otherInputs are the inputs of run beside the changes. While somebody writes without a pause, each has one turn now
// and then, in this order.
func (l *loop) otherInputs(ctx context.Context, tick <-chan time.Time) []input {
	p := l.plane
	var due <-chan struct{}
	if len(l.due) > 0 {
		due = always
	}
	return []input{
		from(due, func(struct{}) { l.judge() }),
		from(p.signals.term, func(struct{}) { l.followTerm(ctx) }),
		from(p.touched.some, func(struct{}) { l.receiveReports(p.touched.receive()) }),
		from(p.upstreams.some, func(struct{}) { l.offerUpstreams(p.upstreams.receive()) }),
		from(p.stapled.some, func(struct{}) { l.publishStapled() }),
		from(p.signals.turn, func(struct{}) {}), // the turn follows
		from(p.calls, func(f func(*loop)) { f(l) }),
		from(l.questions(), l.answer),
		from(tick, func(time.Time) { l.beat(ctx) }),
	}
}

// change takes a batch of changes through all steps.
func (l *loop) change(ctx context.Context, b snapshot.Batch) {
	seen := l.before(b)
	l.stages = stages{received: l.plane.config.Now()}
	keys, before := l.receive(b), l.rev
	switch {
	case !l.synced:
		return
	case l.history.Since().IsZero():
		l.history.Begin(l.plane.config.Now())
		l.update(keys)
		l.followFreeze() // no machine is served yet
	case slices.ContainsFunc(keys, func(k snapshot.Key) bool { return k.Kind == snapshot.KindFreeze }):
		l.followFreeze() // first: nothing of the same batch slips through
		l.update(keys)
	default:
		l.update(keys)
	}
	l.record(seen, b, before)
	l.announce(seen, b, before)
	l.followBatch(b.Number, before)
	l.review(keys)
	l.followTerm(ctx)
}

// before are the objects of a batch as they were. It is nil before every resource of the API is read.
func (l *loop) before(b snapshot.Batch) []snapshot.Object {
	if !l.synced {
		return nil
	}
	seen := make([]snapshot.Object, len(b.Changes))
	for i, c := range b.Changes {
		if c.Key.Kind != snapshot.KindEndpointSlice {
			seen[i] = l.snapshot.Get(c.Key)
		}
	}
	return seen
}

// record has the changes of a batch recorded. Machines were sent them after the revision before.
func (l *loop) record(seen []snapshot.Object, b snapshot.Batch, before delta.Revision) {
	if seen == nil {
		return
	}
	rev := l.rev
	if rev == before || l.plane.serving.Load() == 0 {
		rev = delta.Revision{}
	}
	if l.plane.serving.Load() != 0 && rev == (delta.Revision{}) {
		rev.Epoch = l.rev.Epoch
	}
	for i, c := range b.Changes {
		if isRecorded(seen[i], c) {
			l.plane.recorder.note(seen[i], c, rev)
		}
	}
	l.traceChanges(seen, b, rev)
}

// update translates changed keys, and publishes what changes with them.
func (l *loop) update(keys []snapshot.Key) {
	began := l.plane.config.Now()
	changes := l.translate(keys)
	translated := l.plane.config.Now()
	l.plane.metrics.translate.Observe(translated.Sub(began).Seconds())
	l.stages.translated = translated
	if changes.Empty() {
		return
	}
	next := l.next()
	l.publish(l.history.Apply(changes, translated, next))
	if l.rev != next && l.history.LastRevision() == next {
		l.send(next, southbound.Update{}) // it is held back; no other step may have its number
	}
	l.stages.published = l.plane.config.Now()
	l.plane.metrics.publish.Observe(l.stages.published.Sub(translated).Seconds())
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

// beat looks at what time alone changes.
func (l *loop) beat(ctx context.Context) {
	p := l.plane
	p.server.Sweep()
	l.traces.expire(p.config.Now())
	if now := p.config.Now(); now.Before(l.leadSince) {
		l.leadSince = now // the clock was set back
	}
	if l.inGrace && !p.config.Now().Before(l.leadSince.Add(2*p.config.TTL)) {
		l.inGrace = false
		l.refreshAll()
		l.offerAll()
	}
	l.frontends.expire(p.config.Now())
	if names := p.upstreams.orphans(); len(names) > 0 {
		p.discovery.Use(l.translator.Used(names))
	}
	if len(l.blinded) > 0 && !l.blind() {
		maps.Copy(l.due, l.blinded)
		clear(l.blinded)
	}
	if now := p.config.Now().UTC().Truncate(validityBeat); l.synced && !now.Equal(l.snapshot.Now) {
		l.snapshot.Now = now
		l.update([]snapshot.Key{{Kind: snapshot.KindTime}})
		l.recount = true
	}
	if l.synced && l.followOwn() {
		l.update([]snapshot.Key{{Kind: snapshot.KindOwn}})
	}
	if p.staples.enabled() && l.synced && p.serving.Load() == 0 {
		signal(p.signals.term) // it may have waited for responses
	}
	l.followRoutes(ctx)
	l.tellPublished()
	if l.recount {
		l.recount = false
		l.count()
	}
}

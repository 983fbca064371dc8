package status

import (
	"container/heap"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/model"
)

const (
	// PendingDelay is how long a status that is still to change soon may wait to be
	// written: most changes reach their machines within it.
	PendingDelay = 300 * time.Millisecond
	// ProgrammedDelay is the same for an object that shows that it is programmed, and for the
	// same generation: a machine that joins or is lost must not have all statuses written
	// twice. With WritePace it stays within 2 s, the age that a status may have.
	ProgrammedDelay = 1500 * time.Millisecond
	// WritePace is the least time between two writes of one object; changes in between go
	// into one write.
	WritePace = 500 * time.Millisecond
	// A status that somebody else overwrites again and again is put right more and more
	// rarely after calmWrites times, until calmInterval passed without.
	calmWrites   = 4
	calmInterval = 10 * time.Second
	calmLongest  = time.Minute
	// refusedPause is when a status that the API refused is tried again unchanged.
	refusedPause = 15 * time.Second
)

// queue decides whose status is written next, and when. It does no I/O and reads no
// clock: times come in. It is not safe for concurrent use.
//
// A changed status waits at most for WritePace after the object's last write, and for its
// Delay. Only a status that stays the same and that somebody else overwrites waits longer.
//
// Statuses that are due wait in lanes: one of each namespace, kind, and answer, which is
// whether the object shows its generation already. The lanes take turns, and in a lane the
// longest wait is first. So neither a namespace with 20,000 routes nor a machine that concerns
// all of them keeps a new route elsewhere, an address or a Gateway waiting.
type queue struct {
	limiter *rate.Limiter
	objects map[model.Object]*entry
	waiting byTime
	lanes   map[laneKey][]*entry
	turns   []laneKey // lanes that are not empty, the next first
	pending int       // objects with a status to write
	latest  time.Time // the newest time that came in
	until   time.Time // no write before
}

// entry is what the queue knows of an object.
type entry struct {
	want  *Write // nil: nothing to write
	due   time.Time
	index int  // in waiting, -1 outside
	laned bool // in a lane
	busy  bool // taken and not finished

	answered int64 // the newest generation that the object showed
	// wrote is the Apply of the last write in this term; nil: none.
	wrote  Applier
	uid    types.UID
	result client.Object // of the last write, until the watch shows it or something newer
	at     time.Time     // of the last write
	fights int           // writes over somebody else's, in a row
	fought time.Time
	// refused is what the API refused to store last.
	refused client.Object
}

type laneKey struct {
	namespace, kind string
	answer          bool
}

func newQueue(perSecond float64) *queue {
	return &queue{
		limiter: rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond))),
		objects: map[model.Object]*entry{},
		lanes:   map[laneKey][]*entry{},
	}
}

// clear forgets everything.
func (q *queue) clear() {
	limiter := q.limiter
	*q = queue{limiter: limiter, objects: map[model.Object]*entry{}, lanes: map[laneKey][]*entry{}, latest: q.latest}
}

// offer says what an object should show now.
func (q *queue) offer(s Write, now time.Time) {
	q.follow(now)
	e := q.objects[s.Object]
	if e == nil {
		e = &entry{index: -1}
		q.objects[s.Object] = e
	}
	if !e.meet(&s) {
		q.setWant(e, nil)
		return
	}
	q.schedule(e, s, now)
}

// meet compares a status with what is known of its object's last write. It is false when
// the watch has to bring a newer object first.
func (e *entry) meet(s *Write) bool {
	if e.wrote != nil && e.uid != s.Live.GetUID() {
		*e = entry{want: e.want, due: e.due, index: e.index, laned: e.laned, busy: e.busy} // another object of that name
	}
	if e.result == nil {
		return true
	}
	if !older(s.Live, e.result) {
		e.result = nil
		return true
	}
	if s.Fenced {
		return false
	}
	s.Live = e.result
	return true
}

// older says whether a comes before b in the API's order.
func older(a, b client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}

// schedule sets what is to be written and when; nothing if the object shows it.
func (q *queue) schedule(e *entry, s Write, now time.Time) {
	next := s.Apply(s.Live, metav1.NewTime(now))
	if next == nil {
		e.answered = max(e.answered, s.Generation)
		q.setWant(e, nil)
		return
	}
	due := e.when(s, now)
	if e.want != nil && e.due.Before(due) {
		due = e.due // its turn comes
	}
	q.setWant(e, &s)
	e.due = due
	switch {
	case e.busy || e.laned:
	case e.index >= 0:
		heap.Fix(&q.waiting, e.index)
	default:
		heap.Push(&q.waiting, e)
	}
}

func (q *queue) setWant(e *entry, s *Write) {
	if e.want != nil {
		q.pending--
	}
	if e.want = s; s != nil {
		q.pending++
	}
}

// when is the earliest time at which a status that the object does not show is written.
func (e *entry) when(s Write, now time.Time) time.Time {
	stamp := metav1.NewTime(now)
	due := now.Add(s.Delay)
	var pause time.Duration
	switch {
	case e.refused != nil && s.Apply(e.refused, stamp) == nil:
		pause = refusedPause
	case !s.Fenced: // whose writes follow each other through the watch
		pause = WritePace
	}
	if e.wrote != nil {
		if ours := e.wrote(s.Live, stamp); ours != nil && s.Apply(ours, stamp) == nil {
			pause = max(pause, calm(e.fights)) // nothing of ours changed: somebody else's write only
		}
	}
	return later(due, e.at.Add(pause))
}

// calm is the distance of writes against somebody who overwrites them.
func calm(fights int) time.Duration {
	if fights <= calmWrites {
		return 0
	}
	return min(calmLongest, time.Second<<min(fights-calmWrites, 10))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// withdraw takes back what was offered for an object.
func (q *queue) withdraw(o model.Object) {
	if e := q.objects[o]; e != nil {
		q.setWant(e, nil)
	}
}

// forget drops what is known of an object that is gone.
func (q *queue) forget(o model.Object) {
	q.withdraw(o)
	delete(q.objects, o)
}

// turn is a status that is to be written now.
type turn struct {
	Write
	entry  *entry
	waited time.Duration // since it was due
}

// next takes the status whose turn it is; finish must follow. Without one, wait is how
// long there will be none unless something is offered or finished; negative is for ever.
func (q *queue) next(now time.Time) (t turn, wait time.Duration, ok bool) {
	q.follow(now)
	if wait := q.until.Sub(now); wait > 0 {
		return t, wait, false
	}
	for len(q.waiting) > 0 && (q.waiting[0].want == nil || !q.waiting[0].due.After(now)) {
		if e := heap.Pop(&q.waiting).(*entry); e.want != nil {
			q.enter(e)
		}
	}
	for len(q.turns) > 0 {
		lane := q.turns[0]
		e := q.lanes[lane][0]
		is := e.want != nil && !e.due.After(now)
		if is {
			if wait := q.spend(now); wait > 0 {
				return t, wait, false
			}
		}
		q.leave(lane)
		e.laned = false
		switch {
		case is:
			t, e.busy = turn{*e.want, e, now.Sub(e.due)}, true
			q.setWant(e, nil)
			return t, 0, true
		case e.want != nil: // withdrawn, and offered again for later
			heap.Push(&q.waiting, e)
		}
	}
	if len(q.waiting) == 0 {
		return t, -1, false
	}
	return t, q.waiting[0].due.Sub(now), false
}

// follow notes the time. A clock that was set back moves everything with it.
func (q *queue) follow(now time.Time) {
	by := now.Sub(q.latest)
	if q.latest = now; by >= 0 {
		return
	}
	for _, e := range q.objects {
		e.due, e.at, e.fought = e.due.Add(by), e.at.Add(by), e.fought.Add(by)
	}
	q.until = q.until.Add(by)
	heap.Init(&q.waiting)
}

// enter puts an object whose status is due at the end of its lane.
func (q *queue) enter(e *entry) {
	o := e.want.Object
	lane := laneKey{namespace: o.Namespace, kind: o.Kind, answer: e.answered < e.want.Generation}
	if len(q.lanes[lane]) == 0 {
		q.turns = append(q.turns, lane)
	}
	q.lanes[lane] = append(q.lanes[lane], e)
	e.laned = true
}

// leave takes the first object out of the lane whose turn it was.
func (q *queue) leave(lane laneKey) {
	q.turns = q.turns[1:]
	if rest := q.lanes[lane][1:]; len(rest) > 0 {
		q.lanes[lane] = rest
		q.turns = append(q.turns, lane)
	} else {
		delete(q.lanes, lane)
	}
}

// spend takes the right to one request; else it says how long there is none.
func (q *queue) spend(now time.Time) time.Duration {
	r := q.limiter.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// charge counts a request that was made without asking: later ones wait for it.
func (q *queue) charge(now time.Time) { q.limiter.ReserveN(now, 1) }

// attempt is what became of a write.
type attempt struct {
	outcome Outcome
	base    client.Object // the newest version that it met
	next    client.Object // what was sent last
	result  client.Object // what the API stored; nil: nothing
}

// finish says what became of a status that next gave out. What the API did not take is
// tried again after pause, unless something newer is wanted; 0 is never. It returns how
// often the status was written over somebody else's in a row.
func (q *queue) finish(t turn, a attempt, pause time.Duration, now time.Time) (fights int) {
	q.follow(now)
	e, s := t.entry, t.Write
	e.busy = false
	if q.objects[s.Object] != e {
		return 0 // forgotten meanwhile
	}
	switch a.outcome {
	case outcomeWritten:
		e.noteWritten(s, a, now)
		fights = e.fights
	case outcomeRefused:
		e.refused, e.at = a.next, now
	case outcomeGone:
		e.wrote, e.result, e.refused = nil, nil, nil
	}
	want := e.want
	q.setWant(e, nil)
	switch {
	case want != nil && e.meet(want):
		q.schedule(e, *want, now)
	case want == nil && pause > 0:
		if s.Delay = pause; a.base != nil {
			s.Live = a.base
		}
		q.schedule(e, s, now)
	}
	return fights
}

func (e *entry) noteWritten(s Write, a attempt, now time.Time) {
	overwritten := e.wrote != nil && e.uid == a.base.GetUID() && e.wrote(a.base, metav1.NewTime(now)) != nil
	quiet := now.Sub(e.fought) > max(calmInterval, 2*calm(e.fights))
	switch {
	case overwritten && quiet:
		e.fights, e.fought = 1, now
	case overwritten:
		e.fights, e.fought = e.fights+1, now
	case quiet:
		e.fights = 0
	}
	e.wrote, e.uid, e.result, e.at, e.refused = s.Apply, a.result.GetUID(), a.result, now, nil
	e.answered = max(e.answered, s.Generation)
}

// byTime holds objects by when their status is due.
type byTime []*entry

func (h byTime) Len() int           { return len(h) }
func (h byTime) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h byTime) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is heap.Interface's.
func (h *byTime) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop is heap.Interface's.
func (h *byTime) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}

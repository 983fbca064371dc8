package derive

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// applyTimeout bounds one try.
	applyTimeout = 10 * time.Second
	// retryShortest and retryLongest bound the pause after a try that failed. It doubles each time.
	retryShortest = 100 * time.Millisecond
	retryLongest  = time.Minute
	// atOnce is how many objects of a kind are written at a time: a write mostly waits for the API.
	atOnce = 4
	// forbiddenPause is until a missing right is looked for again.
	forbiddenPause = 5 * time.Minute
)

// Writer brings about what is offered: the newest form of each object, while a term lasts. Its methods may be called by
// several goroutines.
type Writer struct {
	client client.Client
	lanes  map[reflect.Type]lane

	mu     sync.Mutex
	term   context.Context   // nil while there is none
	wanted map[key]*Object   // that are to be applied, and those to be rechecked
	done   map[key]Object    // that were applied in this term
	told   map[key]string    // the last trouble of each
	rests  map[key]time.Time // until when those with a Pause are not written again

	applied atomic.Uint64
}

// lane writes the objects of one kind, some at a time. Very many of them, or an API that does not answer about them, hold up
// no other kind.
type lane struct {
	limiter *rate.Limiter
	queue   workqueue.TypedRateLimitingInterface[key]
}

// key names a derived object.
type key struct {
	kind reflect.Type
	name types.NamespacedName
}

func keyOf(o client.Object) key {
	return key{kind: reflect.TypeOf(o), name: client.ObjectKeyFromObject(o)}
}

// NewWriter returns a Writer that applies so many objects of each of these kinds a second. No other kind may be offered.
func NewWriter(c client.Client, perSecond int, kinds ...client.Object) *Writer {
	w := &Writer{client: c, lanes: map[reflect.Type]lane{}, wanted: map[key]*Object{}, done: map[key]Object{}, told: map[key]string{}, rests: map[key]time.Time{}}
	for _, kind := range kinds {
		w.lanes[reflect.TypeOf(kind)] = lane{
			limiter: rate.NewLimiter(rate.Limit(perSecond), perSecond),
			queue:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](retryShortest, retryLongest)),
		}
	}
	return w
}

// Run applies until ctx is done. Run it once.
func (w *Writer) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, l := range w.lanes {
		for range atOnce {
			running.Go(func() { w.run(ctx, l) })
		}
	}
	running.Wait()
}

func (w *Writer) run(ctx context.Context, l lane) {
	defer context.AfterFunc(ctx, l.queue.ShutDown)()
	for {
		k, shutdown := l.queue.Get()
		if shutdown {
			return
		}
		w.apply(ctx, l, k)
		l.queue.Done(k)
	}
}

// Enable lets the Writer write for a term. What was offered before is forgotten.
func (w *Writer) Enable(term context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.term = term
	w.clear()
}

// Disable ends the term.
func (w *Writer) Disable() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.term = nil
	w.clear()
}

func (w *Writer) clear() {
	clear(w.wanted)
	clear(w.done)
	clear(w.told)
	clear(w.rests)
}

// Offer says what an object should be. It replaces what was offered for the object before, and costs nothing if that is
// the same. Outside of a term it has no effect.
func (w *Writer) Offer(o Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.term == nil {
		return
	}
	k := keyOf(o.Wanted)
	done, is := w.done[k]
	switch pending := w.wanted[k]; {
	case pending != nil && pending.same(o), pending == nil && is && done.same(o):
		return
	}
	w.wanted[k] = &o
	w.lanes[k.kind].queue.AddAfter(k, time.Until(w.rests[k]))
}

// Forget drops what is known of an object that went with its owner.
func (w *Writer) Forget(o client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := keyOf(o)
	delete(w.wanted, k)
	delete(w.done, k)
	delete(w.told, k)
	delete(w.rests, k)
}

// Pending is the number of objects that are to be applied, or rechecked.
func (w *Writer) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wanted)
}

// Applied counts the objects that were brought about.
func (w *Writer) Applied() uint64 { return w.applied.Load() }

// apply brings about one object, and says in the queue when it is looked at again.
func (w *Writer) apply(ctx context.Context, l lane, k key) {
	w.mu.Lock()
	o, term := w.wanted[k], w.term
	w.mu.Unlock()
	if o == nil || term == nil || l.limiter.Wait(ctx) != nil {
		l.queue.Forget(k)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	defer context.AfterFunc(term, cancel)()
	err := Apply(ctx, w.client, *o)
	switch {
	case term.Err() != nil:
		l.queue.Forget(k)
	case err == nil, apierrors.IsForbidden(err) && o.Absent: // where nothing may be written, nothing of ours is left
		w.applied.Add(1)
		w.finish(term, l, k, o)
	case errors.Is(err, ErrForeign):
		w.tell(k, o, Foreign, err)
		w.finish(term, l, k, o)
	case apierrors.IsForbidden(err) && o.Recheck == 0:
		w.tell(k, o, Forbidden, err)
		l.queue.Forget(k)
		l.queue.AddAfter(k, forbiddenPause) // somebody may grant it
	case apierrors.IsInvalid(err) && o.Recheck == 0: // others need the requests
		w.tell(k, o, Failed, err)
		l.queue.Forget(k)
		l.queue.AddAfter(k, forbiddenPause)
	default:
		if !apierrors.IsConflict(err) { // others write it, too
			w.tell(k, o, Failed, err)
		}
		l.queue.AddRateLimited(k)
	}
}

// finish notes what was brought about.
func (w *Writer) finish(term context.Context, l lane, k key, o *Object) {
	l.queue.Forget(k)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.term != term {
		return
	}
	if delete(w.done, k); !o.Watched {
		w.done[k] = *o
	}
	delete(w.told, k)
	w.rest(k, o.Pause)
	if w.wanted[k] != o {
		return // a newer form is queued
	}
	if o.Recheck > 0 {
		l.queue.AddAfter(k, o.Recheck)
	} else {
		delete(w.wanted, k)
	}
}

// manyRests is the number of rests at which those that are over are dropped.
const manyRests = 4096

// rest notes until when an object is not written again. Setting the clock does not matter.
func (w *Writer) rest(k key, pause time.Duration) {
	if pause == 0 {
		return
	}
	now := time.Now()
	if len(w.rests) >= manyRests {
		maps.DeleteFunc(w.rests, func(_ key, until time.Time) bool { return !now.Before(until) })
	}
	w.rests[k] = now.Add(pause)
}

// tell names a trouble that is not the last one of the object.
func (w *Writer) tell(k key, o *Object, t Trouble, err error) {
	w.mu.Lock()
	before := w.told[k]
	w.told[k] = err.Error()
	w.mu.Unlock()
	if o.Tell != nil && before != err.Error() {
		o.Tell(t, err)
	}
}

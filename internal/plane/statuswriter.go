package plane

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/model"
)

const (
	statusWorkers = 4
	// statusTries is how often one write follows an object that others change.
	statusTries = 4
	// An object whose status is written again and again, because somebody else
	// overwrites it, is left alone for longer and longer.
	calmWrites   = 4
	calmInterval = 10 * time.Second
	calmLongest  = time.Minute
	// While the API is away, tries are this far apart.
	awayShortest = 250 * time.Millisecond
	awayLongest  = 15 * time.Second
	writeTimeout = 10 * time.Second
)

// outcome of one status write, a label of its counter.
type outcome string

const (
	outcomeWritten   outcome = "written"
	outcomeConflict  outcome = "conflict" // somebody changed the object; tried again
	outcomeGone      outcome = "gone"
	outcomeError     outcome = "error"
	outcomeUnchanged outcome = "unchanged" // the API had it already
)

// statusWrite is a status that an object should show.
type statusWrite struct {
	Object model.Object
	// Generation of the object that the status speaks of: a newer one makes it stale.
	Generation int64
	// Live is the newest object known. It is not changed.
	Live client.Object
	// Apply returns a copy of the object with the status set, or nil when it shows it
	// already. It is pure and may be called several times.
	Apply func(live client.Object, now metav1.Time) client.Object
	// Fenced forbids writing over any version but Live: what it says follows from that.
	// The watch brings the newer one, and then there is a newer status.
	Fenced bool
	// Delay is how long a newer status may replace this one before it is written.
	Delay time.Duration
}

// statusWriter brings statuses into the API: only differences, the newest of each
// object, at a bounded rate, and only while it is enabled.
type statusWriter struct {
	client  client.Client
	log     *slog.Logger
	now     func() time.Time
	random  func() float64
	limiter *rate.Limiter
	count   func(kind string, o outcome)

	queue workqueue.TypedDelayingInterface[model.Object]

	mu      sync.Mutex
	enabled context.Context // of the term that may write; nil while there is none
	wanted  map[model.Object]statusWrite
	written map[model.Object]written
	away    int       // failures in a row
	until   time.Time // no try before
}

// written remembers the last write of an object until the API's watch has shown it.
type written struct {
	base       string // resource version that it was made from
	result     client.Object
	generation int64
	at         time.Time
	streak     int
}

func newStatusWriter(c client.Client, perSecond float64, log *slog.Logger, now func() time.Time, random *rand.Rand, count func(string, outcome)) *statusWriter {
	var mu sync.Mutex
	return &statusWriter{
		client: c, log: log, now: now, count: count,
		random: func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return random.Float64()
		},
		limiter: rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond))),
		queue:   workqueue.NewTypedDelayingQueue[model.Object](),
		wanted:  map[model.Object]statusWrite{},
		written: map[model.Object]written{},
	}
}

// run writes until ctx is done.
func (w *statusWriter) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range statusWorkers {
		workers.Go(func() {
			for {
				object, shutdown := w.queue.Get()
				if shutdown {
					return
				}
				w.write(ctx, object)
				w.queue.Done(object)
			}
		})
	}
	<-ctx.Done()
	w.queue.ShutDown()
	workers.Wait()
}

// disable forbids writes. Nothing that was offered is written any more.
func (w *statusWriter) disable() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enabled = nil
	clear(w.wanted)
}

// enable lets what is offered from now on be written until the term is done.
func (w *statusWriter) enable(term context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enabled = term
	w.away, w.until = 0, time.Time{}
	clear(w.wanted)
}

// offer says what an object should show. It replaces what was offered before, and
// costs nothing when the object shows it already.
func (w *statusWriter) offer(s statusWrite) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.enabled == nil {
		return
	}
	last, wrote := w.written[s.Object]
	switch {
	case s.Fenced:
	case wrote && last.result != nil && last.base == s.Live.GetResourceVersion():
		s.Live = last.result // the watch has not shown our own write yet
	case wrote && last.result != nil:
		last.result = nil
		w.written[s.Object] = last
	}
	if s.Apply(s.Live, metav1.NewTime(w.now())) == nil {
		delete(w.wanted, s.Object)
		return
	}
	_, queued := w.wanted[s.Object]
	w.wanted[s.Object] = s
	delay := s.Delay
	// Somebody waits for each fenced one, an address say, and nobody fights over it.
	if wrote && !s.Fenced && last.generation == s.Generation && last.streak > calmWrites {
		calm := min(calmLongest, time.Second<<min(last.streak-calmWrites, 10))
		delay = max(delay, min(calm, last.at.Add(calm).Sub(w.now())))
	}
	if queued && delay > 0 {
		return // its turn comes
	}
	w.queue.AddAfter(s.Object, delay)
}

// withdraw takes back what was offered for an object and is not written yet.
func (w *statusWriter) withdraw(o model.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wanted, o)
}

// forget drops what is known of an object that is gone.
func (w *statusWriter) forget(o model.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wanted, o)
	delete(w.written, o)
}

// pending is how many statuses wait to be written.
func (w *statusWriter) pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wanted)
}

func (w *statusWriter) take(o model.Object) (statusWrite, context.Context, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.wanted[o]
	if !ok || w.enabled == nil {
		return statusWrite{}, nil, false
	}
	// A longer wait than any comes of a clock that was set back.
	if wait := w.until.Sub(w.now()); wait > 0 && wait <= 2*awayLongest {
		w.queue.AddAfter(o, wait)
		return statusWrite{}, nil, false
	}
	delete(w.wanted, o)
	return s, w.enabled, true
}

func (w *statusWriter) write(ctx context.Context, o model.Object) {
	s, term, ok := w.take(o)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	defer context.AfterFunc(term, cancel)()
	if w.limiter.Wait(ctx) != nil {
		if w.putBack(term, s) {
			w.queue.AddAfter(o, time.Second)
		}
		return
	}
	base := s.Live.GetResourceVersion()
	result, outcome, err := w.update(ctx, s)
	w.count(o.Kind, outcome)
	if err != nil {
		if term.Err() == nil {
			w.failed(term, s, err)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away > 0 {
		w.log.Info("statuses are written again")
		w.away, w.until = 0, time.Time{}
	}
	if result == nil {
		return
	}
	last, now := w.written[o], w.now()
	streak := 0
	if last.generation == s.Generation && now.Sub(last.at) < max(calmInterval, time.Second<<min(last.streak, 6)) {
		streak = last.streak + 1
	}
	w.written[o] = written{base: base, result: result, generation: s.Generation, at: now, streak: streak}
}

// update writes onto the live object, and onto the newer ones that it meets. The
// result is nil when there was nothing to write.
func (w *statusWriter) update(ctx context.Context, s statusWrite) (client.Object, outcome, error) {
	live := s.Live
	var conflict error
	for range statusTries {
		next := s.Apply(live, metav1.NewTime(w.now()))
		if next == nil {
			return nil, outcomeUnchanged, nil
		}
		err := w.client.Status().Update(ctx, next)
		switch {
		case err == nil:
			return next, outcomeWritten, nil
		case apierrors.IsNotFound(err):
			return nil, outcomeGone, nil
		case !apierrors.IsConflict(err):
			return nil, outcomeError, err
		}
		conflict = err
		if s.Fenced {
			return nil, outcomeConflict, nil
		}
		w.count(s.Object.Kind, outcomeConflict)
		fresh := empty(live)
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(live), fresh); err != nil {
			if apierrors.IsNotFound(err) {
				return nil, outcomeGone, nil
			}
			return nil, outcomeError, err
		}
		if fresh.GetUID() != live.GetUID() || fresh.GetGeneration() > s.Generation {
			return nil, outcomeUnchanged, nil // the watch brings it, and then its own status
		}
		live = fresh
	}
	return nil, outcomeConflict, conflict
}

// empty is a new object of the same type: an object that is decoded into another keeps
// what the new one lacks.
func empty(o client.Object) client.Object {
	return reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
}

// putBack keeps a status that could not be written, unless a newer one came.
func (w *statusWriter) putBack(term context.Context, s statusWrite) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.enabled != term || term.Err() != nil {
		return false
	}
	if _, newer := w.wanted[s.Object]; !newer {
		w.wanted[s.Object] = s
	}
	return true
}

// failed tries again later: soon for one object that the API refused, with growing
// distance for all when it is away.
func (w *statusWriter) failed(term context.Context, s statusWrite, err error) {
	if !w.putBack(term, s) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delay := min(awayLongest, awayShortest<<min(w.away, 10))
	delay += time.Duration(w.random() * float64(delay) / 2)
	if refusedByAPI(err) {
		w.log.Error("the API refuses a status", "object", s.Object.String(), "error", err)
		delay = awayLongest
	} else {
		if w.away == 0 {
			w.log.Warn("statuses cannot be written; machines are not affected", "object", s.Object.String(), "error", err)
		}
		w.away++
		w.until = w.now().Add(delay)
	}
	w.queue.AddAfter(s.Object, delay)
}

// refusedByAPI says that the API answered and that this object is at fault.
func refusedByAPI(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err))
}

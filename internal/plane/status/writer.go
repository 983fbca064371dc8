package status

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

const (
	statusWorkers = 4
	// statusTries is how often one write follows an object that others change.
	statusTries = 4
	// While the API is away, tries are this far apart.
	awayShortest = 250 * time.Millisecond
	awayLongest  = 15 * time.Second
	// WriteTimeout bounds one request to the API.
	WriteTimeout = 10 * time.Second
	// noStatusPause is when the API is asked again whether a kind has statuses by now.
	noStatusPause = 2 * time.Minute
)

// errNoStatus is the error of a write to an object that is there, and is not found with its status.
var errNoStatus = errors.New("their definition in the API has no subresource status: apply that of Fairlead (deploy/crd)")

// Outcome of one status write, a label of its counter.
type Outcome string

const (
	outcomeWritten   Outcome = "written"
	outcomeConflict  Outcome = "conflict" // somebody changed the object; tried again
	outcomeGone      Outcome = "gone"
	outcomeRefused   Outcome = "refused" // by the API, for what it says
	outcomeError     Outcome = "error"
	outcomeUnchanged Outcome = "unchanged" // the API had it already
)

// Write is a status that an object should show.
type Write struct {
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

// Writer brings statuses into the API: only differences, the newest of each
// object, at a bounded rate, and only while it is enabled. The queue says when.
type Writer struct {
	client client.Client
	log    *slog.Logger
	now    func() time.Time
	after  func(time.Duration) (elapsed <-chan time.Time, stop func())
	random func() float64
	meter  Meter
	wake   chan struct{} // something was offered or finished

	mu      sync.Mutex
	enabled context.Context // of the term that may write; nil while there is none
	queue   *queue
	away    int             // failures in a row
	busy    int             // writes under way
	bare    map[string]bool // kinds that are said to have no subresource for their status
}

// Meter measures writes. Its methods are called by several goroutines.
type Meter interface {
	// Count counts an outcome of a write to an object of a kind.
	Count(kind string, o Outcome)
	// Time takes how long a status waited for its turn, and how long the API took for it.
	Time(waited, took time.Duration)
}

// Config is what a Writer is told. All are required.
type Config struct {
	Client client.Client
	Rate   float64 // writes a second, at most
	Log    *slog.Logger
	Now    func() time.Time
	After  func(time.Duration) (elapsed <-chan time.Time, stop func()) // Timer, but in tests
	Random *rand.Rand
	Meter  Meter
}

// NewWriter is a writer that is not enabled.
func NewWriter(c Config) *Writer {
	var mu sync.Mutex
	return &Writer{
		client: c.Client, log: c.Log, now: c.Now, after: c.After, meter: c.Meter,
		random: func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return c.Random.Float64()
		},
		wake:  make(chan struct{}, 1),
		queue: newQueue(c.Rate),
		bare:  map[string]bool{},
	}
}

// Timer is a timer of the real clock.
func Timer(d time.Duration) (elapsed <-chan time.Time, stop func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// Run writes until ctx is done, and tells of each object that was written, as it was and as it is.
func (w *Writer) Run(ctx context.Context, tell func(before, after client.Object)) {
	var workers sync.WaitGroup
	defer workers.Wait()
	free := make(chan struct{}, statusWorkers)
	for {
		select {
		case free <- struct{}{}: // first: what is taken is written at once, and is the newest
		case <-ctx.Done():
			return
		}
		t, term, ok := w.await(ctx)
		if !ok {
			return
		}
		workers.Go(func() {
			w.write(ctx, term, t, tell)
			<-free
		})
	}
}

// await takes the next status as soon as its turn comes.
func (w *Writer) await(ctx context.Context) (turn, context.Context, bool) {
	for ctx.Err() == nil {
		t, term, wait, ok := w.next()
		if ok {
			return t, term, true
		}
		var elapsed <-chan time.Time
		stop := func() {}
		if wait >= 0 {
			elapsed, stop = w.after(wait)
		}
		select {
		case <-w.wake:
		case <-elapsed:
		case <-ctx.Done():
		}
		stop()
	}
	return turn{}, nil, false
}

func (w *Writer) next() (t turn, term context.Context, wait time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.enabled == nil {
		return t, nil, -1, false
	}
	t, wait, ok = w.queue.next(w.now())
	return t, w.enabled, wait, ok
}

// Disable forbids writes. Nothing that was offered is written any more.
func (w *Writer) Disable() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enabled = nil
	w.queue.clear()
}

// Enable lets what is offered from now on be written until the term is done.
func (w *Writer) Enable(term context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enabled, w.away = term, 0
	w.queue.clear()
}

// Offer says what an object should show. It replaces what was offered before, and
// costs nothing when the object shows it already.
func (w *Writer) Offer(s Write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.enabled == nil {
		return
	}
	w.queue.offer(s, w.now())
	wake(w.wake)
}

// Withdraw takes back what was offered for an object and is not written yet.
func (w *Writer) Withdraw(o model.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.withdraw(o)
}

// Forget drops what is known of an object that is gone.
func (w *Writer) Forget(o model.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.forget(o)
}

// begin counts a write that is under way, or not any more.
func (w *Writer) begin(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy += n
}

// UnderWay is how many writes the API has not answered.
func (w *Writer) UnderWay() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy
}

// Pending is how many statuses wait to be written.
func (w *Writer) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.pending
}

func (w *Writer) write(ctx, term context.Context, t turn, tell func(before, after client.Object)) {
	ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	defer context.AfterFunc(term, cancel)()
	w.begin(1)
	began := w.now()
	a, err := w.update(ctx, t.Write)
	w.meter.Time(t.waited, w.now().Sub(began))
	w.begin(-1)
	w.meter.Count(t.Object.Kind, a.outcome)
	if a.outcome == outcomeWritten {
		tell(a.base, a.next)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.enabled != term || term.Err() != nil {
		return
	}
	var pause time.Duration
	if err == nil {
		w.answered()
		if a.outcome == outcomeWritten {
			delete(w.bare, t.Object.Kind)
		}
	} else {
		pause = w.failed(t.Object, a.outcome, err)
	}
	fights := w.queue.finish(t, a, pause, w.now())
	if fights == calmWrites+1 {
		w.log.Warn("another client keeps overwriting a status; it is corrected less and less often", "object", t.Object.String())
	}
	wake(w.wake)
}

// answered notes that the API is there.
func (w *Writer) answered() {
	if w.away > 0 {
		w.log.Info("statuses are written again")
		w.away, w.queue.until = 0, time.Time{}
	}
}

// failed says when a write that failed is tried again: soon for one object that others
// change or that the API refused, with growing distance for all when it is away.
func (w *Writer) failed(o model.Object, how Outcome, err error) time.Duration {
	switch how {
	case outcomeConflict:
		w.answered()
		return WritePace
	case outcomeRefused:
		w.answered()
		if errors.Is(err, errNoStatus) {
			if !w.bare[o.Kind] {
				w.bare[o.Kind] = true
				w.log.Error("statuses of a kind cannot be written", "kind", o.Kind, "object", o.String(), "error", err)
			}
			return noStatusPause
		}
		w.log.Error("the API refuses a status", "object", o.String(), "error", err)
		return refusedPause
	}
	delay := min(awayLongest, awayShortest<<min(w.away, 10))
	delay += time.Duration(w.random() * float64(delay) / 2)
	if w.away == 0 {
		w.log.Warn("statuses cannot be written; machines are not affected", "object", o.String(), "error", err)
	}
	w.away++
	w.queue.until = w.now().Add(delay)
	return delay
}

// update writes onto the live object, and onto the newer ones that it meets.
func (w *Writer) update(ctx context.Context, s Write) (attempt, error) {
	a := attempt{base: s.Live}
	for try := range statusTries {
		if try > 0 {
			w.charge()
		}
		if a.next = s.Apply(a.base, metav1.NewTime(w.now())); a.next == nil {
			a.outcome = outcomeUnchanged
			return a, nil
		}
		err := w.send(ctx, a.next)
		switch {
		case err == nil:
			a.outcome, a.result = outcomeWritten, a.next
			return a, nil
		case apierrors.IsNotFound(err):
			if w.there(ctx, a.base) {
				a.outcome = outcomeRefused
				return a, errNoStatus
			}
			a.outcome = outcomeGone
			return a, nil
		case refusedByAPI(err):
			a.outcome = outcomeRefused
			return a, err
		case !apierrors.IsConflict(err):
			a.outcome = outcomeError
			return a, err
		}
		a.outcome = outcomeConflict
		if s.Fenced {
			return a, nil
		}
		if try == statusTries-1 {
			return a, err
		}
		if unreadable(a.base) {
			return a, nil // the watch brings what is there now
		}
		w.meter.Count(s.Object.Kind, outcomeConflict)
		w.charge()
		fresh := empty(a.base)
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(a.base), fresh); err != nil {
			if apierrors.IsNotFound(err) {
				a.outcome = outcomeGone
				return a, nil
			}
			a.outcome = outcomeError
			return a, err
		}
		if fresh.GetUID() != a.base.GetUID() || fresh.GetGeneration() > s.Generation {
			a.outcome = outcomeUnchanged // the watch brings it, and then its own status
			return a, nil
		}
		a.base = fresh
	}
	return a, nil
}

// unreadable says that the API has values of an object that do not fit its type.
func unreadable(o client.Object) bool { return o.GetAnnotations()[snapshot.Unreadable] != "" }

// send writes a status, and gives the object its new version. The API answers with the whole object, which cannot be
// decoded if it is unreadable: then the answer is taken without a type.
func (w *Writer) send(ctx context.Context, o client.Object) error {
	if !unreadable(o) {
		return w.client.Status().Update(ctx, o)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: fields}
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", snapshot.Unreadable)
	u.SetGroupVersionKind(contourv1beta1.GroupVersion.WithKind(string(snapshot.KindIngressRoute))) // only these are read so
	if err := w.client.Status().Update(ctx, u); err != nil {
		return err
	}
	o.SetResourceVersion(u.GetResourceVersion())
	return nil
}

// there says that an object which was not found when its status was written is there all the same.
func (w *Writer) there(ctx context.Context, o client.Object) bool {
	w.charge()
	fresh := empty(o)
	err := w.client.Get(ctx, client.ObjectKeyFromObject(o), fresh)
	return err == nil && fresh.GetUID() == o.GetUID()
}

// charge counts a request beyond the first of a write.
func (w *Writer) charge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.charge(w.now())
}

// empty is a new object of the same type: an object that is decoded into another keeps
// what the new one lacks.
func empty(o client.Object) client.Object {
	return reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
}

// refusedByAPI says that the API answered and that this object is at fault.
func refusedByAPI(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err))
}

// wake wakes the receiver of a channel of length one, unless it is about to wake.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

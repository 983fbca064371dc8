package staple

import (
	"container/heap"
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"fairlead.dev/internal/model"
)

const (
	// parallel bounds the questions that are under way.
	parallel = 4
	// A question that failed is asked again after retryFirst, then after twice as long, at
	// most after retryLast.
	retryFirst = 5 * time.Second
	retryLast  = time.Hour
	// leastLife is how soon a response is asked for again at the earliest.
	leastLife = time.Minute
)

// Config of a Keeper.
type Config struct {
	// HTTP asks responders; nil is Client().
	HTTP *http.Client
	Log  *slog.Logger // required
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Random spreads questions; nil is seeded by the runtime.
	Random *rand.Rand
	// Changed is told when Of or About would say something else of a certificate. It must
	// not block, and may be called by several goroutines.
	Changed func(model.CertificateID)
}

// Report is what is known of a certificate's status.
type Report struct {
	// Asked says that an answer came, or that there is none to be had: what is missing now
	// is not there in a moment.
	Asked bool
	// Until is when the kept response's time is over; zero when there is none.
	Until time.Time
	// Problem says why there is no fresh response, as a clause; empty when all is well.
	Problem string
	// Revoked says that the authority took the certificate back.
	Revoked bool
}

// Keeper keeps responses. Its methods may be called by any goroutine.
type Keeper struct {
	config Config

	mu      sync.Mutex
	entries map[model.CertificateID]*entry
	queue   queue
	wake    chan struct{}
}

// entry is one certificate with its response.
type entry struct {
	id     model.CertificateID
	chain  string
	ask    *question // nil: nobody can be asked
	report Report
	raw    []byte // the response, DER
	fails  int
	due    time.Time
	index  int // in the queue; -1 outside
}

// New prepares a Keeper. Nothing is asked before Run.
func New(c Config) *Keeper {
	if c.HTTP == nil {
		c.HTTP = Client()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return &Keeper{config: c, entries: map[model.CertificateID]*entry{}, wake: make(chan struct{}, 1)}
}

// Set takes in a certificate, with its chain in PEM. The same one again changes nothing.
func (k *Keeper) Set(id model.CertificateID, chain string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.entries[id]
	if old != nil && old.chain == chain {
		return
	}
	k.drop(old)
	e := &entry{id: id, chain: chain, index: -1, due: k.config.Now()}
	k.entries[id] = e
	var problem string
	if e.ask, problem = newQuestion(chain); e.ask == nil {
		e.report = Report{Asked: true, Problem: problem}
		return
	}
	heap.Push(&k.queue, e)
	k.signal()
}

// Forget drops a certificate.
func (k *Keeper) Forget(id model.CertificateID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(k.entries[id])
}

func (k *Keeper) drop(e *entry) {
	if e == nil {
		return
	}
	delete(k.entries, e.id)
	if e.index >= 0 {
		heap.Remove(&k.queue, e.index)
	}
}

// Of returns the response to show with a certificate, DER, or nil.
func (k *Keeper) Of(id model.CertificateID, chain string) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.entries[id]
	if e == nil || e.chain != chain || !k.config.Now().Before(e.report.Until) {
		return nil
	}
	return e.raw
}

// About says what is known of a certificate.
func (k *Keeper) About(id model.CertificateID) Report {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.entries[id]
	if e == nil {
		return Report{}
	}
	r := e.report
	if !k.config.Now().Before(r.Until) {
		r.Until = time.Time{}
	}
	return r
}

func (k *Keeper) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run asks until ctx ends, and returns when no question is under way any more.
func (k *Keeper) Run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	slots := make(chan struct{}, parallel)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		e, wait := k.next()
		if e != nil {
			asking.Go(func() {
				a, err := e.ask.send(ctx, k.config.HTTP, k.config.Now)
				<-slots
				if ctx.Err() == nil {
					k.settle(e, a, err)
				}
			})
			continue
		}
		<-slots
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-k.wake:
		case <-ctx.Done():
			return
		}
	}
}

// next takes the certificate that is due, or says how long there is none.
func (k *Keeper) next() (*entry, time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.queue) == 0 {
		return nil, time.Hour
	}
	if wait := k.queue[0].due.Sub(k.config.Now()); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&k.queue).(*entry), 0
}

// settle takes in what came of a question.
func (k *Keeper) settle(e *entry, a answer, err error) {
	k.mu.Lock()
	if k.entries[e.id] != e {
		k.mu.Unlock()
		return // replaced meanwhile
	}
	now, before := k.config.Now(), e.report
	e.report.Asked = true
	var wait time.Duration
	switch {
	case err != nil:
		e.report.Problem = err.Error()
		wait = min(retryFirst<<min(e.fails, 20), retryLast)
		e.fails++
	case a.problem != "":
		// The responder has spoken: what it said before holds no more.
		e.raw, e.report = nil, Report{Asked: true, Problem: a.problem, Revoked: a.revoked}
		wait, e.fails = retryLast, 0
	default:
		e.raw, e.report, e.fails = a.raw, Report{Asked: true, Until: a.until}, 0
		wait = max(a.until.Sub(now)/2, leastLife)
	}
	// Certificates of one deployment come together; their questions need not.
	e.due = now.Add(wait - time.Duration(k.config.Random.Int64N(int64(wait)/10+1)))
	heap.Push(&k.queue, e)
	k.signal()
	changed := e.report != before
	k.mu.Unlock()
	if err != nil && before.Problem == "" {
		k.config.Log.Warn("no OCSP response", "certificate", e.id, "error", err)
	}
	if changed && k.config.Changed != nil {
		k.config.Changed(e.id)
	}
}

// queue is a heap, the next one due first.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q, e.index = old[:len(old)-1], -1
	return e
}

package access

import (
	"context"
	"sync"
	"time"

	"fairlead.dev/internal/share"
)

// answers are those of an API to questions of one kind. Who asks the same at the same time waits for one answer.
// Errors are not kept.
type answers[K comparable, V any] struct {
	asking *share.Bound // slots
	told   func(error)  // how the API answered; errBusy: it was not asked
	now    func() time.Time
	life   func(V) time.Duration

	mu      sync.Mutex
	kept    map[K]answer[V]
	pending map[K]*pending[V]
}

type answer[V any] struct {
	value V
	asked time.Time
}

// pending is a question that is being asked. done is closed when the rest is set.
type pending[V any] struct {
	done  chan struct{}
	value V
	err   error
}

func newAnswers[K comparable, V any](asking *share.Bound, told func(error), now func() time.Time, life func(V) time.Duration) *answers[K, V] {
	return &answers[K, V]{asking: asking, told: told, now: now, life: life, kept: map[K]answer[V]{}, pending: map[K]*pending[V]{}}
}

// asked is how the API is asked for an answer.
type asked[V any] struct {
	// by is whose slots a question takes; empty: only those of all.
	by string
	// admit refuses a question; nil: all are admitted.
	admit func() error
	ask   func(context.Context) (V, error)
}

// get returns an answer that is at most so old, or, when the API does not answer, one that may still be used.
func (a *answers[K, V]) get(ctx context.Context, k K, age time.Duration, q asked[V]) (none V, err error) {
	a.mu.Lock()
	if known, is := a.usable(k, age); is {
		a.mu.Unlock()
		return known, nil
	}
	p := a.pending[k]
	if p == nil {
		if q.admit != nil {
			if err := q.admit(); err != nil {
				a.mu.Unlock()
				return none, err
			}
		}
		p = &pending[V]{done: make(chan struct{})}
		a.pending[k] = p
		go a.ask(context.WithoutCancel(ctx), k, p, q) // others may wait for longer than who came first
	}
	a.mu.Unlock()
	select {
	case <-p.done:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	if p.err == nil {
		return p.value, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, is := a.usable(k, MaxAge); is {
		return known, nil
	}
	return none, p.err
}

func (a *answers[K, V]) usable(k K, age time.Duration) (none V, is bool) {
	known, is := a.kept[k]
	if !is || a.now().Sub(known.asked) >= min(age, a.life(known.value)) {
		return none, false
	}
	return known.value, true
}

// ask asks the API, and keeps what it says by the time at which it was asked.
func (a *answers[K, V]) ask(ctx context.Context, k K, p *pending[V], q asked[V]) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var at time.Time
	if release, reached := a.asking.Wait(ctx, q.by); reached == share.None {
		at = a.now()
		p.value, p.err = q.ask(ctx)
		release()
	} else {
		p.err = errBusy
	}
	a.told(p.err)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, k)
	if p.err == nil {
		a.makeRoom()
		a.kept[k] = answer[V]{p.value, at}
	}
	close(p.done)
}

// makeRoom forgets what is too old, and any answer if that is not enough: the API is asked for it again.
func (a *answers[K, V]) makeRoom() {
	if len(a.kept) < maxKept {
		return
	}
	for k, known := range a.kept {
		if a.now().Sub(known.asked) >= a.life(known.value) {
			delete(a.kept, k)
		}
	}
	for k := range a.kept {
		if len(a.kept) < maxKept {
			return
		}
		delete(a.kept, k)
	}
}

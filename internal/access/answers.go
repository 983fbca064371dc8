package access

import (
	"context"
	"sync"
	"time"
)

// answers are those of an API to questions of one kind. Who asks the same at the same time waits for one answer.
// Errors are not kept.
type answers[K comparable, V any] struct {
	asking chan struct{} // slots
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

func newAnswers[K comparable, V any](asking chan struct{}, now func() time.Time, life func(V) time.Duration) *answers[K, V] {
	return &answers[K, V]{asking: asking, now: now, life: life, kept: map[K]answer[V]{}, pending: map[K]*pending[V]{}}
}

// get returns an answer that is at most so old, or, when the API does not answer, one that may still be used.
func (a *answers[K, V]) get(ctx context.Context, k K, age time.Duration, ask func(context.Context) (V, error)) (none V, err error) {
	a.mu.Lock()
	if known, is := a.usable(k, age); is {
		a.mu.Unlock()
		return known, nil
	}
	p := a.pending[k]
	if p == nil {
		p = &pending[V]{done: make(chan struct{})}
		a.pending[k] = p
		go a.ask(context.WithoutCancel(ctx), k, p, ask) // others may wait for longer than who came first
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
func (a *answers[K, V]) ask(ctx context.Context, k K, p *pending[V], ask func(context.Context) (V, error)) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var asked time.Time
	select {
	case a.asking <- struct{}{}:
		asked = a.now()
		p.value, p.err = ask(ctx)
		<-a.asking
	case <-ctx.Done():
		p.err = errBusy
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, k)
	if p.err == nil {
		a.makeRoom()
		a.kept[k] = answer[V]{p.value, asked}
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

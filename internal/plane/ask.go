package plane

import (
	"context"
	"errors"
	"sync"
	"time"

	"fairlead.dev/internal/southbound"
)

const (
	// answerShare is the part of the loop's time that answers to consoles may have: one in so many.
	answerShare = 4
	// answerWait is how long a console waits for an answer at most, and restMost how long none is given after a long one: who asks then
	// has an answer in time.
	answerWait = 20 * time.Second
	restMost   = 5 * time.Second
)

var (
	errNotRunning = errors.New("the plane does not run yet: it waits for the API")
	errEnded      = errors.New("the plane ends")
	errNoAnswer   = errors.New("the plane's loop does not answer")
)

// ask runs f in the loop and waits for it. It is for what takes next to no time, as a probe does;
// consoles put questions. What f has written may be read only if there is no error.
func (p *Plane) ask(ctx context.Context, f func(*loop)) error {
	_, err := inLoop(ctx, p, p.calls, func(l *loop) struct{} { f(l); return struct{}{} })
	return err
}

// question has f answer in the loop, in the time that is for answers, and waits for it.
func question[T any](ctx context.Context, p *Plane, f func(*loop) T) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	return inLoop(ctx, p, p.questions, f)
}

func inLoop[T any](ctx context.Context, p *Plane, where chan<- func(*loop), f func(*loop) T) (none T, err error) {
	if err := p.silent(); err != nil {
		return none, err
	}
	a := &answer[T]{done: make(chan struct{})}
	select {
	case where <- func(l *loop) { a.give(f(l)) }:
	case <-ctx.Done():
		return none, errNoAnswer
	}
	return a.await(ctx)
}

// answer is a value that somebody waits for. A waiter that has given up does not see it half written.
type answer[T any] struct {
	done  chan struct{} // closed once value is there
	value T
}

func (a *answer[T]) give(value T) {
	a.value = value
	close(a.done)
}

func (a *answer[T]) await(ctx context.Context) (none T, err error) {
	select {
	case <-a.done:
		return a.value, nil
	case <-ctx.Done():
		return none, errNoAnswer
	}
}

func (p *Plane) runs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// silent says why there is no loop that could answer; nil: there is one.
func (p *Plane) silent() error {
	switch {
	case p.ended.Load():
		return errEnded
	case !p.runs():
		return errNotRunning
	}
	return nil
}

// common is a question that many consoles put: those that wait at the same time have one answer.
// Its zero value is ready. Nobody may change an answer.
type common[T any] struct {
	mu   sync.Mutex
	next *answer[T] // what who comes now waits for; nil while nobody waits
}

// get waits for an answer that the loop begins after get was called.
func (s *common[T]) get(ctx context.Context, p *Plane, f func(*loop) T) (none T, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	if err := p.silent(); err != nil {
		return none, err
	}
	a := s.wait()
	// Whoever has its turn first has the answer for all: nobody depends on another who may give up.
	select {
	case p.questions <- func(l *loop) { s.answer(a, func() T { return f(l) }) }:
	case <-a.done:
	case <-ctx.Done():
		return none, errNoAnswer
	}
	return a.await(ctx)
}

func (s *common[T]) wait() *answer[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &answer[T]{done: make(chan struct{})}
	}
	return s.next
}

// answer answers those that wait for a, unless they have been. Only the loop calls it.
func (s *common[T]) answer(a *answer[T], f func() T) {
	s.mu.Lock()
	first := s.next == a
	if first {
		s.next = nil // who comes from here on is told of what is then
	}
	s.mu.Unlock()
	if first {
		a.give(f())
	}
}

// answering sees that answers have no more than their part of the loop's time.
type answering struct {
	now    func() time.Time
	rested time.Time // no answer begins before
}

// may says whether a question may be answered now.
func (a *answering) may() bool { return !a.now().Before(a.rested) }

// answer runs f, and returns how long no other may be.
func (a *answering) answer(f func()) time.Duration {
	began := a.now()
	f()
	ended := a.now()
	rest := min((answerShare-1)*ended.Sub(began), restMost)
	a.rested = ended.Add(rest)
	return rest
}

// figures are those of the machines that answer in time. Who asks while they are asked has the same answers.
// Nobody may change them.
func (p *Plane) figures(ctx context.Context) map[string]southbound.Figures {
	told, _, _ := p.figured.Do("", func() (any, error) {
		return p.server.Figures(context.WithoutCancel(ctx)), nil // others may wait for longer
	})
	answers, _ := told.(map[string]southbound.Figures)
	return answers
}

package plane

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
)

// answers is how many answers the plane's loop has given to consoles.
func (p *running) answers() uint64 {
	p.t.Helper()
	var m dto.Metric
	if err := p.metrics.answer.Write(&m); err != nil {
		p.t.Fatal(err)
	}
	return m.GetHistogram().GetSampleCount()
}

// waitsForNext says whether somebody waits for an answer that has not begun.
func waitsForNext[T any](s *common[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next != nil
}

// holdLoop keeps the loop busy until let is called.
func (p *running) holdLoop(all *sync.WaitGroup) (let func()) {
	held, release := make(chan struct{}), make(chan struct{})
	all.Go(func() {
		if err := p.ask(p.t.Context(), func(*loop) { close(held); <-release }); err != nil {
			p.t.Error(err)
		}
	})
	<-held
	return func() { close(release) }
}

// TestConsolesShareAnswers holds that many consoles cost what one costs, that each has an answer of
// after it asked, and that probes do not wait behind them.
func TestConsolesShareAnswers(t *testing.T) {
	p := newRig(t).plane("one").awaitReady()
	var all sync.WaitGroup
	let := p.holdLoop(&all)
	const askers = 64
	computed := 0 // by the loop alone
	var arrived sync.WaitGroup
	arrived.Add(askers)
	for range askers {
		all.Go(func() {
			arrived.Done()
			got, err := p.statuses.get(t.Context(), p.Plane, func(l *loop) model.Status { computed++; return l.status() })
			if err != nil || !got.Plane.Leading {
				t.Errorf("%v, %+v", err, got.Plane)
			}
		})
	}
	arrived.Wait()
	eventually(t, "somebody waits", func() error {
		if !waitsForNext(&p.statuses) {
			return errors.New("nobody does")
		}
		return nil
	})
	let()
	if err := p.Healthz(t.Context()); err != nil {
		t.Error(err)
	}
	all.Wait()
	// Those that had not come to their question when the first was answered have one of their own.
	if computed > askers/4 {
		t.Errorf("%d answers for %d consoles that asked at once", computed, askers)
	}
	before := p.answers()
	for range 3 {
		if s := p.Status(t.Context()); !s.Plane.Leading {
			t.Errorf("%+v", s)
		}
	}
	if n := p.answers() - before; n != 3 {
		t.Errorf("%d answers for 3 questions, one after another: somebody was told of what was before", n)
	}
}

// TestConsoleThatGivesUp holds that others have their answer where the first to ask does not wait for it.
func TestConsoleThatGivesUp(t *testing.T) {
	p := newRig(t).plane("one").awaitReady()
	var all sync.WaitGroup
	let := p.holdLoop(&all)
	hasty, cancel := context.WithCancel(t.Context())
	cancel()
	if s := p.Status(hasty); len(s.Problems) != 1 || s.Problems[0].Message != errNoAnswer.Error() {
		t.Errorf("%+v", s)
	}
	all.Go(func() {
		if list, err := p.Revisions(t.Context()); err != nil || len(list) == 0 {
			t.Errorf("%v, %v", list, err)
		}
		if s := p.Status(t.Context()); !s.Plane.Leading {
			t.Errorf("%+v", s)
		}
		if _, err := p.Explain(t.Context(), explain.Request{}); err != nil {
			t.Error(err)
		}
	})
	let()
	all.Wait()
}

// TestAnswersHaveTheirPart holds that after an answer everything else has three times as long.
func TestAnswersHaveTheirPart(t *testing.T) {
	now := time.Unix(1e9, 0)
	a := answering{now: func() time.Time { return now }}
	busy := time.Duration(0)
	for range 600 { // steps of 10 ms in which somebody always asks
		if !a.may() {
			now = now.Add(10 * time.Millisecond)
			continue
		}
		if rest := a.answer(func() { now = now.Add(50 * time.Millisecond) }); rest != 150*time.Millisecond {
			t.Fatalf("nothing is answered for %s after 50 ms", rest)
		}
		busy += 50 * time.Millisecond
	}
	if share := float64(busy) / float64(now.Sub(time.Unix(1e9, 0))); share > 0.26 || share < 0.24 {
		t.Errorf("answers had %.2f of the time, not a quarter", share)
	}
}

// TestAPlaneThatHasEndedSaysSo holds that the status of a plane does not wait for a loop that has ended, and says why it
// knows nothing.
func TestAPlaneThatHasEndedSaysSo(t *testing.T) {
	p := newRig(t).plane("one").awaitReady()
	p.stop()
	s := p.Status(t.Context())
	if len(s.Problems) != 1 || s.Problems[0].Reason != "NotRunning" || s.Problems[0].Message != errEnded.Error() || !s.Plane.Ending || s.Plane.Starting || s.Plane.Leading {
		t.Errorf("the status says %+v", s)
	}
	if err := p.Readyz(t.Context()); !errors.Is(err, errEnded) {
		t.Errorf("it is ready: %v", err)
	}
}

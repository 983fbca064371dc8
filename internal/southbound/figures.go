package southbound

import (
	"context"
	"maps"
	"slices"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// figuresPatience is how long machines are waited for that were asked for figures.
	figuresPatience = 2 * time.Second
	// maxFigures is of how many groups one machine may tell.
	maxFigures = 100_000
)

// question is one call of Figures.
type question struct {
	number  uint64
	waits   map[string]bool // machines that have not answered
	answers map[string][]model.GroupFigures
	done    chan struct{} // closed when nobody is waited for
}

// Figures asks every machine that reports what its proxy has counted, and returns the
// answers that came in time, by machine. Calls side by side are one question each.
func (s *Server) Figures(ctx context.Context) map[string][]model.GroupFigures {
	s.mu.Lock()
	s.asked++
	q := &question{number: s.asked, waits: map[string]bool{}, answers: map[string][]model.GroupFigures{}, done: make(chan struct{})}
	for name, m := range s.machines {
		if who := m.sessions[observation]; who != nil && m.report != nil {
			q.waits[name] = true
			select {
			case who.ask <- struct{}{}:
			default: // it is about to be asked, with the newest number
			}
		}
	}
	if len(q.waits) == 0 {
		s.mu.Unlock()
		return q.answers
	}
	s.questions[q] = struct{}{}
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, figuresPatience)
	defer cancel()
	select {
	case <-q.done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.questions, q)
	return maps.Clone(q.answers)
}

// answered hands figures to those who asked for them. s.mu is held.
func (s *Server) answered(machine string, f *agentv1.Figures) {
	if f == nil {
		return
	}
	for q := range s.questions {
		// A larger number was asked later, so its answer is no older.
		if q.number <= f.GetAsked() && q.waits[machine] {
			delete(q.waits, machine)
			q.answers[machine] = wire.FiguresOf(f)
			if len(q.waits) == 0 {
				close(q.done)
			}
		}
	}
}

// instruct sends a machine its instructions: one at the beginning, and one for each
// question.
func (s *Server) instruct(ctx context.Context, who *session, send func(*agentv1.Instruction) error) error {
	for number := uint64(0); ; {
		if err := send(s.instruction(number)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-who.ask:
			s.mu.Lock()
			number = s.asked
			s.mu.Unlock()
		}
	}
}

// trimFigures cuts figures to what the plane is ready to remember.
func trimFigures(f *agentv1.Figures) {
	if f == nil {
		return
	}
	f.Groups = slices.DeleteFunc(f.GetGroups()[:min(len(f.GetGroups()), maxFigures)], func(g *agentv1.GroupFigures) bool {
		return len(g.GetName()) > maxName
	})
}

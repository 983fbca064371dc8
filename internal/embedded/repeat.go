package embedded

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// repeatTime is how long a line that was logged is only counted when it comes again.
	repeatTime = time.Minute
	// repeatMost bounds how many lines are known at once.
	repeatMost = 200
)

// repeats passes on warnings and errors of the libraries once a minute for each cause, with
// the number of those that it kept back: on a full disk each write has several.
type repeats struct {
	next slog.Handler
	with string // attributes of the logger, as part of what a line says
	seen *seenLines
}

type seenLines struct {
	mu    sync.Mutex
	lines map[string]*seenLine
}

type seenLine struct {
	last time.Time
	kept int
}

func newRepeats(next slog.Handler) repeats {
	return repeats{next: next, seen: &seenLines{lines: map[string]*seenLine{}}}
}

func (r repeats) Enabled(ctx context.Context, l slog.Level) bool { return r.next.Enabled(ctx, l) }

func (r repeats) Handle(ctx context.Context, record slog.Record) error {
	if record.Level >= slog.LevelWarn {
		kept, pass := r.seen.take(r.with+causeOf(record), record.Time)
		if !pass {
			return nil
		}
		if kept > 0 {
			record = record.Clone()
			record.AddAttrs(slog.Int("repeated", kept))
		}
	}
	return r.next.Handle(ctx, record)
}

func (r repeats) WithAttrs(a []slog.Attr) slog.Handler {
	for _, attr := range a {
		r.with += attr.String() + " "
	}
	r.next = r.next.WithAttrs(a)
	return r
}

func (r repeats) WithGroup(g string) slog.Handler {
	r.with += g + "."
	r.next = r.next.WithGroup(g)
	return r
}

// causeOf is what two lines with one cause have in common. What else they say, of requests
// and how long these took, differs each time.
func causeOf(record slog.Record) string {
	cause := record.Message
	record.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "err", "error", "reason", "method", "request-type":
			cause += " " + a.String()
		}
		return true
	})
	return cause
}

// take says whether a line is logged, and how many like it were kept back before.
func (s *seenLines) take(line string, now time.Time) (kept int, pass bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.lines[line]
	if known != nil && now.Sub(known.last) < repeatTime && !now.Before(known.last) {
		known.kept++
		return 0, false
	}
	if known == nil {
		if len(s.lines) >= repeatMost {
			for l, k := range s.lines {
				if now.Sub(k.last) >= repeatTime {
					delete(s.lines, l)
				}
			}
			if len(s.lines) >= repeatMost {
				return 0, true // too many different ones to know them
			}
		}
		known = &seenLine{}
		s.lines[line] = known
	}
	kept = known.kept
	known.last, known.kept = now, 0
	return kept, true
}

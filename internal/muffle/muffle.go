// Package muffle logs what others can make happen as often as they like: of each kind of event one line a minute, with
// the number of those that had none. Nothing is lost but the wording of the repetitions, and the log of a machine does
// not grow with what its neighbours send.
//
// It starts no goroutine and reads no clock of its own: whoever uses a Log calls Flush now and then, and Close at the end.
// A Handler goes by the times of what is logged.
package muffle

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// Every is the least time between two lines of a kind.
	Every = time.Minute
	// kinds bounds how many kinds are told apart: a kind may come from foreign bytes. The rest are one.
	kinds = 64
	// key says for how many events a line stands, itself included.
	key = "events"
)

// Log counts events and writes lines. It may be used concurrently.
type Log struct {
	log   *slog.Logger
	now   func() time.Time
	lines lines
}

// New returns a Log that writes to log and asks now for the time.
func New(log *slog.Logger, now func() time.Time) *Log {
	return &Log{log: log, now: now}
}

// Warn logs an event. Events with one name, which is not logged, share a line a minute; `events`
// says for how many it stands.
func (l *Log) Warn(name, message string, args ...any) { l.event(slog.LevelWarn, name, message, args) }

// Info is Warn of an event that is no trouble.
func (l *Log) Info(name, message string, args ...any) { l.event(slog.LevelInfo, name, message, args) }

func (l *Log) event(level slog.Level, name, message string, args []any) {
	_ = l.lines.event(l.now(), name, func(events int) error {
		if events > 1 {
			args = append(slices.Clone(args), key, events)
		}
		l.log.Log(context.Background(), level, message, args...) //nolint:sloglint // a constant of the caller's
		return nil
	})
}

// Flush writes the lines that are due, and forgets kinds of which nothing came for as long.
func (l *Log) Flush() { l.lines.flush(l.now(), false) }

// Close writes the lines that are held back, due or not. The Log can be used on.
func (l *Log) Close() { l.lines.flush(l.now(), true) }

// lines are what was written of each kind and when. Its zero value is empty.
type lines struct {
	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	// write writes the line of the last event, which stands for so many.
	write   func(events int) error
	written time.Time
	held    int // events since, without a line
}

// event writes an event of a kind, or counts it until it is due.
func (l *lines) event(now time.Time, name string, write func(events int) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[name]
	if k == nil && len(l.kinds) >= kinds {
		name = ""
		k = l.kinds[name]
	}
	if k == nil {
		if l.kinds == nil {
			l.kinds = map[string]*kind{}
		}
		k = &kind{}
		l.kinds[name] = k
	}
	k.write = write
	k.held++
	if !k.written.IsZero() && now.Sub(k.written) < Every {
		return nil
	}
	return k.flush(now)
}

// flush writes the line that stands for all events since the last one.
func (k *kind) flush(now time.Time) error {
	events := k.held
	k.written, k.held = now, 0
	return k.write(events)
}

// flush writes the lines that are due, or all, and forgets kinds of which nothing came.
func (l *lines) flush(now time.Time, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, k := range l.kinds {
		switch due := now.Sub(k.written) >= Every; {
		case k.held > 0 && (due || all):
			_ = k.flush(now) // of a handler, which a logger ignores as well
		case due:
			delete(l.kinds, name)
		}
	}
}

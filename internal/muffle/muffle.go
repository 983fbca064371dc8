// Package muffle logs what others can make happen as often as they like: of each kind of event one line a minute, with
// the number of those that had none. Nothing is lost but the wording of the repetitions, and the log of a machine does
// not grow with what its neighbours send.
//
// It starts no goroutine and reads no clock of its own: whoever uses it calls Flush now and then, and Close at the end.
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
)

// Log counts events and writes lines. It may be used concurrently.
type Log struct {
	log *slog.Logger
	now func() time.Time

	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	level   slog.Level
	message string
	args    []any // of the last event
	written time.Time
	held    int // events since, without a line
}

// New returns a Log that writes to log and asks now for the time.
func New(log *slog.Logger, now func() time.Time) *Log {
	return &Log{log: log, now: now, kinds: map[string]*kind{}}
}

// Warn is an event. Events of one kind, an inner name, share a line a minute: the first is written at once, and the
// next line has as "events" for how many it stands.
func (l *Log) Warn(name, message string, args ...any) { l.event(slog.LevelWarn, name, message, args) }

// Info is Warn of an event that is no trouble.
func (l *Log) Info(name, message string, args ...any) { l.event(slog.LevelInfo, name, message, args) }

func (l *Log) event(level slog.Level, name, message string, args []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	k := l.kinds[name]
	if k == nil && len(l.kinds) >= kinds {
		name = ""
		k = l.kinds[name]
	}
	if k == nil {
		k = &kind{}
		l.kinds[name] = k
	}
	k.level, k.message, k.args = level, message, args
	if !k.written.IsZero() && now.Sub(k.written) < Every {
		k.held++
		return
	}
	l.write(k, now, k.held+1)
}

// write writes a line that stands for so many events of a kind. The caller holds l.mu.
func (l *Log) write(k *kind, now time.Time, events int) {
	args := k.args
	if events > 1 {
		args = append(slices.Clone(args), "events", events)
	}
	k.written, k.held = now, 0
	l.log.Log(context.Background(), k.level, k.message, args...) //nolint:sloglint // a constant of the caller's
}

// Flush writes the lines that are due, and forgets kinds of which nothing came for as long.
func (l *Log) Flush() { l.flush(false) }

// Close writes the lines that are held back, due or not. The Log can be used on.
func (l *Log) Close() { l.flush(true) }

func (l *Log) flush(all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for name, k := range l.kinds {
		switch due := now.Sub(k.written) >= Every; {
		case k.held > 0 && (due || all):
			l.write(k, now, k.held)
		case due:
			delete(l.kinds, name)
		}
	}
}

package watch

import (
	"context"
	"sync"
	"sync/atomic"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/listing"
)

// List is a list that consoles read and watch.
type List[R any] struct {
	mu   sync.Mutex
	list *listing.List[R]
	rev  delta.Revision // of the last publication when the list was changed last
	next chan struct{}  // closed with the next change

	watchers atomic.Int64
}

// NewList returns an empty list. namespace says to which namespace a row belongs.
func NewList[R any](namespace func(R) string) *List[R] { return &List[R]{list: listing.New(namespace)} }

// Watch says that somebody watches until the returned function is called.
func (l *List[R]) Watch() (release func()) {
	l.watchers.Add(1)
	return func() { l.watchers.Add(-1) }
}

// Watched says whether somebody watches.
func (l *List[R]) Watched() bool { return l.watchers.Load() > 0 }

// Change changes the list, and wakes those that watch it if it has become another one. rev is of the last publication.
func (l *List[R]) Change(rev delta.Revision, do func(*listing.List[R])) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.list.At()
	do(l.list)
	if l.list.At() == was {
		return
	}
	l.rev = rev
	if l.next != nil {
		close(l.next)
		l.next = nil
	}
}

// Rows are all rows. Nobody may change them.
func (l *List[R]) Rows() []R {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list.Rows()
}

// since are the changes after a position, and what is closed when there are more. A position in another epoch is of
// another plane's list.
func (l *List[R]) since(epoch uint64, after *console.Position, namespace string) (listing.Changes[R], console.Position, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var c listing.Changes[R]
	if after == nil || after.Epoch != epoch {
		c = l.list.All(namespace)
	} else {
		c = l.list.Since(after.Change, namespace)
	}
	if l.next == nil {
		l.next = make(chan struct{})
	}
	return c, console.Position{Epoch: epoch, Revision: l.rev.Number, Change: c.At}, l.next
}

// Follow waits for changes after a position. A position in another epoch is of another plane's list. Changes that do not concern a
// namespace are no reason to return.
func (l *List[R]) Follow(ctx context.Context, epoch uint64, after *console.Position, namespace string) (console.Update, error) {
	for {
		c, at, more := l.since(epoch, after, namespace)
		if c.Reset || len(c.Blocks) > 0 {
			u := console.Update{At: at, Reset: c.Reset, Blocks: make([]console.Block, len(c.Blocks))}
			for i, b := range c.Blocks {
				u.Blocks[i] = console.Block{Key: b.Key, Rows: rowsOf(b.Rows)}
			}
			return u, nil
		}
		after = &at
		select {
		case <-more:
		case <-ctx.Done():
			return console.Update{}, ctx.Err()
		}
	}
}

// rowsOf are rows for encoding: none are an empty list.
func rowsOf[R any](rows []R) any {
	if rows == nil {
		return []R{}
	}
	return rows
}

package plane

import (
	"context"
	"sync"
	"sync/atomic"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/listing"
)

// feed is a list that consoles read and watch.
type feed[R any] struct {
	mu   sync.Mutex
	list *listing.List[R]
	rev  delta.Revision // of the last publication when the list was changed last
	next chan struct{}  // closed with the next change

	watchers atomic.Int64
}

func newFeed[R any](namespace func(R) string) *feed[R] { return &feed[R]{list: listing.New(namespace)} }

// watch says that somebody watches until the returned function is called.
func (f *feed[R]) watch() (release func()) {
	f.watchers.Add(1)
	return func() { f.watchers.Add(-1) }
}

// change changes the list, and wakes those that watch it if it has become another one.
func (f *feed[R]) change(rev delta.Revision, do func(*listing.List[R])) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.list.At()
	do(f.list)
	if f.list.At() == was {
		return
	}
	f.rev = rev
	if f.next != nil {
		close(f.next)
		f.next = nil
	}
}

// rows are all rows. Nobody may change them.
func (f *feed[R]) rows() []R {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list.Rows()
}

// since are the changes after a position, and what is closed when there are more. A position in another epoch is of
// another plane's list.
func (f *feed[R]) since(epoch uint64, after *console.Position, namespace string) (listing.Changes[R], console.Position, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var c listing.Changes[R]
	if after == nil || after.Epoch != epoch {
		c = f.list.All(namespace)
	} else {
		c = f.list.Since(after.Change, namespace)
	}
	if f.next == nil {
		f.next = make(chan struct{})
	}
	return c, console.Position{Epoch: epoch, Revision: f.rev.Number, Change: c.At}, f.next
}

// follow waits for changes after a position. Changes that do not concern a namespace are no reason to return.
func (f *feed[R]) follow(ctx context.Context, epoch uint64, after *console.Position, namespace string) (console.Update, error) {
	for {
		c, at, more := f.since(epoch, after, namespace)
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

package watch

import (
	"context"
	"time"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/listing"
)

const (
	// pollGap is the least time between two looks at a list that is watched, and pollShare bounds what they take of the time: one
	// part in so many.
	pollGap   = time.Second
	pollShare = 50
)

// polled is a list that is made as a whole, again and again while somebody watches it.
type polled[R any] struct {
	List[R]
	plane Plane
	ask   func(context.Context) (map[string][]R, error)

	// Guarded by mu of the List.
	polling bool
	ready   chan struct{} // closed once the list is of these looks
	failed  error         // of the last look
}

func newPolled[R any](p Plane, namespace func(R) string, ask func(context.Context) (map[string][]R, error)) *polled[R] {
	return &polled[R]{List: List[R]{list: listing.New(namespace)}, plane: p, ask: ask}
}

// watchList waits for changes after a position.
func (f *polled[R]) watchList(ctx context.Context, after *console.Position, namespace string) (console.Update, error) {
	defer f.Watch()()
	f.mu.Lock()
	if !f.polling {
		f.polling, f.ready = true, make(chan struct{})
		go f.poll()
	}
	ready := f.ready
	f.mu.Unlock()
	select {
	case <-ready:
	case <-ctx.Done():
		return console.Update{}, ctx.Err()
	}
	f.mu.Lock()
	err := f.failed
	f.mu.Unlock()
	if err != nil {
		return console.Update{}, err
	}
	return f.Follow(ctx, f.plane.Serving(), after, namespace)
}

// poll looks at the list until nobody watches it.
func (f *polled[R]) poll() {
	ctx := context.Background()
	for first := true; ; first = false {
		began := time.Now()
		blocks, err := f.ask(ctx)
		if err == nil {
			f.Change(f.plane.Published(), func(list *listing.List[R]) {
				for _, key := range list.Keys() {
					if _, stays := blocks[key]; !stays {
						list.Put(key, nil)
					}
				}
				for key, rows := range blocks {
					list.Put(key, rows)
				}
			})
		}
		f.mu.Lock()
		f.failed = err
		if first {
			close(f.ready)
		}
		f.mu.Unlock()
		time.Sleep(max(pollGap, pollShare*time.Since(began)))
		f.mu.Lock()
		ends := !f.Watched() || f.plane.Ended()
		f.polling = !ends
		f.mu.Unlock()
		if ends {
			return
		}
	}
}

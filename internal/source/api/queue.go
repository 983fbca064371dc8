package apisource

import (
	"context"
	"sync"
	"time"

	"fairlead.dev/internal/snapshot"
)

// queue joins the changes of all kinds. A later change of a key that waits
// replaces the earlier one.
type queue struct {
	mu       sync.Mutex
	at       map[snapshot.Key]int
	changes  []snapshot.Change
	unsynced map[snapshot.Kind]bool
	synced   bool          // the last batch said so
	wake     chan struct{} // holds one token while there is something to take
}

func newQueue(kinds []snapshot.Kind) *queue {
	q := &queue{at: map[snapshot.Key]int{}, unsynced: map[snapshot.Kind]bool{}, wake: make(chan struct{}, 1)}
	for _, k := range kinds {
		q.unsynced[k] = true
	}
	return q
}

func (q *queue) put(changes ...snapshot.Change) {
	if len(changes) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for _, c := range changes {
		c.Seen = now
		if i, ok := q.at[c.Key]; ok {
			c.Seen = q.changes[i].Seen
			q.changes[i] = c
			continue
		}
		q.at[c.Key] = len(q.changes)
		q.changes = append(q.changes, c)
	}
	q.signal()
}

// listed says that the kind is listed, after its changes were put, or that the
// API does not serve it.
func (q *queue) listed(kind snapshot.Kind) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.unsynced[kind] {
		return
	}
	delete(q.unsynced, kind)
	if len(q.unsynced) == 0 {
		q.signal()
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// next waits for something to take, then up to patience for what follows it.
func (q *queue) next(ctx context.Context, patience time.Duration) (snapshot.Batch, error) {
	for {
		select {
		case <-ctx.Done():
			return snapshot.Batch{}, ctx.Err()
		case <-q.wake:
		}
		if patience > 0 {
			timer := time.NewTimer(patience)
			select {
			case <-ctx.Done():
				timer.Stop()
				return snapshot.Batch{}, ctx.Err()
			case <-timer.C:
			}
		}
		if b, ok := q.drain(); ok {
			return b, nil
		}
	}
}

func (q *queue) drain() (snapshot.Batch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.wake:
	default:
	}
	b := snapshot.Batch{Changes: q.changes, Synced: len(q.unsynced) == 0}
	fresh := len(b.Changes) > 0 || b.Synced != q.synced
	q.synced = b.Synced
	q.changes, q.at = nil, map[snapshot.Key]int{}
	return b, fresh
}

package kube

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/snapshot"
)

// Change is one object that came, changed or went.
type Change struct {
	Key snapshot.Key
	// Object is the present object; nil says that it is gone.
	Object metav1.Object
}

// Batch is what changed since the batch before, each key once.
type Batch struct {
	// Changes are in the order in which their keys first changed.
	Changes []Change
	// Synced says that this batch and those before it hold at least one complete
	// list of every kind that the API serves.
	Synced bool
}

// queue joins the changes of all kinds. A later change of a key that waits
// replaces the earlier one.
type queue struct {
	mu       sync.Mutex
	at       map[snapshot.Key]int
	changes  []Change
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

func (q *queue) put(changes ...Change) {
	if len(changes) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range changes {
		if i, ok := q.at[c.Key]; ok {
			q.changes[i] = c
			continue
		}
		q.at[c.Key] = len(q.changes)
		q.changes = append(q.changes, c)
	}
	q.signal()
}

// settle says that the kind is listed, after its changes were put, or that the
// API does not serve it.
func (q *queue) settle(kind snapshot.Kind) {
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
func (q *queue) next(ctx context.Context, patience time.Duration) (Batch, error) {
	for {
		select {
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		case <-q.wake:
		}
		if patience > 0 {
			timer := time.NewTimer(patience)
			select {
			case <-ctx.Done():
				timer.Stop()
				return Batch{}, ctx.Err()
			case <-timer.C:
			}
		}
		if b, ok := q.take(); ok {
			return b, nil
		}
	}
}

func (q *queue) take() (Batch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.wake:
	default:
	}
	b := Batch{Changes: q.changes, Synced: len(q.unsynced) == 0}
	fresh := len(b.Changes) > 0 || b.Synced != q.synced
	q.synced = b.Synced
	q.changes, q.at = nil, map[snapshot.Key]int{}
	return b, fresh
}

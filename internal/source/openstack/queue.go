package openstack

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// job is a load balancer to read.
type job struct {
	id    string
	scope scope
	// row is the load balancer as a list had it; nil: it is to be asked for.
	row *loadBalancer
	// lists are the other parts as a sweep read them; nil: they are to be read.
	lists *lists
	// seq orders reads: it was taken before row was read.
	seq uint64
	// confirms: it repeats a read, and needs no repetition itself.
	confirms bool
	// background jobs wait for the others.
	background bool
	failures   int
}

// queue holds the jobs, at most one for each load balancer. No load balancer is handed out
// twice at once.
type queue struct {
	mu         sync.Mutex
	changed    *sync.Cond
	jobs       map[string]*job
	running    map[string]bool
	urgent     []string // IDs in order; those without a job were superseded
	background []string
}

func newQueue() *queue {
	q := &queue{jobs: map[string]*job{}, running: map[string]bool{}}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// put adds a job. A job for the same load balancer that waits already is merged with it: the
// later read counts, and it is urgent if either is.
func (q *queue) put(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if old := q.jobs[j.id]; old != nil {
		background := j.background && old.background
		if old.seq > j.seq {
			j = old
		}
		promoted := old.background && !background
		j.background = background
		j.confirms = j.confirms && old.confirms
		q.jobs[j.id] = j
		if !promoted {
			return
		}
	} else {
		q.jobs[j.id] = j
	}
	if j.background {
		q.background = append(q.background, j.id)
	} else {
		q.urgent = append(q.urgent, j.id)
	}
	q.changed.Signal()
}

// waiting is the number of jobs that others wait for.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.urgent)
}

// keep drops the jobs that are older than a complete list and are not in it.
func (q *queue) keep(ids map[string]bool, seq uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.jobs, func(id string, j *job) bool { return !ids[id] && j.seq < seq })
	superseded := func(id string) bool { return q.jobs[id] == nil }
	q.urgent = slices.DeleteFunc(q.urgent, superseded)
	q.background = slices.DeleteFunc(q.background, superseded)
}

// take waits for a job. It returns nil when ctx is done.
func (q *queue) take(ctx context.Context) *job {
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.changed.Broadcast()
	})
	defer stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	for ctx.Err() == nil {
		for _, ids := range []*[]string{&q.urgent, &q.background} {
			for len(*ids) > 0 {
				id := (*ids)[0]
				*ids = (*ids)[1:]
				// One that runs comes back at its end.
				if j := q.jobs[id]; j != nil && !q.running[id] {
					delete(q.jobs, id)
					q.running[id] = true
					return j
				}
			}
		}
		q.changed.Wait()
	}
	return nil
}

// done says that a job that was taken is finished.
func (q *queue) done(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.running, id)
	if j := q.jobs[id]; j != nil {
		if j.background {
			q.background = append(q.background, id)
		} else {
			q.urgent = append(q.urgent, id)
		}
		q.changed.Signal()
	}
}

// later puts a job after a delay, unless ctx ends before.
func (q *queue) later(ctx context.Context, delay time.Duration, j *job) {
	timer := time.NewTimer(delay)
	go func() {
		defer timer.Stop()
		select {
		case <-timer.C:
			q.put(j)
		case <-ctx.Done():
		}
	}()
}

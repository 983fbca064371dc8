package discovery

import (
	"sync"
	"time"

	"fairlead.dev/internal/model"
)

// Passage is the way of one change of a service through the plane. Zero times have not come yet.
type Passage struct {
	Upstream  string
	Service   model.UpstreamKey
	Seen      time.Time // the source saw it
	Decided   time.Time // it came into effect; zero: it waits, or is held
	Published time.Time // machines were sent it
	Revision  uint64    // with which; 0: nothing that machines are sent follows from it
	InForce   time.Time // every connected machine that it concerns carries it out
}

const (
	// passages is how many of them are kept.
	passages = 4096
	// maxUnfinished is how many batches are followed at once.
	maxUnfinished = 1024
)

// timeline keeps the last changes of services. The goroutine of Run and the plane's loop use it.
type timeline struct {
	meter *metrics

	mu         sync.Mutex
	ring       []Passage         // the passage with number n is at n % passages
	next       uint64            // number of the next passage
	waits      []uint64          // passages that were seen and not decided
	batch      []uint64          // those that were decided since the last batch
	number     uint64            // of the last batch with passages
	unfinished []unfinishedBatch // batches whose passages are not in force, oldest first
}

// unfinishedBatch is a batch that is not in force everywhere.
type unfinishedBatch struct {
	number   uint64
	passages []uint64
}

// see notes what a source has said.
func (t *timeline) see(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.what {
	case put:
		for _, s := range e.services {
			seen := s.Seen
			if seen.IsZero() || seen.After(e.at) {
				seen = e.at
			}
			t.add(Passage{Upstream: e.upstream, Service: s.Key, Seen: seen})
		}
	case removed:
		for _, k := range e.keys {
			t.add(Passage{Upstream: e.upstream, Service: k, Seen: e.at})
		}
	}
}

func (t *timeline) add(p Passage) {
	if len(t.ring) < passages {
		t.ring = append(t.ring, p)
	} else {
		t.ring[t.next%passages] = p
	}
	t.waits = append(t.waits, t.next)
	t.next++
	t.meter.changes.WithLabelValues(p.Upstream).Inc()
}

// at is a passage by its number; nil: newer ones took its place.
func (t *timeline) at(n uint64) *Passage {
	if n+passages < t.next {
		return nil
	}
	return &t.ring[n%passages]
}

// decide notes that what was seen came into effect, but for what waits. changed says that something is to be published.
func (t *timeline) decide(changed bool, waits func(upstream string, k model.UpstreamKey) bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := t.waits[:0]
	for _, n := range t.waits {
		p := t.at(n)
		switch {
		case p == nil:
			continue
		case waits(p.Upstream, p.Service):
			waiting = append(waiting, n)
			continue
		}
		p.Decided = now
		t.meter.decided.Observe(now.Sub(p.Seen).Seconds())
		if changed {
			t.batch = append(t.batch, n)
		} else {
			p.Published = now // nothing follows
		}
	}
	t.waits = waiting
}

// upcoming is the number of the batch that is handed out next; 0: no passage is in it.
func (t *timeline) upcoming() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.batch) == 0 {
		return 0
	}
	return t.number + 1
}

// handOut notes that the batch with a number is on its way to the plane's loop.
func (t *timeline) handOut(number uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if number == 0 || number != t.number+1 {
		return
	}
	if len(t.unfinished) == maxUnfinished {
		t.unfinished = append(t.unfinished[:0], t.unfinished[maxUnfinished/2:]...)
	}
	t.number = number
	t.unfinished = append(t.unfinished, unfinishedBatch{number, t.batch})
	t.batch = nil
}

// noteBatch notes something about all passages of a batch; last says that nothing follows.
func (t *timeline) noteBatch(number uint64, last bool, note func(*Passage)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, f := range t.unfinished {
		if f.number != number {
			continue
		}
		for _, n := range f.passages {
			if p := t.at(n); p != nil {
				note(p)
			}
		}
		if last {
			t.unfinished = append(t.unfinished[:i], t.unfinished[i+1:]...)
		}
		return
	}
}

// Published says that machines were sent the batch with a number (snapshot.Batch), at a revision; 0: nothing followed from
// the batch. It returns at once.
func (d *Discovery) Published(number, revision uint64, at time.Time) {
	d.timeline.noteBatch(number, revision == 0, func(p *Passage) {
		if p.Published, p.Revision = at, revision; revision > 0 {
			d.meter.published.Observe(at.Sub(p.Seen).Seconds())
		}
	})
}

// InForce says that every connected machine that it concerns carries out the batch with a number. It returns at once.
func (d *Discovery) InForce(number uint64, at time.Time) {
	d.timeline.noteBatch(number, true, func(p *Passage) {
		p.InForce = at
		d.meter.inForce.Observe(at.Sub(p.Seen).Seconds())
	})
}

// Passages are the last changes of an upstream's services, newest first.
func (d *Discovery) Passages(upstream string, most int) (last []Passage) {
	t := d.timeline
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := t.next; n > 0 && n+passages > t.next && len(last) < most; n-- {
		if p := t.at(n - 1); p != nil && p.Upstream == upstream {
			last = append(last, *p)
		}
	}
	return last
}

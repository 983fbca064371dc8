package health

import (
	"cmp"
	"container/heap"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"fairlead.dev/internal/model"
)

const (
	// defaultLimit is how many probes may be under way: each has a socket.
	defaultLimit = 1024
	// startSpacing is the time between the first probes of checks that come together.
	startSpacing = 500 * time.Microsecond
)

// Config of a Prober. The zero value is ready.
type Config struct {
	// Dial opens a connection; nil is a net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Limit is how many probes may be under way; 0 is 1,024.
	Limit int
	// Random spreads probes; nil is seeded by the runtime. The prober alone uses it.
	Random *rand.Rand
	// Changed is called when a health is another one; it must not block. nil is nothing.
	Changed func()
	Log     *slog.Logger // nil is none
}

// Prober runs checks. Its methods may be called from any goroutine.
type Prober struct {
	config Config
	wake   chan struct{}

	mu      sync.Mutex
	checks  map[string]*check
	queue   queue // of those that are not under way, by when they are due
	running int
	pace    pace
	starts  time.Time // when the next new check may begin that was asked for
	figures map[model.CheckKind]*figures
}

// check is a check with what it has found.
type check struct {
	model.Check
	tally
	due    time.Time
	at     int                // in the queue; -1 while it is under way
	again  bool               // to be asked at once when the probe under way has ended
	cancel context.CancelFunc // of the probe under way
}

// New makes a prober without checks.
func New(c Config) *Prober {
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Control: quiet}).DialContext
	}
	if c.Limit <= 0 {
		c.Limit = defaultLimit
	}
	if c.Random == nil {
		c.Random = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Prober{config: c, wake: make(chan struct{}, 1), checks: map[string]*check{}, figures: map[model.CheckKind]*figures{}}
}

// Set replaces the checks. Checks with a known ID continue and keep their results; a
// check whose Prompt grew is probed at once. New checks are probed at once, too, at short
// intervals.
func (p *Prober) Set(checks []model.Check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	wanted := make(map[string]bool, len(checks))
	p.pace.set(checks)
	for _, m := range checks {
		wanted[m.ID] = true
		c := p.checks[m.ID]
		if c == nil {
			c = &check{Check: m, tally: tally{health: model.HealthUnknown}, due: p.start(m, now)}
			p.checks[m.ID] = c
			heap.Push(&p.queue, c)
			continue
		}
		if m.Prompt > c.Prompt {
			if c.at < 0 {
				c.again = true
			} else {
				c.due = now
				heap.Fix(&p.queue, c.at)
			}
		}
		c.Check = m
	}
	for id, c := range p.checks {
		if wanted[id] {
			continue
		}
		delete(p.checks, id)
		if c.at >= 0 {
			heap.Remove(&p.queue, c.at)
		} else {
			c.cancel()
		}
	}
	p.poke()
}

// start is when a new check may begin.
func (p *Prober) start(m model.Check, now time.Time) time.Time {
	if m.Presumed {
		return p.pace.start(m, now)
	}
	if p.starts.Before(now) {
		p.starts = now
	}
	due := p.starts
	p.starts = p.starts.Add(startSpacing)
	return due
}

// Results are those of all checks, sorted by ID.
func (p *Prober) Results() []model.CheckResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]model.CheckResult, 0, len(p.checks))
	for _, c := range p.checks {
		list = append(list, c.result())
	}
	slices.SortFunc(list, func(a, b model.CheckResult) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Result is that of one check; HealthUnchecked where there is none of that ID.
func (p *Prober) Result(id string) model.CheckResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.checks[id]; c != nil {
		return c.result()
	}
	return model.CheckResult{ID: id, Health: model.HealthUnchecked}
}

func (c *check) result() model.CheckResult {
	return model.CheckResult{ID: c.ID, Health: c.health, Since: c.since, Message: c.message, First: c.untried > 0}
}

// Run checks until ctx is done, and returns when no probe is under way. Run it
// once.
func (p *Prober) Run(ctx context.Context) error {
	var probes sync.WaitGroup
	defer probes.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if due := p.begin(ctx, &probes); !due.IsZero() {
			timer.Reset(time.Until(due))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-p.wake:
		}
	}
}

// begin starts the probes that are due, and returns when the next one is; zero: not before
// something changes.
func (p *Prober) begin(ctx context.Context, probes *sync.WaitGroup) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for len(p.queue) > 0 && !p.queue[0].due.After(now) && p.running < p.config.Limit && ctx.Err() == nil {
		c := heap.Pop(&p.queue).(*check)
		p.running++
		of := c.Check
		probing, cancel := context.WithTimeout(ctx, of.Timeout)
		c.cancel = cancel
		probes.Go(func() {
			defer cancel()
			began := time.Now()
			failure, kind := words(p.probe(probing, of), of.Timeout)
			if p.end(ctx, c, began, failure, kind) {
				p.config.Changed()
			}
			p.poke()
		})
	}
	if len(p.queue) == 0 || p.running >= p.config.Limit {
		return time.Time{}
	}
	return p.queue[0].due
}

// end takes the outcome of a probe, and says whether the health is another one.
func (p *Prober) end(ctx context.Context, c *check, began time.Time, failure, kind string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	if p.checks[c.ID] != c || ctx.Err() != nil {
		return false
	}
	now := time.Now()
	p.count(c.Kind, cmp.Or(kind, Good), now.Sub(began))
	how := c.HealthCheck
	if how.Presumed {
		how.Interval = max(how.Interval, p.pace.interval(c.Check))
	}
	changed := !inconclusive(how, kind, now.Sub(began)) && c.add(how, failure, began, now)
	c.due = c.next(how, began, now, p.config.Random.Float64())
	if c.again {
		c.again, c.due = false, now
	}
	heap.Push(&p.queue, c)
	if changed {
		p.config.Log.Debug("health changed", "check", c.ID, "health", c.health, "message", failure)
	}
	return changed
}

func (p *Prober) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// queue is a heap of checks by when they are due.
type queue []*check

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

// Push is for package heap.
func (q *queue) Push(x any) {
	c := x.(*check)
	c.at = len(*q)
	*q = append(*q, c)
}

// Pop is for package heap.
func (q *queue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	(*q)[last], *q = nil, (*q)[:last]
	c.at = -1
	return c
}

package watch

import (
	"context"
	"sync"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/tap"
	"fairlead.dev/internal/traffic"
)

const (
	// topGap is the least time between two samples: all viewers share them. A request is seen after the next one, and whoever waits for
	// that has it at once. Each sample takes time of the proxies' main threads.
	topGap = 1500 * time.Millisecond
	// topAge is how old a sample may be to be compared with.
	topAge = 10 * time.Second
	// timedRequests are so many a second of each machine, of all routes: some 700 in the time that they are kept for.
	timedRequests = 50
	// longestNames bounds the names of a route and a host together, which have 64 KiB in a record at most.
	longestNames = 1024
	// keptAnswers bounds the answers that are kept of a sample.
	keptAnswers = 64
)

// top keeps the last two samples of what proxies have counted. Proxies are asked only while somebody looks.
type top struct {
	now    func() time.Time
	sample func(context.Context) map[string]southbound.Figures

	mu           sync.Mutex // held while machines are asked: who comes meanwhile has the same samples
	before, last traffic.Sample
	number       uint64                        // of last; zero: there was none
	figures      map[string]southbound.Figures // of which last is a part
	answers      map[traffic.Query]model.Top   // by the two samples, with all rows: viewers who ask alike share them

	times topTimes
}

// topTimes are the times of sampled requests, while somebody looks at routes or hosts.
type topTimes struct {
	mu     sync.Mutex
	times  traffic.Times
	looked time.Time
	open   bool
	bounds map[string]*tap.Bound // by machine, while it is open
}

// Top says what proxies answer, by the two last samples. If there was none within the last seconds, it takes one or two. While the last
// is the one that is named, it waits for the next; 0 names none.
func (v *Viewers) Top(ctx context.Context, q traffic.Query, after uint64) (model.Top, error) {
	if err := served(v.config.Plane); err != nil {
		return model.Top{}, err
	}
	if q.By == traffic.Routes || q.By == traffic.Hosts {
		v.top.times.look(v.config.Machines.Tap)
	}
	return v.top.ask(ctx, q, after)
}

// AwaitTop waits until Top answers about a sample after one without waiting. The error says that ctx is done.
func (v *Viewers) AwaitTop(ctx context.Context, after uint64) error { return v.top.await(ctx, after) }

func (t *top) ask(ctx context.Context, q traffic.Query, after uint64) (model.Top, error) {
	if err := t.await(ctx, after); err != nil {
		return model.Top{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if age := t.now().Sub(t.last.At); age >= topGap {
		t.take(ctx)
	}
	if t.last.At.Sub(t.before.At) > topAge {
		select {
		case <-time.After(topGap):
		case <-ctx.Done():
			return model.Top{}, ctx.Err()
		}
		t.take(ctx)
	}
	answer := t.answer(q)
	if q.Limit > 0 && len(answer.Rows) > q.Limit {
		answer.Rows = answer.Rows[:q.Limit:q.Limit]
	}
	return answer, nil
}

// answer compares the two samples. Its rows are shared. t.mu is held.
func (t *top) answer(q traffic.Query) model.Top {
	q.Limit = 0
	answer, known := t.answers[q]
	if known {
		return answer
	}
	t.times.mu.Lock()
	answer = traffic.Rates(t.before, t.last, q, &t.times.times)
	t.times.mu.Unlock()
	answer.Sample = t.number
	if len(t.answers) < keptAnswers {
		t.answers[q] = answer
	}
	return answer
}

// await waits until a sample may follow the one that is named, if that is the last.
func (t *top) await(ctx context.Context, after uint64) error {
	t.mu.Lock()
	wait := topGap - t.now().Sub(t.last.At)
	is := after != 0 && after == t.number
	t.mu.Unlock()
	if !is {
		return nil
	}
	select {
	case <-time.After(min(wait, topGap)): // the clock may have been set back
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look has machines show samples of requests until nobody has looked for topAge.
func (t *topTimes) look(open func(model.TapFilter, uint32) *southbound.Tap) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looked = time.Now()
	if t.open {
		return
	}
	t.open, t.bounds = true, map[string]*tap.Bound{}
	go t.follow(open(model.TapFilter{}, timedRequests))
}

// follow takes the records of a tap while somebody looks.
func (t *topTimes) follow(records *southbound.Tap) {
	defer records.Close()
	ticker := time.NewTicker(topGap)
	defer ticker.Stop()
	for {
		select {
		case r := <-records.Records:
			t.take(&r)
		case <-ticker.C:
			t.mu.Lock()
			t.open = time.Since(t.looked) < topAge
			open := t.open
			t.mu.Unlock()
			if !open {
				return
			}
		}
	}
}

// take adds a request. A machine is not trusted to send no more than is enough, nor names of some length only.
func (t *topTimes) take(r *model.TapRecord) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	bound := t.bounds[r.Machine]
	if bound == nil {
		bound = tap.NewBound(2*timedRequests, now)
		t.bounds[r.Machine] = bound // of those that are connected
	}
	if !bound.Allow(now) || len(r.Route)+len(r.Host) > longestNames {
		return
	}
	bound.Take()
	t.times.Add(now, r)
}

// take takes a sample.
func (t *top) take(ctx context.Context) {
	next := traffic.Sample{
		At: t.now(), Requests: map[string][]model.RequestFigures{}, Totals: map[string][]model.TrafficTotal{}, Frontends: map[string][]model.FrontendFigures{}, Loads: map[string][]model.GroupLoad{},
	}
	t.figures = t.sample(context.WithoutCancel(ctx)) // others have it too: a viewer who leaves must not make it empty
	for machine, f := range t.figures {
		next.Requests[machine], next.Totals[machine], next.Frontends[machine], next.Loads[machine] = f.Requests, f.Totals, f.Frontends, f.Loads
	}
	t.before, t.last, t.answers = t.last, next, map[traffic.Query]model.Top{}
	t.number++
}

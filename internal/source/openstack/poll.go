package openstack

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	// topRows is the number of rows that a poll reads first.
	topRows = 20
	// pollRows bounds a poll of a view, however many rows are new, and urgentJobs the load
	// balancers that wait to be read before polls find more. A sweep finds the rest.
	pollRows   = 1000
	urgentJobs = 10_000
	// soon is the time to the next poll while a load balancer is being changed, for at most
	// pendingPatience each: some stay like this.
	soon            = 300 * time.Millisecond
	pendingPatience = 10 * time.Second
	// pollShare of the requests may be polls, where there are many views.
	pollShare = 4
	// tailTime is how long after a change polls look for others of its second, in the first tailRows: updated_at has
	// no fraction, so they may come after rows that are known.
	tailTime = 2 * time.Second
	tailRows = 200
	// eventViews bounds the views that an event has polled at once.
	eventViews = 16
	// pollGap is the least time between two polls, however many events come.
	pollGap = 100 * time.Millisecond
)

// afterEvent are the times of polls after a notification. It comes before its change: an
// amphora takes about a second.
var afterEvent = [...]time.Duration{0, 300 * time.Millisecond, 800 * time.Millisecond, 1500 * time.Millisecond}

// poller reads the load balancers that changed last.
type poller struct {
	*Source
	next int // view
	// pending are load balancers that are being changed, since when, by the scope that has them.
	pending map[scope]map[string]time.Time
	// tails are the changes that a scope had last.
	tails map[scope]tail
}

// tail is the newest second in which something changed, and until when others of that second are looked for.
type tail struct {
	second string // as updated_at is
	until  time.Time
}

// pollLoop polls until ctx is done, as often as configured, and after events.
func (s *Source) pollLoop(ctx context.Context) {
	p := &poller{Source: s, pending: map[scope]map[string]time.Time{}, tails: map[scope]tail{}}
	var due []time.Time // polls after events
	failures, views := 0, 1
	for {
		gap := time.NewTimer(pollGap)
		quick, err := p.poll(ctx, views)
		if ctx.Err() != nil {
			return
		}
		interval := max(s.cfg.PollInterval/time.Duration(max(1, len(*s.views.Load()))), time.Second*pollShare/time.Duration(s.cfg.RequestsPerSecond))
		if err != nil {
			failures++
			interval = max(interval, retries.After(failures, err))
		} else {
			failures = 0
			if quick {
				interval = min(interval, soon)
			}
		}
		if s.state.contact(polling, err) {
			// Deletions were missed, and the sink must be told that it is complete again.
			s.recovered.Store(true)
			signal(s.sweepNow)
		}
		views = 1
		regular := time.NewTimer(interval)
		wait := time.Duration(1<<63 - 1)
		if len(due) > 0 && err == nil {
			wait = max(0, due[0].Sub(s.now()))
		}
		early := time.NewTimer(wait)
		select {
		case <-regular.C:
		case <-early.C:
			now := s.now()
			due = slices.DeleteFunc(due, func(t time.Time) bool { return !t.After(now) })
			views = eventViews
		case <-s.events:
			due = due[:0]
			for _, d := range afterEvent[1:] {
				due = append(due, s.now().Add(d))
			}
			views = eventViews
		case <-ctx.Done():
		}
		regular.Stop()
		early.Stop()
		select {
		case <-gap.C:
		case <-ctx.Done():
			return
		}
	}
}

// poll reads the rows that changed last of some views. It reports whether one of them is
// about to change again.
func (p *poller) poll(ctx context.Context, views int) (quick bool, _ error) {
	all := *p.views.Load()
	maps.DeleteFunc(p.pending, func(of scope, _ map[string]time.Time) bool { return !slices.Contains(all, view{of}) })
	maps.DeleteFunc(p.tails, func(_ scope, t tail) bool { return !p.now().Before(t.until) })
	for range min(views, len(all)) {
		p.next = (p.next + 1) % len(all)
		q, err := p.pollView(ctx, all[p.next])
		if err != nil {
			return quick, err
		}
		quick = quick || q
	}
	return quick, nil
}

func (p *poller) pollView(ctx context.Context, v view) (quick bool, err error) {
	query := v.scope.query(url.Values{"sort": {"updated_at:desc"}, "limit": {strconv.Itoa(topRows)}, "fields": loadBalancerFields})
	seen := map[string]bool{}
	before, newest, now := p.tails[v.scope], "", p.now()
	var jobs []*job
	defer func() {
		p.readAll(jobs)
		if err == nil {
			p.forget(v.scope, seen)
		}
	}()
	for marker := ""; ; {
		seq := p.state.next()
		rows, next, err := page[loadBalancer](ctx, p.client, v.scope.token, "loadbalancers", "loadbalancers", query, marker)
		if err != nil {
			if marker != "" && !isForbidden(err) {
				return quick, nil // the load balancer of the marker is gone; the sweep reads the rest
			}
			return quick, err
		}
		allNew := true
		for i := range rows {
			row := &rows[i]
			if seen[row.ID] {
				allNew = false
				continue
			}
			if len(seen) == pollRows || p.queue.waiting()+len(jobs) >= urgentJobs {
				return quick, nil
			}
			seen[row.ID] = true
			isNew := p.state.want(row)
			allNew = allNew && isNew
			if newest = max(newest, row.UpdatedAt); isNew {
				p.tails[v.scope] = tail{second: newest, until: now.Add(tailTime)}
			}
			if !p.selected(row.project()) {
				continue
			}
			quick = p.waits(v.scope, row) || quick
			if isNew {
				jobs = append(jobs, &job{id: row.ID, scope: v.scope, row: row, seq: seq})
			}
		}
		if next == "" || len(rows) == 0 {
			return quick, nil
		}
		inTail := now.Before(before.until) && len(seen) < tailRows && rows[len(rows)-1].UpdatedAt >= before.second
		if !allNew && !inTail {
			return quick, nil
		}
		marker = next
	}
}

// readAll has load balancers read that have changed. Where that is much of the cloud, a full sweep reads it, and all is judged
// at once: it may be an old backup.
func (p *poller) readAll(jobs []*job) {
	if isMuch(len(jobs), p.state.count()) {
		p.sweepAll.Store(true)
		signal(p.sweepNow)
		return
	}
	for _, j := range jobs {
		p.queue.put(j)
	}
}

// waits reports whether a load balancer is being changed, and has been for a short time only.
func (p *poller) waits(of scope, row *loadBalancer) bool {
	if !row.pending() {
		delete(p.pending[of], row.ID)
		return false
	}
	since, ok := p.pending[of][row.ID]
	if !ok {
		since = p.now()
		if p.pending[of] == nil {
			p.pending[of] = map[string]time.Time{}
		}
		p.pending[of][row.ID] = since
	}
	return p.now().Sub(since) < pendingPatience
}

// forget drops the load balancers for which nobody waits any more, unless the poll has shown
// them: many of them are deleted.
func (p *poller) forget(of scope, shown map[string]bool) {
	maps.DeleteFunc(p.pending[of], func(id string, since time.Time) bool {
		return !shown[id] && p.now().Sub(since) >= pendingPatience
	})
}

// signal puts a value into a channel of one element, unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

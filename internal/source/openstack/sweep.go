package openstack

import (
	"context"
	"net/url"
	"slices"
	"time"

	"fairlead.dev/internal/source/cloud"
)

const (
	// fullInterval is the time between two full sweeps.
	fullInterval = 10 * time.Minute
	// refreshed is the number of load balancers whose members a full sweep reads although
	// nothing says that they changed: of each in its turn.
	refreshed = 100
	// sweepPatience is how long a sweep that is not complete holds up the next one.
	sweepPatience = time.Hour
	// parallel bounds the requests that are sent at once for sweeps, and the readers.
	parallel = 8
	// manyChanges at once, in a sweep, are read in the background.
	manyChanges = 100
	// muchChanges is the least number of changes that can be much: small clouds change as a whole.
	muchChanges = 3
)

// sweepLoop sweeps until ctx is done. It closes listed when polls can begin.
func (s *Source) sweepLoop(ctx context.Context, listed chan<- struct{}) {
	var last, full time.Time // begin of the last full sweep, and of the next one
	first, failures := true, 0
	for ctx.Err() == nil {
		var err error
		var much bool // has changed: all of it is read, and judged, at once
		busy := s.state.untried() > 0 && s.now().Sub(last) < sweepPatience
		if !busy && s.sweepAll.Swap(false) {
			full = time.Time{}
		}
		switch {
		case !busy && (s.cfg.API == lbaas || !s.now().Before(full)):
			if err = s.fullSweep(ctx); err == nil {
				last, full = s.now(), s.now().Add(cloud.Jitter(fullInterval))
			}
		case s.cfg.API != lbaas:
			much, err = s.idSweep(ctx, failures > 0 || s.recovered.Swap(false))
		}
		if ctx.Err() != nil {
			return
		}
		recovered := s.state.contact(sweeping, err)
		delay := cloud.Jitter(s.cfg.SweepInterval)
		if err != nil {
			failures++
			delay = min(retries.After(failures, err), max(delay, retries.First))
		} else {
			failures = 0
			if first {
				first = false
				close(listed)
			}
		}
		if much {
			full, delay = time.Time{}, 0
		}
		if busy && (much || s.sweepAll.Load()) {
			delay = min(delay, retries.First)
		}
		if recovered {
			s.log.Info("the lists of the cloud are readable again")
			signal(s.events) // the next poll need not wait for its own pause
		}
		select {
		case <-time.After(delay):
		case <-s.sweepNow:
		case <-ctx.Done():
		}
	}
}

// swept are the lists of one view.
type swept struct {
	rows      []loadBalancer
	listeners []listener
	pools     []pool
	policies  []policy
}

// fullSweep reads all lists and has each load balancer read that they name. The sink gets the
// complete list when all of them are read.
func (s *Source) fullSweep(ctx context.Context) error {
	views, err := s.findViews(ctx)
	if err != nil {
		return err
	}
	s.views.Store(&views)
	s.client.sessions.keep(views)
	ctx = inBackground(ctx)
	seq := s.state.next()
	all := make([]swept, len(views))
	err = eachView(ctx, views, func(ctx context.Context, i int, v view) error {
		l, query := &all[i], v.scope.query(nil)
		var err error
		// First the load balancers: whatever changes after their list was read shows in
		// their updated_at.
		if l.rows, err = list[loadBalancer](ctx, s.client, v.scope.token, "loadbalancers", "loadbalancers", s.rowQuery(v)); err != nil {
			return err
		}
		if l.listeners, err = list[listener](ctx, s.client, v.scope.token, "listeners", "listeners", query); err != nil {
			return err
		}
		if l.pools, err = list[pool](ctx, s.client, v.scope.token, "pools", "pools", query); err != nil {
			return err
		}
		if !slices.ContainsFunc(l.listeners, func(l listener) bool { return len(l.L7Policies) > 0 }) {
			return nil
		}
		l.policies, err = list[policy](ctx, s.client, v.scope.token, "l7policies", "l7policies", query)
		return err
	})
	if err != nil {
		return err
	}

	refresh := s.state.oldest(refreshed, s.now().Add(-fullInterval/2))
	var ids []string
	var jobs []*job
	seen := map[string]bool{}
	for i := range all {
		parts := all[i].byLoadBalancer()
		for k := range all[i].rows {
			row := &all[i].rows[k]
			if seen[row.ID] {
				continue
			}
			seen[row.ID] = true
			s.state.want(row)
			if !s.selected(row.project()) {
				continue
			}
			of := parts[row.ID]
			if of == nil {
				of = &lists{}
			}
			old := s.state.of(row.ID)
			of.reuse = s.cfg.API != lbaas && !refresh[row.ID] && old != nil && old.tree.loadBalancer.same(row)
			ids = append(ids, row.ID)
			jobs = append(jobs, &job{id: row.ID, scope: views[i].scope, row: row, lists: of, seq: seq, background: true})
		}
	}
	s.queue.keep(seen, seq)
	s.state.begin(seq, ids)
	for _, j := range jobs {
		s.queue.put(j)
	}
	return nil
}

// byLoadBalancer sorts the parts by the load balancer that they belong to.
func (l *swept) byLoadBalancer() map[string]*lists {
	all := map[string]*lists{}
	of := func(id string) *lists {
		if all[id] == nil {
			all[id] = &lists{}
		}
		return all[id]
	}
	owner := map[string]string{} // load balancers, by ID of their listener
	for i := range l.listeners {
		for _, lb := range l.listeners[i].LoadBalancers {
			of(lb.ID).listeners = append(of(lb.ID).listeners, l.listeners[i])
			owner[l.listeners[i].ID] = lb.ID
		}
	}
	for i := range l.pools {
		p := &l.pools[i]
		owners := map[string]bool{}
		for _, lb := range p.LoadBalancers {
			owners[lb.ID] = true
		}
		for _, r := range p.Listeners {
			owners[owner[r.ID]] = true
		}
		for id := range owners {
			if id != "" {
				of(id).pools = append(of(id).pools, *p)
			}
		}
	}
	for i := range l.policies {
		if id := owner[l.policies[i].ListenerID]; id != "" {
			of(id).policies = append(of(id).policies, l.policies[i])
		}
	}
	return all
}

// idSweep reads the rows of all load balancers: those that are gone are missing, and those of
// a cloud that was restored from a backup have changed backwards. much: more than half of all
// have changed, which is for a full sweep.
func (s *Source) idSweep(ctx context.Context, anyway bool) (much bool, _ error) {
	views := *s.views.Load()
	seq := s.state.next()
	all := make([][]loadBalancer, len(views))
	err := eachView(inBackground(ctx), views, func(ctx context.Context, i int, v view) error {
		var err error
		all[i], err = list[loadBalancer](ctx, s.client, v.scope.token, "loadbalancers", "loadbalancers", s.rowQuery(v))
		return err
	})
	if err != nil {
		return false, err
	}
	ids := map[string]bool{}
	var jobs []*job
	for i := range all {
		for k := range all[i] {
			row := &all[i][k]
			if ids[row.ID] {
				continue
			}
			ids[row.ID] = true
			if s.state.want(row) && s.selected(row.project()) {
				jobs = append(jobs, &job{id: row.ID, scope: views[i].scope, row: row, seq: seq})
			}
		}
	}
	s.queue.keep(ids, seq)
	s.state.list(seq, ids, anyway)
	if isMuch(len(jobs), len(ids)) {
		return true, nil
	}
	for _, j := range jobs {
		j.background = len(jobs) > manyChanges
		s.queue.put(j)
	}
	return false, nil
}

// isMuch says whether so many of all load balancers have changed that they are judged at once.
func isMuch(changes, all int) bool { return changes >= muchChanges && 2*changes > all }

// rowQuery asks for the rows of load balancers.
func (s *Source) rowQuery(v view) url.Values {
	query := v.scope.query(nil)
	if s.cfg.API != lbaas {
		query["fields"] = loadBalancerFields
	}
	return query
}

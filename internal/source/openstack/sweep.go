package openstack

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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
)

// sweepLoop sweeps until ctx is done. It closes listed when polls can begin.
func (s *Source) sweepLoop(ctx context.Context, listed chan<- struct{}) {
	var last, full time.Time // begin of the last full sweep, and of the next one
	first, failures := true, 0
	for ctx.Err() == nil {
		var err error
		busy := s.state.untried() > 0 && s.now().Sub(last) < sweepPatience
		switch {
		case !busy && (s.cfg.API == lbaas || !s.now().Before(full)):
			if err = s.fullSweep(ctx); err == nil {
				last, full = s.now(), s.now().Add(s.jitter(fullInterval))
			}
		case s.cfg.API != lbaas:
			err = s.idSweep(ctx, failures > 0 || s.recovered.Swap(false))
		}
		if ctx.Err() != nil {
			return
		}
		recovered := s.state.contact(sweeping, err)
		delay := s.jitter(s.cfg.SweepInterval)
		if err != nil {
			failures++
			delay = min(s.backoff(failures, err), max(delay, firstRetry))
		} else {
			failures = 0
			if first {
				first = false
				close(listed)
			}
		}
		if recovered {
			s.log.Info("the lists of the cloud are readable again")
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
			of.reuse = s.cfg.API != lbaas && !refresh[row.ID]
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
// a cloud that was restored from a backup have changed backwards.
func (s *Source) idSweep(ctx context.Context, anyway bool) error {
	views := *s.views.Load()
	seq := s.state.next()
	all := make([][]loadBalancer, len(views))
	err := eachView(inBackground(ctx), views, func(ctx context.Context, i int, v view) error {
		var err error
		all[i], err = list[loadBalancer](ctx, s.client, v.scope.token, "loadbalancers", "loadbalancers", s.rowQuery(v))
		return err
	})
	if err != nil {
		return err
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
	for _, j := range jobs {
		j.background = len(jobs) > manyChanges
		s.queue.put(j)
	}
	return nil
}

// rowQuery asks for the rows of load balancers.
func (s *Source) rowQuery(v view) url.Values {
	query := v.scope.query(nil)
	if s.cfg.API != lbaas {
		query["fields"] = loadBalancerFields
	}
	return query
}

// eachView calls f for each view, for some at once. It returns the first error.
func eachView(ctx context.Context, views []view, f func(ctx context.Context, i int, v view) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, v := range views {
		group.Go(func() error { return f(ctx, i, v) })
	}
	return group.Wait()
}

// view is a part of the cloud that one list has.
type view struct{ scope scope }

// nobody is the ID of no project: only who may list every project may list this one.
const nobody = "00000000000000000000000000000000"

// findViews finds out what the credentials may list, and reads the names of projects. An
// administrator has one view of everything; others have one of each of their projects.
func (s *Source) findViews(ctx context.Context) ([]view, error) {
	own, err := s.client.sessions.get(ctx, "", nil)
	if err != nil {
		return nil, err
	}
	self := project{ID: own.projectID, Name: own.projectName}
	s.state.name([]project{self})
	everything, err := s.seesEverything(ctx)
	if err != nil {
		return nil, err
	}
	projects, all, err := s.listProjects(ctx, everything)
	if err != nil {
		return nil, err
	}
	if s.cfg.API == lbaas {
		everything = all
	}
	s.state.name(projects)
	projects = append(projects, self)
	s.state.keepNames(projects)
	s.selectProjects(projects)
	if everything {
		if only := s.selection(); len(only) == 1 {
			return []view{{scope{project: only[0]}}}, nil
		}
		return []view{{}}, nil
	}
	if s.cfg.Credentials.IsApplication() { // it is of one project
		return []view{{}}, nil
	}
	var views []view
	for _, p := range projects {
		if (p.Enabled == nil || *p.Enabled) && p.ID != own.projectID && s.selected(p.ID) {
			views = append(views, view{scope{token: p.ID}})
		}
	}
	slices.SortFunc(views, func(a, b view) int { return strings.Compare(a.scope.token, b.scope.token) })
	if own.projectID != "" && s.selected(own.projectID) || len(views) == 0 {
		views = append([]view{{}}, views...)
	}
	return views, nil
}

// seesEverything reports whether the credentials may list the load balancers of all projects.
func (s *Source) seesEverything(ctx context.Context) (bool, error) {
	if s.cfg.API == lbaas { // Neutron refuses nothing, but leaves out; the list of projects tells
		return true, nil
	}
	_, _, err := page[loadBalancer](ctx, s.client, "", "loadbalancers", "loadbalancers",
		url.Values{"project_id": {nobody}, "limit": {"1"}, "fields": {"id"}}, "")
	if isForbidden(err) {
		return false, nil
	}
	return true, err
}

// listProjects are all projects, if the credentials may list them, else those of the user.
func (s *Source) listProjects(ctx context.Context, everything bool) (_ []project, all bool, _ error) {
	if everything {
		projects, err := s.client.projects(ctx, "", "projects")
		if !isForbidden(err) {
			return projects, true, err
		}
	}
	projects, err := s.client.projects(ctx, "", "auth/projects")
	if isForbidden(err) { // a restricted application credential: the token names its project
		return nil, false, nil
	}
	return projects, false, err
}

// nameProject reads the name of a project that is newer than the list of projects.
func (s *Source) nameProject(ctx context.Context, id string) error {
	if !s.state.nameless(id) {
		return nil
	}
	var answer struct{ Project project }
	err := s.client.do(ctx, "", func(*session) string { return s.client.identity + "projects/" + url.PathEscape(id) }, nil, into(&answer))
	switch {
	case isForbidden(err) || isNotFound(err):
		s.state.unnamed(id)
	case err != nil:
		return err
	default:
		clip(&answer.Project.Name, nameBytes)
		s.state.name([]project{{ID: id, Name: answer.Project.Name}})
		s.state.unnamed(id) // should it have no name
	}
	return nil
}

// selection of projects, by ID.
type selection struct {
	mu  sync.Mutex
	ids map[string]bool // nil: all
}

// selectProjects resolves the names of spec.openstack.projects.
func (s *Source) selectProjects(projects []project) {
	if len(s.cfg.Projects) == 0 {
		return
	}
	ids, found := map[string]bool{}, map[string]bool{}
	for _, p := range projects {
		for _, wanted := range s.cfg.Projects {
			if p.ID != "" && (wanted == p.ID || wanted == p.Name) {
				ids[p.ID], found[wanted] = true, true
			}
		}
	}
	var missing []string
	for _, wanted := range s.cfg.Projects {
		if !found[wanted] {
			ids[wanted] = true // it may be an ID that may not be listed
			missing = append(missing, wanted)
		}
	}
	s.selects.mu.Lock()
	defer s.selects.mu.Unlock()
	for _, wanted := range missing {
		if s.selects.ids == nil || !s.selects.ids[wanted] {
			s.log.Warn("the cloud lists no such project", "project", wanted)
		}
	}
	s.selects.ids = ids
}

func (s *Source) selected(project string) bool {
	s.selects.mu.Lock()
	defer s.selects.mu.Unlock()
	return s.selects.ids == nil || s.selects.ids[project]
}

// selection are the selected projects; none: all.
func (s *Source) selection() []string {
	s.selects.mu.Lock()
	defer s.selects.mu.Unlock()
	var ids []string
	for id := range s.selects.ids {
		ids = append(ids, id)
	}
	return ids
}

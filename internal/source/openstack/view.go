package openstack

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

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

// eachView calls f for each view, for some at once. It returns the first error.
func eachView(ctx context.Context, views []view, f func(ctx context.Context, i int, v view) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, v := range views {
		group.Go(func() error { return f(ctx, i, v) })
	}
	return group.Wait()
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

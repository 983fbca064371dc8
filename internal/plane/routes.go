package plane

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
)

// RouteFilter says which routes are wanted; its zero value is all.
type RouteFilter struct {
	// Host is a host name, whose virtual host or wildcard is shown; "*" in it stands for
	// any characters.
	Host string
	// Namespace of the owner.
	Namespace string
}

// Routes are the routes that the edges have. Nobody may change them.
func (p *Plane) Routes(ctx context.Context, f RouteFilter) ([]model.RouteRow, error) {
	if err := p.bringRoutes(ctx); err != nil {
		return nil, err
	}
	return f.of(p.routes.Rows()), nil
}

// WatchRoutes waits for changes of the routes of a namespace's owners, or of all, after a position; nil: from nothing.
func (p *Plane) WatchRoutes(ctx context.Context, after *console.Position, namespace string) (console.Update, error) {
	release := p.routes.Watch()
	defer release()
	if err := p.bringRoutes(ctx); err != nil {
		return console.Update{}, err
	}
	return p.routes.Follow(ctx, p.serving.Load(), after, namespace)
}

// RouteFigures are rows with the requests that the proxies which answer in time have counted, and with how many backends are healthy.
func (p *Plane) RouteFigures(ctx context.Context, rows []model.RouteRow) []model.RouteRow {
	if p.serving.Load() == 0 {
		return rows
	}
	requests := map[model.RequestFigures]model.RequestFigures{}
	for _, answer := range p.figures(ctx) {
		for i := range answer.Requests {
			f := &answer.Requests[i]
			sum := requests[f.Key()]
			for class, n := range f.Classes {
				sum.Classes[class] += n
			}
			requests[f.Key()] = sum
		}
	}
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Backends = slices.Clone(rows[i].Backends)
		for j := range rows[i].Backends {
			b := &rows[i].Backends[j]
			counted := requests[model.RequestFigures{Listener: rows[i].Listener, Host: rows[i].Host, Route: rows[i].Name, Group: b.Group}]
			for class, n := range counted.Classes {
				b.Requests += n
				if class == 5 {
					b.Errors += n
				}
			}
		}
	}
	healthy, err := question(ctx, p, func(l *loop) map[model.GroupID]int { return l.healthy(rows) })
	if err != nil {
		return rows
	}
	for i := range rows {
		for j := range rows[i].Backends {
			b := &rows[i].Backends[j]
			b.Healthy, b.HealthKnown = healthy[b.Group], true
		}
	}
	return rows
}

// healthy are how many backends of the groups of rows are ready, and are held for failed neither by checks nor by proxies.
func (l *loop) healthy(rows []model.RouteRow) map[model.GroupID]int {
	counts := map[model.GroupID]int{}
	for i := range rows {
		for _, b := range rows[i].Backends {
			group := l.catalog.Group(b.Group)
			if _, counted := counts[b.Group]; counted || group == nil {
				continue
			}
			counts[b.Group] = 0
			set := l.catalog.Set(group.Set)
			if set == nil {
				continue
			}
			for _, x := range set.Backends {
				if state, _ := l.health.Of(health.User{Group: b.Group}, x.Address); x.State == model.BackendReady && state != model.Unhealthy {
					counts[b.Group]++
				}
			}
		}
	}
	return counts
}

// of are the rows that are wanted.
func (f RouteFilter) of(all []model.RouteRow) []model.RouteRow {
	if f == (RouteFilter{}) {
		return all
	}
	want := HostOf(f.Host)
	exact := slices.ContainsFunc(all, func(r model.RouteRow) bool { return r.Host == want })
	rows := []model.RouteRow{}
	for _, r := range all {
		if (f.Namespace == "" || r.Owner.Namespace == f.Namespace) && MatchesHost(want, r.Host, exact) {
			rows = append(rows, r)
		}
	}
	return rows
}

// HostOf is a host name as virtual hosts are named.
func HostOf(text string) string { return strings.ToLower(strings.TrimSuffix(text, ".")) }

// MatchesHost reports whether a virtual host is wanted: by its name, by a pattern, or because
// it is the wildcard that a name falls to; exact: a virtual host has that name.
func MatchesHost(want, host string, exact bool) bool {
	switch {
	case want == "" || want == host:
		return true
	case strings.Contains(want, "*"):
		return matchesPattern(want, host)
	}
	return !exact && (host == "*" || strings.HasPrefix(host, "*") && strings.HasSuffix(want, host[1:]))
}

// matchesPattern compares a name with a pattern in which "*" is any text.
func matchesPattern(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if !strings.HasPrefix(name, parts[0]) {
		return false
	}
	name = name[len(parts[0]):]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(name, p)
		if i < 0 {
			return false
		}
		name = name[i+len(p):]
	}
	return strings.HasSuffix(name, parts[len(parts)-1])
}

// actionText says what a route does that forwards nothing.
func actionText(r *model.Route) string {
	switch {
	case r.Forward != nil:
		return ""
	case r.Redirect != nil:
		to := r.Redirect.Host
		if r.Redirect.Scheme != "" {
			to = r.Redirect.Scheme + "://" + to
		}
		if r.Redirect.Port != 0 {
			to += ":" + strconv.Itoa(int(r.Redirect.Port))
		}
		if r.Redirect.Path != nil {
			to += r.Redirect.Path.Value
		}
		return fmt.Sprintf("redirect %d to %s", r.Redirect.Status, cmp.Or(to, "the same place"))
	case r.Respond != nil:
		return fmt.Sprintf("respond %d", r.Respond.Status)
	}
	return "respond 500"
}

func (l *loop) routeBackends(f *model.Forward) []model.RouteBackend {
	backends := []model.RouteBackend{}
	if f == nil {
		return backends
	}
	var total uint64
	for _, b := range f.Backends {
		total += uint64(b.Weight)
	}
	for _, b := range f.Backends {
		out := model.RouteBackend{Group: b.Group, Percent: math.Round(float64(b.Weight)*1000/float64(max(1, total))) / 10}
		if group := l.catalog.Group(b.Group); b.Group != "" && group != nil {
			if s := l.catalog.Set(group.Set); s != nil {
				out.Total = len(s.Backends)
				for _, x := range s.Backends {
					if x.State == model.BackendReady {
						out.Ready++
					}
				}
			}
		}
		backends = append(backends, out)
	}
	return backends
}

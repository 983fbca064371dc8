package plane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/internal/explain"
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

// Routes are the routes that the edges have, with the figures of the proxies that answer
// in time.
func (p *Plane) Routes(ctx context.Context, f RouteFilter) ([]model.RouteRow, error) {
	figures := map[model.GroupID]model.GroupFigures{}
	if p.serving.Load() != 0 {
		for _, answer := range p.figures(ctx) {
			for _, g := range answer.Groups {
				sum, known := figures[g.Group]
				g.Requests, g.Errors = g.Requests+sum.Requests, g.Errors+sum.Errors
				if known {
					g.Healthy = min(g.Healthy, sum.Healthy)
				}
				figures[g.Group] = g
			}
		}
	}
	return question(ctx, p, func(l *loop) []model.RouteRow { return l.routes(f, figures) })
}

// routes are sorted by listener and host, and then in the order in which they are
// tried.
func (l *loop) routes(f RouteFilter, figures map[model.GroupID]model.GroupFigures) []model.RouteRow {
	rows := []model.RouteRow{}
	hosts := l.history.Hosts()
	for _, k := range slices.SortedFunc(maps.Keys(hosts), model.HostKey.Compare) {
		if !f.matches(k.Host, hosts) {
			continue
		}
		for i := range hosts[k].Routes {
			r := &hosts[k].Routes[i]
			if f.Namespace != "" && r.Owner.Namespace != f.Namespace {
				continue
			}
			row := model.RouteRow{
				Listener: k.Listener, Host: k.Host, Match: explain.MatchText(r.Match), Name: r.Name, Owner: r.Owner,
				Action: actionText(r), Backends: l.routeBackends(r.Forward, figures),
			}
			row.State, _, _ = l.objectState(r.Owner)
			rows = append(rows, row)
		}
	}
	return rows
}

// matches reports whether a virtual host is wanted: by its name, by a pattern, or because
// it is the wildcard that a name falls to.
func (f RouteFilter) matches(host string, hosts map[model.HostKey]*model.VirtualHost) bool {
	want := strings.ToLower(strings.TrimSuffix(f.Host, "."))
	switch {
	case want == "" || want == host:
		return true
	case strings.Contains(want, "*"):
		return matchesPattern(want, host)
	}
	exact := false
	for k := range hosts {
		exact = exact || k.Host == want
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

func (l *loop) routeBackends(f *model.Forward, figures map[model.GroupID]model.GroupFigures) []model.RouteBackend {
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
		if g, known := figures[b.Group]; known {
			out.Requests, out.Errors, out.Healthy, out.HealthKnown = g.Requests, g.Errors, int(g.Healthy), true
		}
		backends = append(backends, out)
	}
	return backends
}

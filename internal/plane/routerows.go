package plane

import (
	"context"
	"maps"
	"time"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/listing"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/watch"
	"fairlead.dev/internal/translate"
)

// routeRows keeps the routes as consoles are shown them, once somebody has asked. They are changed host by host: there may be
// 20,000, and one changes. It belongs to the loop; consoles read the list.
type routeRows struct {
	list  *watch.List[model.RouteRow]
	made  bool
	stale map[model.HostKey]bool
	of    map[any]map[model.HostKey]bool // hosts with routes to a group (model.GroupID) or a set (model.SetID)
	shown map[model.HostKey][]any        // the groups and sets of a host
}

func newRouteRows(list *watch.List[model.RouteRow]) *routeRows {
	return &routeRows{list: list, stale: map[model.HostKey]bool{}, of: map[any]map[model.HostKey]bool{}, shown: map[model.HostKey][]any{}}
}

// note notes the hosts whose rows a change may change.
func (r *routeRows) note(ch translate.Changes) {
	if !r.made {
		return
	}
	for k := range ch.VirtualHosts {
		r.stale[k] = true
	}
	for id := range ch.Groups {
		maps.Copy(r.stale, r.of[id])
	}
	for id := range ch.Sets {
		maps.Copy(r.stale, r.of[id])
	}
}

// noteState notes that an object has another state.
func (r *routeRows) noteState(s *translate.Status) {
	if !r.made || s == nil {
		return
	}
	for _, k := range s.Hosts {
		r.stale[k] = true
	}
}

// bringTime is how long rows are brought up to date at a time. Other inputs of the loop come between.
const bringTime = 20 * time.Millisecond

// bringRoutes brings the rows of routes up to date.
func (p *Plane) bringRoutes(ctx context.Context) error {
	for {
		all, err := question(ctx, p, func(l *loop) bool { return l.routeRows.bring(l) })
		if err != nil || all {
			return err
		}
	}
}

// followRoutes has the rows brought up to date while somebody watches them.
func (l *loop) followRoutes(ctx context.Context) {
	p := l.plane
	if p.routes.Watched() && len(l.routeRows.stale) > 0 && p.bringing.CompareAndSwap(false, true) {
		go func() {
			defer p.bringing.Store(false)
			_ = p.bringRoutes(ctx) // the next beat tries again
		}()
	}
}

// bring brings the rows up to date for bringTime, and makes them if there are none. It says whether all are.
func (r *routeRows) bring(l *loop) (all bool) {
	hosts := l.history.Hosts()
	if !r.made {
		r.made = true
		for k := range hosts {
			r.stale[k] = true
		}
	}
	if len(r.stale) == 0 {
		return true
	}
	began := time.Now() // setting the clock does not matter
	r.list.Change(l.rev, func(list *listing.List[model.RouteRow]) {
		for k := range r.stale {
			list.Put(string(k.Listener)+" "+k.Host, r.rowsOf(l, k, hosts[k]))
			if delete(r.stale, k); time.Since(began) > bringTime {
				return
			}
		}
	})
	return len(r.stale) == 0
}

// rowsOf are the rows of a virtual host, in the order in which its routes are tried; nil: there is no such host.
func (r *routeRows) rowsOf(l *loop, k model.HostKey, host *model.VirtualHost) []model.RouteRow {
	for _, id := range r.shown[k] {
		if delete(r.of[id], k); len(r.of[id]) == 0 {
			delete(r.of, id)
		}
	}
	delete(r.shown, k)
	if host == nil {
		return nil
	}
	uses := func(id any) {
		if r.of[id] == nil {
			r.of[id] = map[model.HostKey]bool{}
		}
		r.of[id][k] = true
		r.shown[k] = append(r.shown[k], id)
	}
	rows := make([]model.RouteRow, 0, len(host.Routes))
	for i := range host.Routes {
		route := &host.Routes[i]
		row := model.RouteRow{
			Listener: k.Listener, Host: k.Host, Match: explain.MatchText(route.Match), Name: route.Name, Owner: route.Owner,
			Action: actionText(route), Backends: l.routeBackends(route.Forward),
		}
		row.State, _, _ = l.objectState(route.Owner)
		for _, b := range row.Backends {
			uses(b.Group)
			if group := l.catalog.Group(b.Group); b.Group != "" && group != nil {
				uses(group.Set)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

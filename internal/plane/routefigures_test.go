package plane

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
)

// Routes have the requests of all proxies by the group that they went to, and as many healthy backends as neither checks nor proxies
// hold for failed.
func TestRouteFigures(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	rows := func() ([]model.RouteRow, error) {
		rows, err := p.Routes(t.Context(), RouteFilter{})
		if err != nil || len(rows) != 1 || len(rows[0].Backends) != 1 {
			return nil, fmt.Errorf("the routes are %+v: %w", rows, err)
		}
		return rows, nil
	}
	var list []model.RouteRow
	eventually(t, "the route", func() (err error) { list, err = rows(); return err })
	row := list[0]
	group := row.Backends[0].Group
	for _, name := range []string{"edge-1", "edge-2"} {
		a := r.joined(p, name)
		counted := model.RequestFigures{Listener: row.Listener, Host: row.Host, Route: row.Name, Group: group, Classes: [model.StatusClasses]uint64{2: 7, 5: 1}}
		other := counted
		other.Group = "default/old/80"
		a.with(func() { a.requests = []model.RequestFigures{counted, other} })
		a.connect(p.AgentAddress().String())
	}
	eventually(t, "the figures of both", func() error {
		list, err := rows()
		if err != nil {
			return err
		}
		b := p.RouteFigures(t.Context(), list)[0].Backends[0]
		if b.Requests != 16 || b.Errors != 2 || b.Ready != 2 || b.Healthy != 2 || !b.HealthKnown {
			return fmt.Errorf("the backend is %+v", b)
		}
		if list[0].Backends[0].Requests != 0 {
			return fmt.Errorf("the list itself was changed")
		}
		return nil
	})
	healthy := 0
	if err := p.ask(t.Context(), func(l *loop) {
		at := l.catalog.Set(l.catalog.Group(group).Set).Backends[0].Address
		check := model.NewCheck(at, model.HealthCheck{Kind: model.CheckTCP})
		l.health.Use(health.User{Group: group}, map[netip.AddrPort]health.Wanted{at: {Check: check, Owner: "default"}})
		for _, name := range []string{"edge-1", "edge-2"} {
			l.health.Report(name, []model.CheckResult{{ID: check.ID, Health: model.Unhealthy}}, nil, time.Now())
		}
		l.health.Judge()
		healthy = l.healthy(list)[group]
	}); err != nil || healthy != 1 {
		t.Errorf("with one that fails its check %d are healthy, want 1: %v", healthy, err)
	}
}

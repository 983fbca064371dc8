package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/access"
	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/embedded"
	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane"
	"fairlead.dev/internal/traffic"
	"fairlead.dev/internal/version"
)

// Reasons of the problems of an API.
const (
	reasonStarting  = "Starting"
	reasonUnhealthy = "Unhealthy"
)

var errStarting = errors.New("the API is starting")

// served is a plane with its API, as the console shows them. The zero value is one
// that is still starting.
type served struct {
	running atomic.Pointer[running]
}

type running struct {
	*plane.Plane
	api   embedded.API
	judge *access.Judge // of those who read
}

// show tells that the API has started and the plane is about to run.
func (s *served) show(p *plane.Plane, api embedded.API, judge *access.Judge) {
	s.running.Store(&running{p, api, judge})
}

// Healthz is the plane's. A start is not a failure: it ends by itself, one way or
// the other.
func (s *served) Healthz(ctx context.Context) error {
	if r := s.running.Load(); r != nil {
		return r.Healthz(ctx)
	}
	return nil
}

// Readyz also asks the API: without it traffic goes on, but nothing new is taken.
func (s *served) Readyz(ctx context.Context) error {
	if r := s.running.Load(); r != nil {
		return errors.Join(r.Readyz(ctx), r.api.Healthy(ctx))
	}
	return errStarting
}

func (s *served) status(ctx context.Context) model.Status {
	trouble := func(reason string, err error) model.Problem {
		return model.Problem{Severity: model.SeverityError, Subject: "API", Reason: reason, Message: err.Error()}
	}
	r := s.running.Load()
	if r == nil {
		return model.Status{
			Plane:    model.PlaneStatus{Version: version.String()},
			Problems: []model.Problem{trouble(reasonStarting, errStarting)},
		}
	}
	status := r.Status(ctx)
	if err := r.api.Healthy(ctx); err != nil {
		status.Problems = append([]model.Problem{trouble(reasonUnhealthy, err)}, status.Problems...) // others have these too
	}
	return status
}

// standby is why the plane does not know what machines do.
func (s *served) standby() error {
	if r := s.running.Load(); r != nil {
		return r.Standby()
	}
	return nil // it says itself that it is starting
}

func (s *served) routes(ctx context.Context, host, namespace string) ([]model.RouteRow, error) {
	if r := s.running.Load(); r != nil {
		return r.Routes(ctx, plane.RouteFilter{Host: host, Namespace: namespace})
	}
	return nil, errStarting
}

// watches are the lists that can be watched.
func (s *served) watches() map[string]console.Watch {
	of := func(watch func(*plane.Plane) console.Watch) console.Watch {
		return func(ctx context.Context, after *console.Position, namespace string) (console.Update, error) {
			if r := s.running.Load(); r != nil {
				return watch(r.Plane)(ctx, after, namespace)
			}
			return console.Update{}, errStarting
		}
	}
	return map[string]console.Watch{
		v1.RoutesPath:    of(func(p *plane.Plane) console.Watch { return p.WatchRoutes }),
		v1.BackendsPath:  of(func(p *plane.Plane) console.Watch { return p.WatchBackends }),
		v1.UpstreamsPath: of(func(p *plane.Plane) console.Watch { return p.WatchUpstreams }),
		v1.StatusPath:    of(func(p *plane.Plane) console.Watch { return p.WatchStatus }),
	}
}

func (s *served) routeFigures(ctx context.Context, rows []model.RouteRow) []model.RouteRow {
	if r := s.running.Load(); r != nil {
		return r.RouteFigures(ctx, rows)
	}
	return rows
}

// awaitTop waits for the sample after one.
func (s *served) awaitTop(ctx context.Context, after uint64) error {
	if r := s.running.Load(); r != nil {
		return r.AwaitTop(ctx, after)
	}
	return nil
}

func (s *served) top(ctx context.Context, q console.TopQuestion) (model.Top, error) {
	r := s.running.Load()
	if r == nil {
		return model.Top{}, errStarting
	}
	by, err := traffic.Parse(cmp.Or(q.By, string(traffic.Routes)))
	if err != nil {
		return model.Top{}, fmt.Errorf("%w: %w", console.ErrQuestion, err)
	}
	sort := traffic.Sort(cmp.Or(q.Sort, string(traffic.ByRate)))
	if !slices.Contains(traffic.Sorts, sort) {
		return model.Top{}, fmt.Errorf("%w: sort %q is none of rate, errors, latency and name", console.ErrQuestion, q.Sort)
	}
	if q.Namespace != "" && !by.OfNamespace() {
		return model.Top{}, fmt.Errorf("%w: %s are not of one namespace: leave it out", console.ErrQuestion, by)
	}
	return r.Top(ctx, traffic.Query{By: by, Namespace: q.Namespace, Sort: sort, Limit: q.Limit}, q.After)
}

func (s *served) requestMetrics(ctx context.Context, namespace string) (prometheus.Gatherer, error) {
	if r := s.running.Load(); r != nil {
		return r.RequestMetrics(ctx, namespace)
	}
	return nil, errStarting
}

func (s *served) upstreams(ctx context.Context, name string) ([]model.UpstreamStatus, error) {
	if r := s.running.Load(); r != nil {
		return r.Upstreams(ctx, name)
	}
	return nil, errStarting
}

func (s *served) backends(ctx context.Context, of string) ([]model.BackendStatus, error) {
	if r := s.running.Load(); r != nil {
		return r.Backends(ctx, of)
	}
	return nil, errStarting
}

func (s *served) flows(ctx context.Context, f console.FlowFilter) (model.FlowList, error) {
	if r := s.running.Load(); r != nil {
		return r.Flows(ctx, f.Machine, f.FlowQuery)
	}
	return model.FlowList{}, errStarting
}

func (s *served) revisions(ctx context.Context) ([]model.Revision, error) {
	if r := s.running.Load(); r != nil {
		return r.Revisions(ctx)
	}
	return nil, errStarting
}

func (s *served) changes(ctx context.Context) ([]model.Change, error) {
	if r := s.running.Load(); r != nil {
		return r.Changes(ctx)
	}
	return nil, errStarting
}

func (s *served) explain(ctx context.Context, q explain.Request) (explain.Explanation, error) {
	if r := s.running.Load(); r != nil {
		return r.Explain(ctx, q)
	}
	return explain.Explanation{}, errStarting
}

func (s *served) explainFlow(ctx context.Context, q explain.FlowRequest) (explain.FlowExplanation, error) {
	if r := s.running.Load(); r != nil {
		return r.ExplainFlow(ctx, q)
	}
	return explain.FlowExplanation{}, errStarting
}

// tap shows requests, and has it logged who looks.
func (s *served) tap(ctx context.Context, f model.TapFilter, show func(model.TapEvent) error) error {
	r := s.running.Load()
	if r == nil {
		return errStarting
	}
	// Whoever asks without a user is on the machine of a plane.
	return r.Tap(ctx, cmp.Or(access.UserOf(ctx).Name, "a user of a plane's machine"), f, show)
}

// tapFlows shows flows in the same way.
func (s *served) tapFlows(ctx context.Context, q model.FlowTapQuery, show func(model.FlowTapEvent) error) error {
	r := s.running.Load()
	if r == nil {
		return errStarting
	}
	return r.TapFlows(ctx, cmp.Or(access.UserOf(ctx).Name, "a user of a plane's machine"), q, show)
}

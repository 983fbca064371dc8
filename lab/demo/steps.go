package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
)

func (d *demo) applyRoutes(ctx context.Context, s *Step) error {
	st := d.stage
	st.routes = demoRoutes()
	examples, err := manifests()
	if err != nil {
		return err
	}
	slices, err := st.endpoints(st.routes)
	if err != nil {
		return err
	}
	began := d.Now()
	done, err := st.plane.Apply(ctx, examples+"---\n"+slices)
	if err != nil {
		return err
	}
	applied := d.Now()
	for _, c := range []struct{ namespace, object, condition string }{
		{"default", "ingressroutes.contour.heptio.com/root-news-yahoo-co-jp", "valid"},
		{"news-team", "ingressroutes.contour.heptio.com/news-yahoo-co-jp", "valid"},
		{"team01", "ingressroutes.contour.heptio.com/team01-app", "valid"},
		{"default", "gateways.gateway.networking.k8s.io/edge", "Programmed"},
		{"news-team", "httproutes.gateway.networking.k8s.io/news", "Accepted"},
	} {
		if err := st.Await(ctx, c.object+" to be "+c.condition, func(ctx context.Context) error {
			return st.condition(ctx, c.namespace, c.object, c.condition)
		}); err != nil {
			return err
		}
	}
	if err := st.Await(ctx, "the routes to be programmed", st.routesProgrammed); err != nil {
		return err
	}
	if err := st.everyRouteAnswers(ctx); err != nil {
		return err
	}
	s.figure("first_answer_s", d.Now().Sub(applied).Seconds())
	s.fact("%d objects applied in %.1f s; the IngressRoutes are valid, the Gateway is Programmed, the HTTPRoute is Accepted", done.Objects, applied.Sub(began).Seconds())
	s.fact("every route answers over both edges")
	return nil
}

// routesProgrammed is nil once the plane says that every route runs on every edge.
func (st *stage) routesProgrammed(ctx context.Context) error {
	status, err := st.plane.Status(ctx)
	if err != nil {
		return err
	}
	if len(status.Routes) < len(st.routes) {
		return fmt.Errorf("the plane knows %d routes", len(status.Routes))
	}
	for _, r := range status.Routes {
		if r.State != "programmed" {
			return fmt.Errorf("%s %s/%s is %s: %s", r.Kind, r.Namespace, r.Name, r.State, r.Message)
		}
	}
	return nil
}

// everyRouteAnswers waits until each edge sends each route's requests to backends.
func (st *stage) everyRouteAnswers(ctx context.Context) error {
	for _, f := range st.flows(st.routes...) {
		if err := st.Await(ctx, f.route.host+" to answer over "+f.edge, func(ctx context.Context) error {
			r, err := load.Do(ctx, load.Config{Address: f.address, Host: f.route.host, Dial: st.Lab.Machine("client").Dial, Requests: 1, Now: st.Now})
			if err != nil {
				return err
			}
			if r.OK != 1 {
				return errors.New(r.Why())
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// sendMany sends the big number of requests and holds every route's split against
// its weights.
func (d *demo) sendMany(ctx context.Context, s *Step) error {
	r, err := d.sendAndSplit(ctx, s, d.Requests, d.stage.routes)
	if err != nil {
		return err
	}
	s.figure("requests_per_s", r.Rate())
	s.figure("p50_ms", float64(r.Latency.P50.Microseconds())/1000)
	s.figure("p99_ms", float64(r.Latency.P99.Microseconds())/1000)
	s.fact("%.0f requests a second, p50 %.2f ms, p99 %.2f ms, over IPv4 to edge-1 and IPv6 to edge-2", r.Rate(), s.Figures["p50_ms"], s.Figures["p99_ms"])
	return nil
}

// sendAndSplit sends n requests over all flows of the routes in a closed loop.
func (d *demo) sendAndSplit(ctx context.Context, s *Step, n int, routes []*route) (load.Report, error) {
	st := d.stage
	flows := st.flows(routes...)
	reports := make([]load.Report, len(flows))
	errs := make([]error, len(flows))
	var sending sync.WaitGroup
	for i, f := range flows {
		share := n / len(flows)
		if i < n%len(flows) {
			share++
		}
		sending.Go(func() {
			reports[i], errs[i] = load.Do(ctx, load.Config{
				Address: f.address, Host: f.route.host, Dial: st.Lab.Machine("client").Dial,
				Requests: share, Concurrency: 4, Now: d.Now,
			})
		})
	}
	sending.Wait()
	if err := errors.Join(errs...); err != nil {
		return load.Report{}, err
	}
	s.Answers = map[string]map[string]int{}
	for i, f := range flows {
		if s.Answers[f.edge] == nil {
			s.Answers[f.edge] = map[string]int{}
		}
		for name, n := range reports[i].Answers {
			s.Answers[f.edge][clusterOf(name)] += n
		}
	}
	for _, r := range routes {
		var of []load.Report
		for i, f := range flows {
			if f.route == r {
				of = append(of, reports[i])
			}
		}
		sum := load.Merge(of...)
		shares := r.shares(st, sum.Answers)
		s.Shares = append(s.Shares, shares)
		if wrong := cmp.Or(load.Wrong(shares.Clusters), load.Wrong(shares.Backends)); wrong != "" {
			s.wrong("%s %s: %s", r.kind, r.host, wrong)
		}
	}
	all := load.Merge(reports...)
	s.count(all)
	s.why(all)
	return all, nil
}

// why notes how requests failed.
func (s *Step) why(r load.Report) {
	if r.Failed > 0 {
		s.fact("failed: %s", r.Why())
	}
}

// shift applies new weights to the first two routes while traffic runs, waits
// until they are in force, and says how long that took.
func (d *demo) shift(ctx context.Context, s *Step, t *traffic, weights map[string]float64) error {
	st := d.stage
	routes := st.routes[:2]
	var manifest []string
	for _, r := range routes {
		doc, err := r.reweighted(weights)
		if err != nil {
			return err
		}
		manifest = append(manifest, doc)
	}
	old := routes[0].weights
	began := d.Now()
	applied, err := st.plane.Apply(ctx, strings.Join(manifest, "---\n"))
	if err != nil {
		return err
	}
	took := d.Now().Sub(began)
	for _, r := range routes {
		r.weights = weights
	}
	if err := st.awaitWeights(ctx, t, d.Now()); err != nil {
		return err
	}
	share := func(w map[string]float64) float64 { return w["os1"] / (w["os1"] + w["k8s1"]) }
	slowest := time.Duration(0)
	for _, r := range routes {
		at := changePoint(t.since(time.Time{}, func(f flow) bool { return f.route == r }), "os1", share(old), share(weights))
		told, known := applied.ToldOf("/" + r.name)
		if !known {
			told = began
		}
		slowest = max(slowest, at.Sub(told))
		if s.event.IsZero() || at.Before(s.event) {
			s.event = at
		}
	}
	s.figure("weights_in_force_ms", float64(slowest.Milliseconds()))
	s.figure("kubectl_ms", float64(took.Milliseconds()))
	s.fact("weights %s -> %s: answers follow them about %d ms after the API was told (kubectl took %d ms in all)",
		inWords(old), inWords(weights), slowest.Milliseconds(), took.Milliseconds())
	return nil
}

func inWords(weights map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		parts = append(parts, fmt.Sprintf("%s %.0f", name, weights[name]))
	}
	return strings.Join(parts, " / ")
}

func (d *demo) shiftWeights(ctx context.Context, s *Step) error {
	st := d.stage
	t, err := st.steady(ctx, st.flows(st.routes[:2]...))
	if err != nil {
		return err
	}
	defer t.stop()
	s.traffic = t
	if err := st.awaitCount(ctx, t, time.Time{}, 1000); err != nil {
		return err
	}
	if err := d.shift(ctx, s, t, map[string]float64{"os1": 20, "k8s1": 80}); err != nil {
		return err
	}
	r := t.report(nil)
	s.count(r)
	s.why(r)
	_, err = d.sendAndSplit(ctx, s, d.Requests*2/5, st.routes[:2])
	return err
}

func (d *demo) killPlane(ctx context.Context, s *Step) error {
	st := d.stage
	t, err := st.steady(ctx, st.flows(st.routes[:2]...))
	if err != nil {
		return err
	}
	defer t.stop()
	s.traffic = t
	if err := st.awaitCount(ctx, t, time.Time{}, 1000); err != nil {
		return err
	}
	s.event = d.Now()
	st.plane.Process.Kill9()
	if st.plane.Process.Pid().Alive() {
		return errors.New("the plane is alive")
	}
	if err := st.awaitCount(ctx, t, d.Now(), 2000); err != nil {
		return err
	}
	if st.plane.Answers(ctx) == nil {
		s.wrong("something still answers at the plane's console")
	}
	r := t.report(nil)
	s.count(r)
	s.why(r)
	s.fact("the edges go on without a plane: %s requests since it was killed", thousands(len(t.since(s.event, nil))))
	return nil
}

func (d *demo) restartPlane(ctx context.Context, s *Step) error {
	st := d.stage
	t, err := st.steady(ctx, st.flows(st.routes[:2]...))
	if err != nil {
		return err
	}
	defer t.stop()
	s.traffic = t
	s.event = d.Now()
	if err := st.plane.Start(ctx); err != nil {
		return err
	}
	s.figure("plane_ready_s", d.Now().Sub(s.event).Seconds())
	if err := st.plane.AwaitConnected(ctx, st.Lab.Machines(lab.RoleEdge)...); err != nil {
		return err
	}
	if err := st.Await(ctx, "the routes to be programmed", st.routesProgrammed); err != nil {
		return err
	}
	s.figure("edges_back_s", d.Now().Sub(s.event).Seconds())
	s.fact("ready after %.1f s with its state kept; the edges were back after %.1f s, without new tokens", s.Figures["plane_ready_s"], s.Figures["edges_back_s"])
	for _, object := range []string{"ingressroutes.contour.heptio.com/news-yahoo-co-jp", "httproutes.gateway.networking.k8s.io/news", "service/" + newsOS1} {
		if _, err := st.plane.Kubectl(ctx, "", "-n", "news-team", "get", object, "-o", "name"); err != nil {
			s.wrong("the plane lost %s: %v", object, err)
		}
	}
	restarted := s.event
	s.event = time.Time{}
	if err := d.shift(ctx, s, t, map[string]float64{"os1": 50, "k8s1": 50}); err != nil {
		return err
	}
	s.event = restarted
	r := t.report(nil)
	s.count(r)
	s.why(r)
	return nil
}

func (d *demo) killEnvoy(ctx context.Context, s *Step) error {
	st := d.stage
	s.Lost = true
	edge := st.agents["edge-1"]
	victim, err := edge.Envoy()
	if err != nil {
		return err
	}
	t, err := st.steady(ctx, st.flows(st.routes[:2]...))
	if err != nil {
		return err
	}
	defer t.stop()
	s.traffic = t
	if err := st.awaitCount(ctx, t, time.Time{}, 1000); err != nil {
		return err
	}
	struck := func(f flow) bool { return f.edge == edge.Machine.Name() }
	spared := func(f flow) bool { return !struck(f) }
	s.event = d.Now()
	if err := victim.Kill9(); err != nil {
		return err
	}
	if err := st.Await(ctx, "edge-1 to serve again", func(context.Context) error {
		run := 0
		samples := t.since(s.event, struck)
		slices.SortFunc(samples, func(a, b sample) int { return a.start.Compare(b.start) })
		for _, x := range samples {
			run++
			if x.failed {
				run = 0
			}
		}
		if run < 500 {
			return fmt.Errorf("%d requests answered in a row", run)
		}
		return nil
	}); err != nil {
		return err
	}
	hit, rest := t.report(struck), t.report(spared)
	s.count(hit)
	s.count(rest)
	s.why(hit)
	back, ok := hit.Back(s.event)
	s.figure("failed_edge1", float64(hit.Failed))
	s.figure("failed_edge2", float64(rest.Failed))
	s.figure("back_ms", float64(back.Microseconds())/1000)
	s.fact("edge-1 was back after %.0f ms and lost %d of its %s requests; edge-2 lost %d of %s", s.Figures["back_ms"], hit.Failed, thousands(hit.Requests), rest.Failed, thousands(rest.Requests))
	switch {
	case !ok:
		s.wrong("edge-1 did not come back")
	case back > d.BackWithin:
		s.wrong("edge-1 was back after %s, it may take %s", back.Round(time.Millisecond), d.BackWithin)
	}
	if rest.Failed > 0 {
		s.wrong("edge-2 lost %d requests, it may lose none: %s", rest.Failed, rest.Why())
	}
	next, err := edge.Envoy()
	if err != nil {
		return err
	}
	if next.Pid == victim.Pid {
		s.wrong("Envoy was not killed: process %d is still the one", victim.Pid.ID)
	}
	return d.allIsWell(ctx, s)
}

// allIsWell checks that at the end of the story the plane sees nothing wrong.
func (d *demo) allIsWell(ctx context.Context, s *Step) error {
	if err := d.stage.Await(ctx, "the plane to see nothing wrong", func(ctx context.Context) error {
		status, err := d.stage.plane.Status(ctx)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(status.Problems, func(p model.Problem) bool { return p.Severity == model.SeverityError }); i >= 0 {
			return fmt.Errorf("%s: %s: %s", status.Problems[i].Subject, status.Problems[i].Reason, status.Problems[i].Message)
		}
		return nil
	}); err != nil {
		return err
	}
	s.fact("the plane sees nothing wrong")
	return nil
}

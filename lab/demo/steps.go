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

	"fairlead.dev/lab/load"
	"fairlead.dev/lab/router"
)

func (d *demo) applyRoutes(ctx context.Context, s *Step) error {
	st := d.stage
	st.routes = demoRoutes()
	examples, err := manifests()
	if err != nil {
		return err
	}
	endpoints, err := st.endpoints(st.routes)
	if err != nil {
		return err
	}
	watch, err := st.router.Watch(ctx)
	if err != nil {
		return err
	}
	began := d.Now()
	done, err := st.plane.Apply(ctx, st.announcement()+"---\n"+examples+"---\n"+endpoints)
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
	if err := st.learnVIPs(ctx); err != nil {
		return err
	}
	if err := st.sessionsUp(ctx); err != nil {
		return err
	}
	if err := st.Await(ctx, "the router to spread every VIP over every edge", func(ctx context.Context) error {
		s.NextHops, err = st.nextHops(ctx)
		if err == nil && len(s.NextHops) < 4 {
			err = fmt.Errorf("it has routes for %d VIPs", len(s.NextHops))
		}
		for _, h := range s.NextHops {
			if err == nil && !slices.Equal(h.Edges, st.edgeNames()) {
				err = fmt.Errorf("%s goes to %s", h.VIP, inProse(h.Edges))
			}
		}
		return err
	}); err != nil {
		return err
	}
	if err := st.everyRouteAnswers(ctx); err != nil {
		return err
	}
	st.tellArrivals(s, watch, began)
	s.figure("first_answer_s", d.Now().Sub(applied).Seconds())
	s.fact("%d objects applied in %.1f s; the IngressRoutes are valid, the Gateway is Programmed, the HTTPRoute is Accepted", done.Objects, applied.Sub(began).Seconds())
	s.fact("every route answers at its IPv4 and its IPv6 VIP")
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

// tellArrivals says when the router first led a VIP to more and more edges.
func (st *stage) tellArrivals(s *Step, watch <-chan router.RouteEvent, since time.Time) {
	vip := s.NextHops[0].VIP
	var parts []string
	for len(parts) == 0 || !strings.Contains(parts[len(parts)-1], inProse(st.edgeNames())) {
		e := <-watch // it was waited for: it is there
		if e.Prefix.Addr() == vip {
			parts = append(parts, fmt.Sprintf("%s after %.2f s", inProse(st.edgesAt(e.NextHops)), e.When.Sub(since).Seconds()))
		}
	}
	s.fact("the router led %s to %s, since the start of kubectl", vip, strings.Join(parts, "; to "))
}

// everyRouteAnswers waits until each route's requests are answered at each of its VIPs.
func (st *stage) everyRouteAnswers(ctx context.Context) error {
	for _, f := range st.flows(st.routes...) {
		if err := st.Await(ctx, f.route.host+" to answer at "+f.vip.String(), func(ctx context.Context) error {
			r, err := load.Do(ctx, load.Config{Address: f.address().String(), Host: f.route.host, Dial: st.client.Dial, Requests: 1, Now: st.Now})
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
	s.figure("connections", float64(r.Connections))
	s.figure("p50_ms", float64(r.Latency.P50.Microseconds())/1000)
	s.figure("p99_ms", float64(r.Latency.P99.Microseconds())/1000)
	s.fact("p50 %.2f ms, p99 %.2f ms, half over IPv4 and half over IPv6", s.Figures["p50_ms"], s.Figures["p99_ms"])
	return nil
}

// The big number of requests goes over many connections, since the router spreads
// connections, not requests: each client makes a new one after so many requests.
const (
	perConnection = 25
	manyClients   = 4 // per flow
)

// sendAndSplit sends n requests over all flows of the routes in a closed loop.
func (d *demo) sendAndSplit(ctx context.Context, s *Step, n int, routes []*route) (load.Report, error) {
	st := d.stage
	flows := st.flows(routes...)
	t, err := st.watchFlows(ctx, flows)
	if err != nil {
		return load.Report{}, err
	}
	defer t.close()
	began := d.Now()
	reports := make([][]load.Report, len(flows)*manyClients)
	errs := make([]error, len(reports))
	var sending sync.WaitGroup
	for i := range reports {
		share := n / len(reports)
		if i < n%len(reports) {
			share++
		}
		sending.Go(func() {
			c := t.config(flows[i%len(flows)])
			for share > 0 && errs[i] == nil {
				c.Requests = min(share, perConnection)
				share -= c.Requests
				var r load.Report
				r, errs[i] = load.Do(ctx, c)
				reports[i] = append(reports[i], r)
			}
		})
	}
	sending.Wait()
	if err := errors.Join(errs...); err != nil {
		return load.Report{}, err
	}
	all := load.Merge(slices.Concat(reports...)...)
	all.Elapsed = d.Now().Sub(began)
	s.Answers = t.answers()
	for _, r := range routes {
		var of []load.Report
		for i, f := range flows {
			for ; f.route == r && i < len(reports); i += len(flows) {
				of = append(of, reports[i]...)
			}
		}
		shares := r.shares(st, load.Merge(of...).Answers)
		s.Shares = append(s.Shares, shares)
		if wrong := cmp.Or(load.Wrong(shares.Clusters), load.Wrong(shares.Backends)); wrong != "" {
			s.wrong("%s %s: %s", r.kind, r.host, wrong)
		}
	}
	s.count(all)
	s.why(all)
	return all, s.spread(t, all)
}

// spread tells how the router spread the requests over the edges, which is by its hash
// and not by weights, and checks that each got some, and that our reading of the router's
// kernel is right: that it leads every connection to an edge. That edge may pass it on to
// another one, which answers.
func (s *Step) spread(t *traffic, all load.Report) error {
	var parts []string
	for _, m := range t.st.edges {
		n := 0
		for _, answers := range s.Answers[m.Name()] {
			n += answers
		}
		parts = append(parts, fmt.Sprintf("%s %s (%.1f %%)", m.Name(), thousands(n), 100*float64(n)/float64(max(all.OK, 1))))
		if n == 0 {
			s.wrong("%s got no request", m.Name())
		}
	}
	s.fact("%d connections spread by the router: %s", all.Connections, strings.Join(parts, ", "))
	if n := t.misled(); n > 0 {
		s.wrong("for %d connections the router's kernel does not report the path", n)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
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
		at := changePoint(t.since(time.Time{}, func(x sample) bool { return x.flow.route == r }), "os1", share(old), share(weights))
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
	s.fact("weights %s -> %s: answers follow about %d ms after the API accepted them (kubectl took %d ms in all)",
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
	r := t.report()
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
		s.wrong("a process still answers at the plane's console")
	}
	r := t.report()
	s.count(r)
	s.why(r)
	s.fact("the edges serve without a plane: %s requests since it was killed", thousands(len(t.since(s.event, nil))))
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
	if err := st.plane.AwaitConnected(ctx, st.edges...); err != nil {
		return err
	}
	if err := st.Await(ctx, "the routes to be programmed", st.routesProgrammed); err != nil {
		return err
	}
	s.figure("edges_back_s", d.Now().Sub(s.event).Seconds())
	s.fact("ready after %.1f s with its state; the edges reconnected after %.1f s, without new tokens", s.Figures["plane_ready_s"], s.Figures["edges_back_s"])
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
	r := t.report()
	s.count(r)
	s.why(r)
	return nil
}

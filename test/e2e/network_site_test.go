package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

// sharedRouted is the lab that most tests of VIPs share: a client behind a router that
// runs BIRD, with BFD, two edges with a session each, and a Gateway with two VIPs.
// Besides them stand a reflector, and a client on the edges' segment.
var (
	sharedRouted *site
	upstream     *router.Router // of sharedRouted
)

var (
	neighbour = lab.MachineSpec{Name: "neighbour", Role: lab.RoleClient}
	reflector = lab.MachineSpec{Name: "reflector", Role: lab.RoleReflector}
)

// watched are the lines of a BGPPeer that has the path watched as the router does.
var watched = []string{"bfd: {interval: 300ms, multiplier: 3}"}

// vipHost is the host that both VIPs answer for.
const vipHost = "vip.example.com"

// gatewayClass is that of the tests' Gateways.
const gatewayClass = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: fairlead}\nspec: {controllerName: fairlead.dev/gateway}\n"

// routed returns the shared routed lab with everything in order, when the tests before
// have done with it. It makes the test a parallel one.
func routed(t *testing.T) *site {
	t.Helper()
	if err := errors.Join(lab.Supported(), router.BIRD.Find()); err != nil {
		t.Skip(err)
	}
	routedLane.enter(t)
	if sharedRouted == nil {
		ctx := context.Background()
		outside, way := client, lab.MachineSpec{Name: "router", Role: lab.RoleRouter, Segments: []string{lab.SegmentEdges, lab.SegmentClients}}
		outside.Segments = []string{lab.SegmentClients}
		s, err := buildLab(ctx, lab.Topology{
			Name: "routed", Segments: []lab.Segment{{Name: lab.SegmentEdges}, {Name: lab.SegmentClients}},
			Machines: []lab.MachineSpec{outside, way, edge1, edge2, os1, plane, neighbour, reflector},
		})
		if err != nil {
			t.Fatal(err)
		}
		sharedRouted = s
		tell := s.listen()
		if upstream, err = s.StartRouter(ctx, s.Lab.Machine("router"), rig.RouterOptions{Kind: router.BIRD, BFD: &router.BFD{}, Hold: 30 * time.Second}); err == nil {
			err = s.start(ctx, rig.PlaneOptions{Args: []string{"--machine-ttl", "5s"}}, "--drain-time", "2s")
		}
		if err != nil {
			t.Error(err)
			tell(t)
			t.FailNow()
		}
		s.apply(t,
			rig.PoolManifest("public", poolAddresses), gatewayClass,
			gateway("edge", 80), service("default", "app", s.cluster("os1")...), httpRoute("default", "app", vipHost, to("app")),
		)
		for _, edge := range s.edges() { // a drain has to end within a test
			s.kubectl(t, "patch", "machine", edge, "--type=merge", "-p", `{"spec":{"drainTime":"3s"}}`)
		}
	}
	s := sharedRouted
	tell := s.listen()
	t.Cleanup(func() { tell(t) })
	if s.api == nil || len(s.agents) != 2 {
		t.Fatal("the shared routed lab did not come up")
	}
	s.mend(t)
	// A peer that lost its session often of late is tried ever more rarely: each test has
	// a new one.
	s.kubectl(t, "delete", "bgppeer", "upstream", "--ignore-not-found")
	s.apply(t, rig.PeerManifest("upstream", upstream.Machine(), watched...))
	s.awaitOrder(t)
	return s
}

// awaitWays waits until both VIPs are reached over both edges.
func (s *site) awaitWays(t *testing.T) {
	t.Helper()
	for _, vip := range []netip.Addr{vip4, vip6} {
		s.awaitNextHops(t, upstream, vip, "edge-1", "edge-2")
		s.awaitAnswerOf(t, "the way to "+vip.String(), request{at: vip, host: vipHost}, 200, "os1-a", "os1-b")
	}
}

// awaitOrder waits until both edges announce both VIPs over sessions that are watched,
// and traffic passes.
func (s *site) awaitOrder(t *testing.T) {
	t.Helper()
	s.awaitWays(t)
	s.awaitWatched(t)
}

// awaitWatched waits until both edges have sessions that are watched.
func (s *site) awaitWatched(t *testing.T) {
	t.Helper()
	s.awaitSessions(t, func(x v1.SessionStatus) error {
		if x.State != v1.SessionEstablished || x.BFD != "up" {
			return fmt.Errorf("%s to %s is %s, BFD %s: %s", x.Machine, x.Peer, x.State, x.BFD, x.Message)
		}
		return nil
	}, "edge-1", "edge-2")
}

// awaitSessions waits until the plane shows one session of each of the machines, each of
// which is as wanted.
func (s *site) awaitSessions(t *testing.T, is func(v1.SessionStatus) error, machines ...string) {
	t.Helper()
	s.await(t, fmt.Sprintf("the sessions of %v", machines), func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		var of []string
		for _, x := range status.Sessions {
			if slices.Contains(machines, x.Machine) {
				of = append(of, x.Machine)
				err = errors.Join(err, is(x))
			}
		}
		if !slices.Equal(of, machines) {
			return fmt.Errorf("there are sessions of %v", of)
		}
		return err
	})
}

// awaitVIP waits until the plane shows a VIP as wanted, with where it is: the machines
// with their states, "edge-1 announced, edge-2 withheld: why". "…" stands for any text.
func (s *site) awaitVIP(t *testing.T, vip netip.Addr, state, at string) {
	t.Helper()
	s.await(t, fmt.Sprintf("%s to be %s at %s", vip, state, at), func(ctx context.Context) error {
		v, got, err := s.vipAt(ctx, vip)
		if err != nil {
			return err
		}
		if v.State != state || !matches(at, got) {
			return fmt.Errorf("it is %s (%s) at %s", v.State, v.Message, got)
		}
		return nil
	})
}

// vipAt is a VIP as the plane shows it, and the machines with their states as text.
func (s *site) vipAt(ctx context.Context, vip netip.Addr) (v v1.VIPStatus, at string, err error) {
	status, err := s.plane.Status(ctx)
	if err != nil {
		return v, "", err
	}
	i := slices.IndexFunc(status.VIPs, func(v v1.VIPStatus) bool { return v.Address == vip })
	if i < 0 {
		return v, "", errors.New("there is no such VIP")
	}
	v = status.VIPs[i]
	var each []string
	for _, m := range v.At {
		text := m.Machine + " " + string(m.State)
		if m.Message != "" {
			text += ": " + m.Message
		}
		each = append(each, text)
	}
	return v, strings.Join(each, ", "), nil
}

// vipLoad are requests to a VIP, and what came of each.
type vipLoad struct {
	site *site
	run  *load.Run
	name string

	mu      sync.Mutex
	results []load.Result
}

// startVIPLoad sends requests to a VIP until it is stopped, at the test's end at the
// latest, each on a connection of its own or on kept ones. It returns when answers come.
func (s *site) startVIPLoad(t *testing.T, vip netip.Addr, kept bool) *vipLoad {
	t.Helper()
	return s.startLoad(t, s.Lab.Machine(client.Name), vip, kept)
}

func (s *site) startLoad(t *testing.T, from *lab.Machine, to netip.Addr, kept bool) *vipLoad {
	t.Helper()
	l := &vipLoad{site: s, name: "new connections to " + to.String()}
	if kept {
		l.name = "kept connections to " + to.String()
	}
	var err error
	l.run, err = load.Start(context.Background(), load.Config{
		Address: netip.AddrPortFrom(to, 80).String(), Host: vipHost, Dial: from.Dial,
		Rate: trafficRate, Concurrency: 8, NewConnections: !kept, Timeout: 3 * time.Second, Now: s.Now, OnResult: func(r load.Result) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.results = append(l.results, r)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.run.Stop() })
	l.more(t, 20)
	return l
}

// more waits until n more requests have had their end.
func (l *vipLoad) more(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.results)
	}
	goal := count() + n
	l.site.await(t, fmt.Sprintf("%d more requests of %s", n, l.name), func(context.Context) error {
		if got := count(); got < goal {
			return fmt.Errorf("%d are missing", goal-got)
		}
		return nil
	})
}

// span is a time in which requests may fail.
type span struct{ from, to time.Time }

// none ends the load and fails the test for each request that failed, but for those
// under way in one of the spans.
func (l *vipLoad) none(t *testing.T, but ...span) {
	t.Helper()
	report := l.run.Stop()
	bad, excused := 0, 0
	for _, r := range l.results {
		switch {
		case r.Kind == "":
		case slices.ContainsFunc(but, func(s span) bool { return r.Start.Before(s.to) && r.Start.Add(r.Latency).After(s.from) }):
			excused++
		default:
			if bad++; bad <= 3 {
				t.Errorf("%s: the request of %s failed after %s: %v", l.name, r.Start.Format("05.000"), r.Latency, r.Err)
			}
		}
	}
	t.Logf("%s: %d requests on %d connections, %d failed, %d of them when they might", l.name, report.Requests, report.Connections, report.Failed, excused)
}

// routeLog are the changes of a router's routes.
type routeLog struct {
	site   *site
	mu     sync.Mutex
	events []router.RouteEvent
}

// watchRoutes notes the changes of the routes of the shared router until the test ends.
func (s *site) watchRoutes(t *testing.T) *routeLog {
	t.Helper()
	changes, err := upstream.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := &routeLog{site: s}
	go func() {
		for e := range changes {
			l.mu.Lock()
			l.events = append(l.events, e)
			l.mu.Unlock()
		}
	}()
	return l
}

// of are the changes of a VIP's route.
func (l *routeLog) of(vip netip.Addr) []router.RouteEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	var of []router.RouteEvent
	for _, e := range l.events {
		if e.Prefix == netip.PrefixFrom(vip, vip.BitLen()) {
			of = append(of, e)
		}
	}
	return of
}

// calm fails the test if the routes of these VIPs have changed.
func (l *routeLog) calm(t *testing.T, vips ...netip.Addr) {
	t.Helper()
	for _, vip := range vips {
		for _, e := range l.of(vip) {
			t.Errorf("the route of %s changed to %v at %s", vip, e.NextHops, e.When.Format("05.000"))
		}
	}
}

// awaitWay waits until the VIP has had, after a time, a route by the machines only, and
// returns when that came.
func (l *routeLog) awaitWay(t *testing.T, vip netip.Addr, after time.Time, machines ...string) time.Time {
	t.Helper()
	var when time.Time
	want := l.site.hops(vip, machines...)
	l.site.await(t, fmt.Sprintf("the route of %s to go by %v", vip, machines), func(context.Context) error {
		for _, e := range l.of(vip) {
			if !e.When.Before(after) && slices.Equal(e.NextHops, want) {
				when = e.When
				return nil
			}
		}
		return fmt.Errorf("the changes are %v", l.of(vip))
	})
	return when
}

// hops are the addresses of machines as next hops of a VIP.
func (s *site) hops(vip netip.Addr, machines ...string) []netip.Addr {
	var hops []netip.Addr
	for _, name := range machines {
		v4, v6, _ := s.Lab.Machine(name).On(lab.SegmentEdges)
		if vip.Is6() {
			v4 = v6
		}
		hops = append(hops, v4)
	}
	slices.SortFunc(hops, netip.Addr.Compare)
	return hops
}

// lost are how often sessions were lost, as the plane shows it, by machine.
func (s *site) lost(t *testing.T) map[string]uint32 {
	t.Helper()
	status, err := s.plane.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := map[string]uint32{}
	for _, x := range status.Sessions {
		lost[x.Machine] += x.Flaps
	}
	return lost
}

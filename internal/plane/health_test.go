package plane

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
	elect "fairlead.dev/internal/verdict"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

func serverAt(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
}

func tcpChecks(owner string, how model.HealthCheck, backends ...netip.AddrPort) map[netip.AddrPort]wantedCheck {
	how.Kind = model.CheckTCP
	checks := map[netip.AddrPort]wantedCheck{}
	for _, b := range backends {
		checks[b] = wantedCheck{Check: model.NewCheck(b, how), owner: owner}
	}
	return checks
}

// told is what machines were sent, as they hold it.
type told map[string]map[string]model.Check

func (d told) take(t *testing.T, h *health) (changes int) {
	t.Helper()
	update := southbound.Update{Machine: map[string][]delta.Change{}}
	if err := h.flush(&update); err != nil {
		t.Fatal(err)
	}
	for machine, list := range update.Machine {
		if d[machine] == nil {
			d[machine] = map[string]model.Check{}
		}
		for _, c := range list {
			changes++
			if c.Resource == nil {
				delete(d[machine], c.Name)
				continue
			}
			var m agentv1.Check
			if err := c.Resource.Body.UnmarshalTo(&m); err != nil {
				t.Fatal(err)
			}
			check, err := wire.CheckOf(c.Name, &m)
			if err != nil {
				t.Fatal(err)
			}
			d[machine][c.Name] = check
		}
	}
	return changes
}

// TestHealthIsWhatAnybodyCanCount does things at random and compares with what follows from
// where they led: who checks what, and with which verdict.
func TestHealthIsWhatAnybodyCanCount(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		h, held := newHealth(), told{}
		users := map[checkUser]map[netip.AddrPort]wantedCheck{}
		var machines []string
		results, ejected := map[string]map[string]model.Health{}, map[string][]model.Ejection{}
		before := map[string]model.Health{}
		for step := range 300 {
			switch r.IntN(5) {
			case 0: // a user's backends change
				u := checkUser{group: model.GroupID(fmt.Sprint(r.IntN(4)))}
				if r.IntN(2) == 0 {
					u = checkUser{frontend: model.FrontendKey{Port: uint16(r.IntN(4))}}
				}
				how := model.HealthCheck{Interval: time.Duration(1+r.IntN(2)) * time.Second, Port: uint16(r.IntN(2) * 9)}
				var backends []netip.AddrPort
				for range r.IntN(5) {
					backends = append(backends, netip.AddrPortFrom(serverAt(r.IntN(4)).Addr(), uint16(80+r.IntN(2))))
				}
				users[u] = tcpChecks(fmt.Sprint("n", r.IntN(2)), how, backends...)
				h.use(u, users[u])
			case 1: // machines come and go
				machines = nil
				for i := range 6 {
					if r.IntN(3) > 0 {
						machines = append(machines, fmt.Sprint("m", i))
					}
				}
				h.members(machines)
				for m := range results {
					if !slices.Contains(machines, m) {
						delete(results, m)
						delete(ejected, m)
						h.report(m, nil, nil)
					}
				}
			default: // a machine reports
				if len(machines) == 0 {
					continue
				}
				m := machines[r.IntN(len(machines))]
				results[m], ejected[m] = map[string]model.Health{}, nil
				var list []model.CheckResult
				for _, checks := range users {
					for b, c := range checks {
						switch r.IntN(4) {
						case 0:
							results[m][c.ID] = model.Unhealthy
						case 1, 2:
							results[m][c.ID] = model.Healthy
						}
						if r.IntN(8) == 0 {
							ejected[m] = append(ejected[m], model.Ejection{Group: model.GroupID(fmt.Sprintf("n%d/web/80", r.IntN(2))), Backend: b})
						}
					}
				}
				for id, v := range results[m] {
					list = append(list, model.CheckResult{ID: id, Health: v})
				}
				h.report(m, list, ejected[m])
			}
			h.judge()
			held.take(t, h)
			// What must be.
			want, backends, owners := map[string]bool{}, map[string]map[netip.AddrPort]bool{}, map[string]map[string]bool{}
			for _, checks := range users {
				for b, c := range checks {
					want[c.ID] = true
					if owners[c.ID] == nil {
						backends[c.ID], owners[c.ID] = map[netip.AddrPort]bool{}, map[string]bool{}
					}
					backends[c.ID][b], owners[c.ID][c.owner] = true, true
				}
			}
			maps.DeleteFunc(before, func(id string, _ model.Health) bool { return !want[id] })
			for id := range want {
				checkers := elect.Checkers(id, machines, elect.Count)
				votes := map[string]model.Health{}
				for _, m := range checkers {
					votes[m] = results[m][id]
				}
				voted := slices.ContainsFunc(checkers, func(m string) bool { return votes[m] == model.Healthy || votes[m] == model.Unhealthy })
				for m, list := range ejected {
					if voted && len(owners[id]) == 1 && slices.ContainsFunc(list, func(e model.Ejection) bool { return backends[id][e.Backend] && owners[id][e.Group.Namespace()] }) {
						votes[m] = model.Unhealthy
					}
				}
				before[id] = elect.Of(votes, before[id])
				for m, checks := range held {
					if _, has := checks[id]; has != slices.Contains(checkers, m) && slices.Contains(machines, m) {
						t.Fatalf("seed %d, step %d: %s checks %s: %v, checkers are %v", seed, step, m, id, has, checkers)
					}
				}
			}
			for u, checks := range users {
				for b, c := range checks {
					if got, id := h.of(u, b); got != before[c.ID] || id != c.ID {
						t.Fatalf("seed %d, step %d: %s is %s, want %s", seed, step, id, got, before[c.ID])
					}
				}
			}
			for m, checks := range held {
				for id := range checks {
					if !want[id] {
						t.Fatalf("seed %d, step %d: %s still checks %s", seed, step, m, id)
					}
				}
			}
		}
	}
}

// TestChecksMoveLittle holds that a machine that goes moves its checks and no others, and
// that each endpoint is checked by three machines of five.
func TestChecksMoveLittle(t *testing.T) {
	const endpoints = 1000
	h, held := newHealth(), told{}
	machines := []string{"a", "b", "c", "d", "e"}
	h.members(machines)
	var backends []netip.AddrPort
	for i := range endpoints {
		backends = append(backends, serverAt(i))
	}
	h.use(checkUser{group: "g"}, tcpChecks("g", model.HealthCheck{}, backends...))
	h.use(checkUser{frontend: model.FrontendKey{Port: 80}}, tcpChecks("g", model.HealthCheck{}, backends...))
	if n := held.take(t, h); n != endpoints*3 {
		t.Errorf("%d checks were sent, want 3 for each endpoint", n)
	}
	mine := len(held["c"])
	h.members(slices.DeleteFunc(machines, func(m string) bool { return m == "c" }))
	if n := held.take(t, h); n != 2*mine {
		t.Errorf("%d changes were sent, want that %d checks move", n, mine)
	}
	for m, checks := range held {
		if m != "c" && (len(checks) < endpoints*3/4*8/10 || len(checks) > endpoints*3/4*12/10) {
			t.Errorf("%s checks %d of %d", m, len(checks), endpoints)
		}
	}
}

// TestWhoHasJustBegunAccusesNobody: the first failures that a machine sees, which may be its own,
// take nothing out.
func TestWhoHasJustBegunAccusesNobody(t *testing.T) {
	h, b := newHealth(), serverAt(1)
	checks := tcpChecks("team", model.HealthCheck{}, b)
	u, id := checkUser{group: "team/web/80"}, checks[b].ID
	h.members([]string{"m"})
	h.use(u, checks)
	for i, step := range []struct {
		found model.Health
		first bool
		want  model.Health
	}{
		{model.Unhealthy, true, model.HealthUnknown},
		{model.Healthy, false, model.Healthy},
		{model.Unhealthy, true, model.Healthy},
		{model.Unhealthy, false, model.Unhealthy},
	} {
		h.report("m", []model.CheckResult{{ID: id, Health: step.found, First: step.first}}, nil)
		h.judge()
		if got, _ := h.of(u, b); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

// TestEjectionsCountAtHome holds that proxies that see requests to an address fail have it asked
// at once, and take it out only for users of the namespace that the requests were for, by a check
// that was asked for and that somebody has answered.
func TestEjectionsCountAtHome(t *testing.T) {
	machines := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	b := serverAt(1)
	frontend := checkUser{frontend: model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Port: 80, Transport: model.TCP}}
	group := checkUser{group: "team/web/80"}
	for _, x := range []struct {
		name   string
		user   checkUser
		owner  string
		beside string // another user's namespace
		how    model.HealthCheck
		found  model.Health
		want   model.Health
	}{
		{"a presumed check", frontend, "team", "", *model.PresumedCheck(), model.Healthy, model.Healthy},
		{"a presumed check that nobody has answered", frontend, "team", "", *model.PresumedCheck(), model.HealthUnknown, model.HealthUnknown},
		{"a frontend of another namespace", frontend, "other", "", model.HealthCheck{}, model.Healthy, model.Healthy},
		{"a frontend of Services of several namespaces", frontend, "", "", model.HealthCheck{}, model.Healthy, model.Healthy},
		{"a frontend beside one of another namespace", frontend, "team", "other", model.HealthCheck{}, model.Healthy, model.Healthy},
		{"a frontend", frontend, "team", "", model.HealthCheck{}, model.Healthy, model.Unhealthy},
		{"a group's check that nobody has answered", group, "team", "", model.HealthCheck{}, model.HealthUnknown, model.HealthUnknown},
		{"a group of another namespace", checkUser{group: "other/web/80"}, "other", "", model.HealthCheck{}, model.Healthy, model.Healthy},
		{"a group", group, "team", "team", model.HealthCheck{}, model.Healthy, model.Unhealthy},
	} {
		h, held := newHealth(), told{}
		h.members(machines)
		checks := tcpChecks(x.owner, x.how, b)
		h.use(x.user, checks)
		if x.beside != "" {
			h.use(checkUser{group: model.GroupID(x.beside + "/beside/80")}, tcpChecks(x.beside, x.how, b))
		}
		held.take(t, h)
		for _, m := range machines {
			h.report(m, []model.CheckResult{{ID: checks[b].ID, Health: x.found}}, []model.Ejection{{Group: "team/web/80", Backend: b}})
		}
		h.judge()
		if got, _ := h.of(x.user, b); got != x.want {
			t.Errorf("%s: proxies of all machines hold it for failed, and it is %s, want %s", x.name, got, x.want)
		}
		if n := held.take(t, h); n != 3 {
			t.Errorf("%s: %d machines were told to ask at once, want the three that check", x.name, n)
		}
	}
}

// TestPassiveSignals holds that a proxy that takes a backend out is one vote, and has those
// that check it ask at once.
func TestPassiveSignals(t *testing.T) {
	h, held := newHealth(), told{}
	b := serverAt(1)
	u := checkUser{group: "g"}
	h.members([]string{"a", "b", "c", "d", "e"})
	checks := tcpChecks("g", model.HealthCheck{}, b)
	h.use(u, checks)
	held.take(t, h)
	id := checks[b].ID
	var others []string
	for _, m := range h.machines {
		if _, checks := held[m][id]; checks {
			h.report(m, []model.CheckResult{{ID: id, Health: model.Healthy}}, nil)
		} else {
			others = append(others, m)
		}
	}
	h.judge()
	out := []model.Ejection{{Group: "g/web/80", Backend: b}}
	h.report(others[0], nil, append(out, model.Ejection{Group: "g/web/80", Backend: serverAt(2)}))
	if n := held.take(t, h); n != 3 {
		t.Errorf("%d machines were told to ask at once, want the three that check", n)
	}
	for m := range held {
		if c, has := held[m][id]; has && c.Prompt != 1 {
			t.Errorf("%s: prompt %d", m, c.Prompt)
		}
	}
	h.report(others[0], nil, out)
	if n := held.take(t, h); n != 0 {
		t.Error("the same again asks again")
	}
	if len(h.judge()) != 0 {
		t.Error("one proxy took it out for all")
	}
	// With one checker that agrees, two proxies are the majority of five.
	h.report(others[1], nil, out)
	h.report(h.checks[id].checkers[0], []model.CheckResult{{ID: id, Health: model.Unhealthy}}, nil)
	if !h.judge()[u] || first(h.of(u, b)) != model.Unhealthy {
		t.Error("three against two, and it is in")
	}
	h.members(slices.DeleteFunc(slices.Clone(h.machines), func(m string) bool { return slices.Contains(others, m) }))
	if !h.judge()[u] || first(h.of(u, b)) != model.Healthy {
		t.Error("machines that are lost vote on")
	}
}

func first[A, B any](a A, _ B) A { return a }

// checkedApp is an application of two backends whose health is checked.
func checkedApp() []client.Object {
	return []client.Object{service("app"), slice("app", "10.1.0.1", "10.1.0.2"), &contourv1beta1.IngressRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"},
		Spec: contourv1beta1.IngressRouteSpec{
			VirtualHost: &contourv1beta1.VirtualHost{Fqdn: "app.example"},
			Routes: []contourv1beta1.Route{{Match: "/", Services: []contourv1beta1.Service{{
				Name: "app", Port: 80, HealthCheck: &contourv1beta1.HealthCheck{Path: "/status"},
			}}}},
		},
	}}
}

// holdsHealth checks what the agent was told of a backend's health.
func (a *fakeAgent) holdsHealth(backend netip.Addr, want corev3.HealthStatus) func() error {
	return func() error {
		for name := range a.held[typeEndpoint] {
			m := &endpointv3.ClusterLoadAssignment{}
			if err := a.get(typeEndpoint, name, m); err != nil {
				return err
			}
			for _, l := range m.GetEndpoints() {
				for _, e := range l.GetLbEndpoints() {
					switch {
					case e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress() != backend.String():
					case e.GetHealthStatus() != want:
						return fmt.Errorf("it is %s, want %s", e.GetHealthStatus(), want)
					default:
						return nil
					}
				}
			}
		}
		return errors.New("it has no load assignment")
	}
}

// TestHealthGoesToMachinesAndBack holds the whole way in a plane: three machines of four are
// asked to check a backend, two of them take it out for all four, and when one is lost the
// fourth takes its place. It logs how long a verdict takes from the report to the machines.
func TestHealthGoesToMachinesAndBack(t *testing.T) {
	r := newRig(t)
	r.create(checkedApp()...)
	p := r.plane("one").awaitReady()
	fleet := map[string]*fakeAgent{}
	leave := map[string]func(){}
	for _, name := range []string{"a", "b", "c", "d"} {
		fleet[name] = r.joined(p, name)
		leave[name] = fleet[name].connect(p.AgentAddress().String())
	}
	bad := netip.MustParseAddrPort("10.1.0.1:8080")
	// held is the check of a backend at a machine.
	held := func(a *fakeAgent, backend netip.AddrPort) string {
		for id := range a.held[agentv1.CheckType] {
			m := &agentv1.Check{}
			if err := a.get(agentv1.CheckType, id, m); err != nil {
				t.Error(err)
			} else if c, err := wire.CheckOf(id, m); err == nil && c.Target == backend && c.Path == "/status" {
				return id
			}
		}
		return ""
	}
	checkers := func() (names []string) {
		for _, name := range slices.Sorted(maps.Keys(fleet)) {
			a := fleet[name]
			a.mu.Lock()
			if held(a, bad) != "" {
				names = append(names, name)
			}
			a.mu.Unlock()
		}
		return names
	}
	// A machine that is slow is lost for a moment, and checks nothing then: it goes on to say
	// of the bad backend what it was told to.
	var about string
	says := func(name string, h model.Health) {
		fleet[name].with(func() {
			fleet[name].results = []model.CheckResult{{ID: about, Health: h}}
			for id := range fleet[name].held[agentv1.CheckType] {
				if id != about {
					fleet[name].results = append(fleet[name].results, model.CheckResult{ID: id, Health: model.Healthy})
				}
			}
		})
	}
	var names []string
	eventually(t, "three machines of the four check", func() error {
		now := checkers()
		if len(now) == 0 {
			return errors.New("nobody does")
		}
		fleet[now[0]].with(func() { about = held(fleet[now[0]], bad) })
		names = elect.Checkers(about, slices.Sorted(maps.Keys(fleet)), elect.Count)
		slices.Sort(names)
		if !slices.Equal(now, names) {
			return fmt.Errorf("%v do, want %v", now, names)
		}
		return nil
	})
	all := func(what string, want corev3.HealthStatus) {
		t.Helper()
		for _, name := range slices.Sorted(maps.Keys(fleet)) {
			fleet[name].await(what, fleet[name].holdsHealth(bad.Addr(), want))
		}
	}
	all("does not know", corev3.HealthStatus_UNKNOWN)
	for _, name := range names {
		says(name, model.Healthy)
	}
	all("hears that it is healthy", corev3.HealthStatus_HEALTHY)
	says(names[0], model.Unhealthy)
	sum, most := time.Duration(0), time.Duration(0)
	const rounds = 20
	for range rounds {
		began := time.Now()
		says(names[1], model.Unhealthy)
		for _, a := range fleet { // more often than all looks
			heard := func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				return a.holdsHealth(bad.Addr(), corev3.HealthStatus_UNHEALTHY)() == nil
			}
			for !heard() && time.Since(began) < patience {
				time.Sleep(100 * time.Microsecond)
			}
		}
		took := time.Since(began)
		sum, most = sum+took, max(most, took)
		all("hears that it is unhealthy", corev3.HealthStatus_UNHEALTHY)
		says(names[1], model.Healthy)
		all("hears that it is back", corev3.HealthStatus_HEALTHY)
	}
	t.Logf("from the report to the load assignment at four machines: %s on average, %s at most", sum/rounds, most)

	lost := names[2]
	leave[lost]()
	delete(fleet, lost)
	eventually(t, "the fourth takes the lost one's place", func() error {
		if now := checkers(); len(now) != 3 {
			return fmt.Errorf("%v check", now)
		}
		return nil
	})
}

// TestHealthOfFrontends holds that a frontend's backends follow the verdict, for the machine
// that balances it and by the checks of any.
func TestHealthOfFrontends(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	edge, other := r.joined(p, "edge-1"), r.joined(p, "other-1")
	poolOf(r, "edge-1")
	r.create(balanced("app"), slice("app", "10.1.0.1", "10.1.0.2"), &v1alpha1.LoadBalancerPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"},
		Spec: v1alpha1.LoadBalancerPolicySpec{
			TargetRefs: []gatewayv1.LocalPolicyTargetReferenceWithSectionName{{
				LocalPolicyTargetReference: gatewayv1.LocalPolicyTargetReference{Kind: "Service", Name: "app"},
			}},
			HealthCheck: &v1alpha1.HealthCheck{Type: v1alpha1.CheckTCP},
		},
	})
	for _, a := range []*fakeAgent{edge, other} {
		a.connect(p.AgentAddress().String())
		a.await("is to check two backends", func() error {
			if n := len(a.held[agentv1.CheckType]); n != 2 {
				return fmt.Errorf("it checks %d", n)
			}
			return nil
		})
	}
	edge.awaitBackends(web4, "10.1.0.1=100/100 ready, 10.1.0.2=100/100 ready")
	says := func(a *fakeAgent, ill string) {
		a.with(func() {
			a.results = nil
			for id := range a.held[agentv1.CheckType] {
				h := model.Healthy
				if ill != "" && strings.HasPrefix(id, ill+":") {
					h = model.Unhealthy
				}
				a.results = append(a.results, model.CheckResult{ID: id, Health: h, Message: "refused"})
			}
		})
	}
	says(edge, "")
	says(other, "10.1.0.2")
	says(edge, "10.1.0.2")
	edge.awaitBackends(web4, "10.1.0.1=100/100 ready, 10.1.0.2=0/100 draining")
	says(edge, "")
	edge.awaitBackends(web4, "10.1.0.1=100/100 ready, 10.1.0.2=100/100 ready")
}

// What a machine reports of backends moves others once in a while, however often it does, and results that
// nobody asks for are not kept.
func TestReportsThatNobodyAsked(t *testing.T) {
	h, now := newHealth(), time.Unix(1e9, 0)
	h.now = func() time.Time { return now }
	h.members([]string{"a", "b", "c"})
	b := serverAt(1)
	check := model.NewCheck(b, model.HealthCheck{Interval: 10 * time.Second})
	h.use(checkUser{group: "shop/app/80"}, map[netip.AddrPort]wantedCheck{b: {Check: check, owner: "shop"}})
	h.judge()
	sent := func() (n int) {
		u := southbound.Update{Machine: map[string][]delta.Change{}}
		if err := h.flush(&u); err != nil {
			t.Fatal(err)
		}
		for _, changes := range u.Machine {
			n += len(changes)
		}
		return n
	}
	sent()
	eject := func(group model.GroupID) int {
		h.report("hostile", nil, []model.Ejection{{Group: group, Backend: b}})
		n := sent()
		h.report("hostile", nil, nil)
		return n + sent()
	}
	if n := eject("shop/app/80"); n != 3 {
		t.Errorf("an ejection has %d checks sent, want 3", n)
	}
	for i := range 100 {
		if n := eject([]model.GroupID{"shop/app/80", "invented"}[i%2]); n != 0 {
			t.Fatalf("the next one has %d checks sent again", n)
		}
	}
	now = now.Add(promptPause)
	if n := eject("shop/app/80"); n != 3 {
		t.Errorf("one later has %d checks sent, want 3", n)
	}
	// One that reports without a pause takes nothing from another that reports.
	h.report("honest", nil, []model.Ejection{{Group: "shop/app/80", Backend: b}})
	if n := sent(); n != 3 {
		t.Errorf("another machine's ejection has %d checks sent, want 3", n)
	}
	h.report("honest", nil, nil)
	now = now.Add(promptPause)
	if eject("shop/app/80"); len(h.checks[check.ID].prompted) != 1 {
		t.Errorf("prompts of %d machines are remembered, want the last one's", len(h.checks[check.ID].prompted))
	}
	var results []model.CheckResult
	for i := range 1000 {
		results = append(results, model.CheckResult{ID: fmt.Sprint(i), Health: model.Unhealthy})
	}
	h.report("hostile", append(results, model.CheckResult{ID: check.ID, Health: model.Healthy}), nil)
	if n := len(h.found["hostile"]); n != 1 {
		t.Errorf("%d results are kept, want the one of a check that is", n)
	}
}

package health

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	elect "fairlead.dev/internal/verdict"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

func serverAt(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
}

func tcpChecks(owner string, how model.HealthCheck, backends ...netip.AddrPort) map[netip.AddrPort]Wanted {
	how.Kind = model.CheckTCP
	checks := map[netip.AddrPort]Wanted{}
	for _, b := range backends {
		checks[b] = Wanted{Check: model.NewCheck(b, how), Owner: owner}
	}
	return checks
}

// told is what machines were sent, as they hold it.
type told map[string]map[string]model.Check

func (d told) receive(t *testing.T, h *Checks) (changes int) {
	t.Helper()
	sent, err := h.Flush()
	if err != nil {
		t.Fatal(err)
	}
	for machine, list := range sent {
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
		h, held := New(), told{}
		users := map[User]map[netip.AddrPort]Wanted{}
		var machines []string
		results, ejected := map[string]map[string]model.Health{}, map[string][]model.Ejection{}
		before := map[string]model.Health{}
		for step := range 300 {
			switch r.IntN(5) {
			case 0: // a user's backends change
				u := User{Group: model.GroupID(fmt.Sprint(r.IntN(4)))}
				if r.IntN(2) == 0 {
					u = User{Frontend: model.FrontendKey{Port: uint16(r.IntN(4))}}
				}
				how := model.HealthCheck{Interval: time.Duration(1+r.IntN(2)) * time.Second, Port: uint16(r.IntN(2) * 9)}
				var backends []netip.AddrPort
				for range r.IntN(5) {
					backends = append(backends, netip.AddrPortFrom(serverAt(r.IntN(4)).Addr(), uint16(80+r.IntN(2))))
				}
				users[u] = tcpChecks(fmt.Sprint("n", r.IntN(2)), how, backends...)
				h.Use(u, users[u])
			case 1: // machines come and go
				machines = nil
				for i := range 6 {
					if r.IntN(3) > 0 {
						machines = append(machines, fmt.Sprint("m", i))
					}
				}
				h.Members(machines)
				for m := range results {
					if !slices.Contains(machines, m) {
						delete(results, m)
						delete(ejected, m)
						h.Report(m, nil, nil, time.Time{})
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
				h.Report(m, list, ejected[m], time.Time{})
			}
			h.Judge()
			held.receive(t, h)
			// What must be.
			want, backends, owners := map[string]bool{}, map[string]map[netip.AddrPort]bool{}, map[string]map[string]bool{}
			for _, checks := range users {
				for b, c := range checks {
					want[c.ID] = true
					if owners[c.ID] == nil {
						backends[c.ID], owners[c.ID] = map[netip.AddrPort]bool{}, map[string]bool{}
					}
					backends[c.ID][b], owners[c.ID][c.Owner] = true, true
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
					if got, id := h.Of(u, b); got != before[c.ID] || id != c.ID {
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
	h, held := New(), told{}
	machines := []string{"a", "b", "c", "d", "e"}
	h.Members(machines)
	var backends []netip.AddrPort
	for i := range endpoints {
		backends = append(backends, serverAt(i))
	}
	h.Use(User{Group: "g"}, tcpChecks("g", model.HealthCheck{}, backends...))
	h.Use(User{Frontend: model.FrontendKey{Port: 80}}, tcpChecks("g", model.HealthCheck{}, backends...))
	if n := held.receive(t, h); n != endpoints*3 {
		t.Errorf("%d checks were sent, want 3 for each endpoint", n)
	}
	mine := len(held["c"])
	h.Members(slices.DeleteFunc(machines, func(m string) bool { return m == "c" }))
	if n := held.receive(t, h); n != 2*mine {
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
	h, b := New(), serverAt(1)
	checks := tcpChecks("team", model.HealthCheck{}, b)
	u, id := User{Group: "team/web/80"}, checks[b].ID
	h.Members([]string{"m"})
	h.Use(u, checks)
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
		h.Report("m", []model.CheckResult{{ID: id, Health: step.found, First: step.first}}, nil, time.Time{})
		h.Judge()
		if got, _ := h.Of(u, b); got != step.want {
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
	frontend := User{Frontend: model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Port: 80, Transport: model.TCP}}
	group := User{Group: "team/web/80"}
	for _, x := range []struct {
		name   string
		user   User
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
		{"a group of another namespace", User{Group: "other/web/80"}, "other", "", model.HealthCheck{}, model.Healthy, model.Healthy},
		{"a group", group, "team", "team", model.HealthCheck{}, model.Healthy, model.Unhealthy},
	} {
		h, held := New(), told{}
		h.Members(machines)
		checks := tcpChecks(x.owner, x.how, b)
		h.Use(x.user, checks)
		if x.beside != "" {
			h.Use(User{Group: model.GroupID(x.beside + "/beside/80")}, tcpChecks(x.beside, x.how, b))
		}
		held.receive(t, h)
		for _, m := range machines {
			h.Report(m, []model.CheckResult{{ID: checks[b].ID, Health: x.found}}, []model.Ejection{{Group: "team/web/80", Backend: b}}, time.Time{})
		}
		h.Judge()
		if got, _ := h.Of(x.user, b); got != x.want {
			t.Errorf("%s: proxies of all machines hold it for failed, and it is %s, want %s", x.name, got, x.want)
		}
		if n := held.receive(t, h); n != 3 {
			t.Errorf("%s: %d machines were told to ask at once, want the three that check", x.name, n)
		}
	}
}

// TestPassiveSignals holds that a proxy that takes a backend out is one vote, and has those
// that check it ask at once.
func TestPassiveSignals(t *testing.T) {
	h, held := New(), told{}
	b := serverAt(1)
	u := User{Group: "g"}
	h.Members([]string{"a", "b", "c", "d", "e"})
	checks := tcpChecks("g", model.HealthCheck{}, b)
	h.Use(u, checks)
	held.receive(t, h)
	id := checks[b].ID
	var others []string
	for _, m := range h.machines {
		if _, checks := held[m][id]; checks {
			h.Report(m, []model.CheckResult{{ID: id, Health: model.Healthy}}, nil, time.Time{})
		} else {
			others = append(others, m)
		}
	}
	h.Judge()
	out := []model.Ejection{{Group: "g/web/80", Backend: b}}
	h.Report(others[0], nil, append(out, model.Ejection{Group: "g/web/80", Backend: serverAt(2)}), time.Time{})
	if n := held.receive(t, h); n != 3 {
		t.Errorf("%d machines were told to ask at once, want the three that check", n)
	}
	for m := range held {
		if c, has := held[m][id]; has && c.Prompt != 1 {
			t.Errorf("%s: prompt %d", m, c.Prompt)
		}
	}
	h.Report(others[0], nil, out, time.Time{})
	if n := held.receive(t, h); n != 0 {
		t.Error("the same again asks again")
	}
	if len(h.Judge()) != 0 {
		t.Error("one proxy took it out for all")
	}
	// With one checker that agrees, two proxies are the majority of five.
	h.Report(others[1], nil, out, time.Time{})
	h.Report(h.checks[id].checkers[0], []model.CheckResult{{ID: id, Health: model.Unhealthy}}, nil, time.Time{})
	if !h.Judge()[u] || first(h.Of(u, b)) != model.Unhealthy {
		t.Error("three against two, and it is in")
	}
	h.Members(slices.DeleteFunc(slices.Clone(h.machines), func(m string) bool { return slices.Contains(others, m) }))
	if !h.Judge()[u] || first(h.Of(u, b)) != model.Healthy {
		t.Error("machines that are lost vote on")
	}
}

// web is a frontend.
var web = model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.80"), Port: 80, Transport: model.TCP}

func first[A, B any](a A, _ B) A { return a }

// What a machine reports of backends moves others once in a while, however often it does, and results that
// nobody asks for are not kept.
func TestReportsThatNobodyAsked(t *testing.T) {
	h, now := New(), time.Unix(1e9, 0)
	h.Members([]string{"a", "b", "c"})
	b := serverAt(1)
	check := model.NewCheck(b, model.HealthCheck{Interval: 10 * time.Second})
	h.Use(User{Group: "shop/app/80"}, map[netip.AddrPort]Wanted{b: {Check: check, Owner: "shop"}})
	h.Judge()
	sent := func() (n int) {
		told, err := h.Flush()
		if err != nil {
			t.Fatal(err)
		}
		for _, changes := range told {
			n += len(changes)
		}
		return n
	}
	sent()
	eject := func(group model.GroupID) int {
		h.Report("hostile", nil, []model.Ejection{{Group: group, Backend: b}}, now)
		n := sent()
		h.Report("hostile", nil, nil, now)
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
	h.Report("honest", nil, []model.Ejection{{Group: "shop/app/80", Backend: b}}, now)
	if n := sent(); n != 3 {
		t.Errorf("another machine's ejection has %d checks sent, want 3", n)
	}
	h.Report("honest", nil, nil, now)
	now = now.Add(promptPause)
	if eject("shop/app/80"); len(h.checks[check.ID].prompted) != 1 {
		t.Errorf("prompts of %d machines are remembered, want the last one's", len(h.checks[check.ID].prompted))
	}
	var results []model.CheckResult
	for i := range 1000 {
		results = append(results, model.CheckResult{ID: fmt.Sprint(i), Health: model.Unhealthy})
	}
	h.Report("hostile", append(results, model.CheckResult{ID: check.ID, Health: model.Healthy}), nil, now)
	if n := len(h.found["hostile"]); n != 1 {
		t.Errorf("%d results are kept, want the one of a check that is", n)
	}
}

// A check that fails for another reason than before is news to those who show the reason. What it
// quotes is not: an answer may be another one each time.
func TestAnotherCauseIsNews(t *testing.T) {
	at := netip.MustParseAddrPort("10.1.0.1:8080")
	h := New()
	h.Members([]string{"edge-1"})
	h.Use(User{Frontend: web}, map[netip.AddrPort]Wanted{at: {Check: model.Check{ID: "c"}}})
	h.Use(User{Group: "default/app/80"}, map[netip.AddrPort]Wanted{at: {Check: model.Check{ID: "c"}}})
	for _, c := range []struct {
		health  model.Health
		message string
		news    bool
	}{
		{model.Unhealthy, "connection refused", false}, // it is unhealthy now, which is counted
		{model.Unhealthy, "connection refused", false},
		{model.Unhealthy, "answered 404, want 200", true},
		{model.Unhealthy, `answered "a", want "z"`, true},
		{model.Unhealthy, `answered "b", want "z"`, false},
		{model.Healthy, "", false},
	} {
		// Another machine is not asked, whatever it says.
		if heard := h.Report("edge-9", []model.CheckResult{{ID: "c", Health: model.Unhealthy, Message: c.message + "!"}}, nil, time.Time{}); len(heard) > 0 {
			t.Errorf("%s: a machine that is not to check is heard", c.message)
		}
		reworded := h.Report("edge-1", []model.CheckResult{{ID: "c", Health: c.health, Message: c.message}}, nil, time.Time{})
		if reworded[web] != c.news || len(reworded) > 1 {
			t.Errorf("%s: it is news to %v", c.message, reworded)
		}
	}
}

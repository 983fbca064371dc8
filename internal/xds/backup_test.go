package xds_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// assigned is "0: 10.0.0.1 x3 HEALTHY, 10.0.0.2 HEALTHY; 1 in z: 10.0.0.9 HEALTHY" of a load assignment.
func assigned(g model.BackendGroup, s model.BackendSet, health xds.Health) string {
	a := xds.LoadAssignment(g, s, health)
	var localities []string
	for _, l := range a.GetEndpoints() {
		name := fmt.Sprint(l.GetPriority())
		if zone := l.GetLocality().GetZone(); zone != "" {
			name += " in " + zone
		}
		var words []string
		for _, e := range l.GetLbEndpoints() {
			word := e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()
			if w := e.GetLoadBalancingWeight(); w != nil {
				word += fmt.Sprintf(" x%d", w.GetValue())
			}
			words = append(words, word+" "+e.GetHealthStatus().String())
		}
		localities = append(localities, name+": "+strings.Join(words, ", "))
	}
	if f := a.GetPolicy().GetOverprovisioningFactor(); f != nil {
		localities = append(localities, fmt.Sprintf("factor %d", f.GetValue()))
	}
	return strings.Join(localities, "; ")
}

func TestAssignmentsOfWeightsAndBackups(t *testing.T) {
	b := func(i byte, change func(*model.Backend)) model.Backend {
		b := model.Backend{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, i}), 80)}
		if change != nil {
			change(&b)
		}
		return b
	}
	weighs := func(w uint32) func(*model.Backend) { return func(b *model.Backend) { b.Weight = w } }
	backup := func(b *model.Backend) { b.Backup = true }
	drains := func(b *model.Backend) { b.State = model.BackendDraining }
	in := func(zone string, backup bool) func(*model.Backend) {
		return func(b *model.Backend) { b.Zone, b.Backup = zone, backup }
	}
	ill := func(addresses ...byte) xds.Health {
		return func(b netip.AddrPort) (model.Health, string) {
			if strings.Contains(string(addresses), string(b.Addr().AsSlice()[3:])) {
				return model.Unhealthy, "c"
			}
			return model.Healthy, "c"
		}
	}
	tcp := model.BackendGroup{ID: "g", Protocol: model.BackendTCP}
	const factor = "; factor 100000000"
	for name, c := range map[string]struct {
		group    model.BackendGroup
		backends []model.Backend
		health   xds.Health
		want     string
	}{
		"none":               {backends: []model.Backend{b(1, nil), b(2, nil)}, want: "0: 10.0.0.1 HEALTHY, 10.0.0.2 HEALTHY"},
		"weights":            {backends: []model.Backend{b(1, weighs(3)), b(2, weighs(1))}, want: "0: 10.0.0.1 x3 HEALTHY, 10.0.0.2 HEALTHY"},
		"backups":            {backends: []model.Backend{b(1, backup), b(2, nil)}, want: "0: 10.0.0.2 HEALTHY; 1: 10.0.0.1 HEALTHY" + factor},
		"backups alone":      {backends: []model.Backend{b(1, backup), b(2, backup)}, want: "0: 10.0.0.1 HEALTHY, 10.0.0.2 HEALTHY"},
		"zones":              {backends: []model.Backend{b(1, in("y", false)), b(2, in("x", true)), b(3, in("x", false)), b(4, in("y", true))}, want: "0 in x: 10.0.0.3 HEALTHY; 0 in y: 10.0.0.1 HEALTHY; 1 in x: 10.0.0.2 HEALTHY; 1 in y: 10.0.0.4 HEALTHY" + factor},
		"one zone":           {backends: []model.Backend{b(1, in("x", true)), b(2, in("x", false))}, want: "0 in x: 10.0.0.2 HEALTHY; 1 in x: 10.0.0.1 HEALTHY" + factor},
		"others drain":       {backends: []model.Backend{b(1, drains), b(2, backup)}, want: "0: 10.0.0.1 DRAINING; 1: 10.0.0.2 HEALTHY" + factor},
		"all drain":          {backends: []model.Backend{b(1, drains), b(2, func(b *model.Backend) { b.Backup, b.State = true, model.BackendDraining })}, want: "0: 10.0.0.1 HEALTHY; 1: 10.0.0.2 HEALTHY" + factor},
		"presumed, others":   {group: tcp, backends: []model.Backend{b(1, nil), b(2, backup)}, health: ill(1), want: "0: 10.0.0.1 UNHEALTHY; 1: 10.0.0.2 HEALTHY" + factor},
		"presumed, all fail": {group: tcp, backends: []model.Backend{b(1, nil), b(2, backup)}, health: ill(1, 2), want: "0: 10.0.0.1 HEALTHY; 1: 10.0.0.2 HEALTHY" + factor},
		// A ring has as many entries as there are units of the smallest weight.
		"weights of a ring": {
			group:    model.BackendGroup{ID: "g", Balance: model.BalanceCookie},
			backends: []model.Backend{b(1, weighs(10_000)), b(2, weighs(40_000)), b(3, weighs(50_000)), b(4, nil)},
			want:     "0: 10.0.0.1 x6553 HEALTHY, 10.0.0.2 x26214 HEALTHY, 10.0.0.3 x32767 HEALTHY, 10.0.0.4 HEALTHY",
		},
		"more than Envoy takes": {
			backends: []model.Backend{b(1, weighs(3_000_000_000)), b(2, weighs(1_000_000_000)), b(3, nil)}, want: "0: 10.0.0.1 x1610612735 HEALTHY, 10.0.0.2 x536870911 HEALTHY, 10.0.0.3 HEALTHY",
		},
		"small weights of a ring": {
			group: model.BackendGroup{ID: "g", Balance: model.BalanceCookie}, backends: []model.Backend{b(1, weighs(3)), b(2, nil)}, want: "0: 10.0.0.1 x3 HEALTHY, 10.0.0.2 HEALTHY",
		},
	} {
		if got := assigned(c.group, model.BackendSet{Backends: c.backends}, c.health); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// named are backends that answer with their names, and count requests by them.
type named struct {
	*world
	group model.BackendGroup
	at    map[string]netip.AddrPort
	port  uint16
}

// shares asks n times, over connections of their own, and counts who answers; "503" is nobody.
func (n *named) shares(requests int) map[string]int {
	counts := map[string]int{}
	for range requests {
		a := n.get(n.port, "a.test", "/")
		name := a.headers.Get("Backend")
		if a.status != http.StatusOK {
			name = fmt.Sprint(a.status)
		}
		counts[name]++
	}
	return counts
}

// assign sets the backends and their health: "a", "a:ill", "a*3" of weight 3, "+a" a backup.
func (n *named) assign(words ...string) {
	n.t.Helper()
	s := model.BackendSet{ID: n.group.Set}
	sick := map[netip.AddrPort]bool{}
	for _, word := range words {
		var b model.Backend
		word, b.Backup = strings.CutPrefix(word, "+")
		word, ill := strings.CutSuffix(word, ":ill")
		word, drains := strings.CutSuffix(word, ":drains")
		if drains {
			b.State = model.BackendDraining
		}
		name, weight, _ := strings.Cut(word, "*")
		if weight != "" {
			if _, err := fmt.Sscan(weight, &b.Weight); err != nil {
				n.t.Fatal(err)
			}
		}
		b.Address = n.at[name]
		sick[b.Address] = ill
		s.Backends = append(s.Backends, b)
	}
	n.set(xds.LoadAssignment(n.group, s, func(b netip.AddrPort) (model.Health, string) {
		if sick[b] {
			return model.Unhealthy, ""
		}
		return model.Healthy, ""
	}))
	must(n.t, n.ads.Acked(n.ctx, edsURL, xds.EndpointsName(n.group)))
}

func newNamed(t *testing.T, balance model.Balance, names ...string) *named {
	t.Helper()
	n := &named{world: newWorld(t), group: model.BackendGroup{ID: "ns/a/1", Set: "ns/a/1", Balance: balance}, at: map[string]netip.AddrPort{}}
	for _, name := range names {
		n.at[name] = n.backend(name)
	}
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	n.port = l.Port
	n.set(xds.Cluster(n.group))
	n.assign(names...)
	n.listen(l, xds.Options{}, host(l.ID, "a.test", forward("r", "/", "ns/a/1", 1)))
	return n
}

// TestBackendsGetRequestsByWeight holds what Envoy makes of weights 1 and 3. Its threads hear of them a moment
// after it has acknowledged them.
func TestBackendsGetRequestsByWeight(t *testing.T) {
	for balance, within := range map[model.Balance]int{model.BalanceRoundRobin: 8, model.BalanceLeastRequest: 8, model.BalanceCookie: 80} {
		t.Run("by "+string(balance), func(t *testing.T) {
			n := newNamed(t, balance, "a", "b")
			const requests = 400
			for lighter, backends := range map[string][]string{"a": {"a", "b*3"}, "b": {"a*3", "b"}} {
				n.assign(backends...)
				var got map[string]int
				if err := n.envoy.Until(n.ctx, "a quarter", func() bool {
					got = n.shares(requests)
					return got["a"]+got["b"] == requests && got[lighter] >= requests/4-within && got[lighter] <= requests/4+within
				}); err != nil {
					t.Errorf("%v: %v, want a quarter for %s", backends, got, lighter)
				}
			}
		})
	}
}

// TestBackupsGetRequestsWhileNoOtherIsHealthy holds that backups get no request as long as one other backend is
// left, all of them when none is, and none again when one is back.
func TestBackupsGetRequestsWhileNoOtherIsHealthy(t *testing.T) {
	n := newNamed(t, model.BalanceRoundRobin, "a", "b", "c", "d", "x", "y")
	const requests = 40
	for _, step := range []struct {
		what, backends, want string
	}{
		{"all are healthy", "a b c d +x +y", "a b c d"},
		{"one is left of four", "a:ill b:ill c:ill d +x +y", "d"},
		{"none is left", "a:ill b:ill c:ill d:ill +x +y", "x y"},
		{"backups have weights", "a:ill b:ill c:ill d:ill +x +y*3", "x y"},
		{"a backup fails, too", "a:ill b:ill c:ill d:ill +x:ill +y", "y"},
		{"all fail", "a:ill b:ill c:ill d:ill +x:ill +y:ill", "503"},
		{"one is back", "a b:ill c:ill d:ill +x +y", "a"},
		{"the others drain", "a:drains b:drains +x", "x"},
		{"all drain", "a:drains +x:drains", "a"},
		{"there is no other", "+x +y", "x y"},
		{"it becomes one", "a +x +y", "a"},
		{"it is one no more", "a x", "a x"},
	} {
		n.assign(strings.Fields(step.backends)...)
		want := strings.Fields(step.want)
		var got map[string]int
		if err := n.envoy.Until(n.ctx, step.what, func() bool {
			got = n.shares(requests)
			return slices.Equal(slices.Sorted(maps.Keys(got)), want)
		}); err != nil {
			t.Errorf("%s: %v, want answers of %s", step.what, got, step.want)
		}
	}
}

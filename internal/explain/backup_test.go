package explain

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
)

// TestSharesOfWeightsAndBackups holds that shares follow weights, and that backups have one only while no other
// backend has.
func TestSharesOfWeightsAndBackups(t *testing.T) {
	well, ill, unknown := model.Healthy, model.Unhealthy, model.HealthUnknown
	type backend struct {
		weight uint32
		backup bool
		state  model.BackendState
		health model.Health
	}
	for name, c := range map[string]struct {
		balance  model.Balance
		protocol model.BackendProtocol
		backends []backend
		want     string
	}{
		"weights":                   {backends: []backend{{weight: 3}, {}}, want: "75 25"},
		"weights of random":         {balance: model.BalanceRandom, backends: []backend{{weight: 3}, {}}, want: "50 50"},
		"backups that are idle":     {backends: []backend{{}, {backup: true}}, want: "100 0"},
		"others are not ready":      {backends: []backend{{state: model.BackendUnready}, {backup: true, weight: 3}, {backup: true}}, want: "0 75 25"},
		"others drain":              {backends: []backend{{state: model.BackendDraining}, {backup: true}}, want: "0 100"},
		"all drain":                 {backends: []backend{{state: model.BackendDraining}, {state: model.BackendDraining, backup: true}}, want: "100 0"},
		"others fail":               {backends: []backend{{health: ill}, {backup: true, health: well}}, want: "0 100"},
		"others were not asked yet": {backends: []backend{{health: unknown}, {backup: true, health: well}}, want: "100 0"},
		"a new one":                 {backends: []backend{{health: ill}, {health: unknown}, {backup: true, health: well}}, want: "0 0 100"},
		"a new one, and backups":    {backends: []backend{{health: ill}, {health: unknown}, {backup: true, health: unknown}}, want: "0 100 0"},
		"a new backup":              {backends: []backend{{health: ill}, {backup: true, health: unknown}, {backup: true, health: well}}, want: "0 0 100"},
		"all fail":                  {backends: []backend{{health: ill}, {backup: true, health: ill}}, want: "0 0"},
		"presumed, others fail":     {protocol: model.BackendTCP, backends: []backend{{health: ill}, {backup: true, health: well}}, want: "0 100"},
		"presumed, all fail":        {protocol: model.BackendTCP, backends: []backend{{health: ill}, {backup: true, health: ill}}, want: "100 0"},
		"presumed, a new one":       {protocol: model.BackendTCP, backends: []backend{{health: ill}, {health: unknown}, {backup: true, health: well}}, want: "0 100 0"},
	} {
		set := model.BackendSet{ID: "team/a/80"}
		health := map[netip.AddrPort]model.Health{}
		for i, b := range c.backends {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)}), 80)
			health[at] = b.health
			set.Backends = append(set.Backends, model.Backend{Address: at, Weight: b.weight, Backup: b.backup, State: b.state})
		}
		w := given{hosts: []model.VirtualHost{host("a.test", route(0, path(model.PathSegments, "/"), model.WeightedGroup{Group: "team/a/80", Weight: 1}))}, sets: []model.BackendSet{set}}.world()
		w.Group = func(id model.GroupID) *model.BackendGroup {
			return &model.BackendGroup{ID: id, Set: set.ID, Balance: c.balance, Protocol: c.protocol}
		}
		w.Health = func(_ model.GroupID, b netip.AddrPort) model.Health { return health[b] }
		e := Explain(ask(t, Options{URL: "http://a.test/"}), w)
		var words []string
		ready := 0
		for i, b := range e.Groups[0].Backends {
			words = append(words, fmt.Sprint(b.Percent))
			if b.Percent > 0 {
				ready++
			}
			if b.Weight != c.backends[i].weight || b.Backup != c.backends[i].backup {
				t.Errorf("%s: %+v", name, b)
			}
		}
		if got := strings.Join(words, " "); got != c.want || e.Groups[0].Ready != ready {
			t.Errorf("%s: %s, %d ready, want %s", name, got, e.Groups[0].Ready, c.want)
		}
	}
}

// TestFlowsGoToBackups holds that a flow follows the weights of backends, and that it is said when it goes to a
// backup.
func TestFlowsGoToBackups(t *testing.T) {
	b := balanced(3)
	b.Backends[1].Weight, b.Backends[1].HopWeight = 300, 300
	b.Backends[2].Weight, b.Backends[2].HopWeight, b.Backends[2].Standby, b.Backends[2].Backup, b.Backends[2].State = 0, 0, 100, true, model.BackendDraining
	counts := map[netip.AddrPort]int{}
	for port := range 400 {
		e := Flow(flowRequest(t, "tcp://192.0.2.1:80", fmt.Sprintf("198.51.100.7:%d", 40000+port)), FlowWorld{Balanced: b})
		counts[e.Backend.Address]++
		want := 25.0
		if e.Backend.Address == b.Backends[1].Address {
			want = 75
		}
		if e.Backend.Percent < want-1 || e.Backend.Percent > want+1 || len(e.Notes) != 0 {
			t.Fatalf("port %d: %+v, notes %q", port, e.Backend, e.Notes)
		}
	}
	if len(counts) != 2 || counts[b.Backends[2].Address] != 0 {
		t.Errorf("flows go to %v", counts)
	}
	for i := range b.Backends {
		x := &b.Backends[i]
		x.Weight, x.Standby, x.State = x.Standby, 0, model.BackendDraining
	}
	b.Backends[2].State = model.BackendReady
	e := Flow(flowRequest(t, "tcp://192.0.2.1:80", "198.51.100.7:40000"), FlowWorld{Balanced: b})
	const note = "it is a backup: no other backend of its Service is able to take new flows"
	if e.Backend == nil || e.Backend.Address != b.Backends[2].Address || len(e.Notes) != 1 || e.Notes[0] != note {
		t.Errorf("%+v, notes %q", e.Backend, e.Notes)
	}
}

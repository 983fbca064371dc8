package health

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
)

// TestBackupsStandIn holds when backups of a frontend get flows though the plane has not said so: while this
// machine knows every other backend to be unhealthy. What the plane sends is not changed in its place.
func TestBackupsStandIn(t *testing.T) {
	well, ill, unknown, unchecked := model.Healthy, model.Unhealthy, model.HealthUnknown, model.HealthUnchecked
	backend := func(i int, weight, standby uint32, h model.Health) model.FrontendBackend {
		b := model.FrontendBackend{
			Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80), Weight: weight, HopWeight: weight,
			Backup: standby > 0, Standby: standby, Health: h,
		}
		if weight == 0 {
			b.State = model.BackendDraining
		}
		return b
	}
	for name, c := range map[string]struct {
		plane    []model.FrontendBackend
		own      map[int]model.Health
		alone    bool
		presumed bool
		panics   uint8
		want     string // of each: weight, hop weight, weight on standby
	}{
		"the plane's word":      {plane: []model.FrontendBackend{backend(1, 100, 0, well), backend(9, 0, 300, well)}, want: "100/100/0 0/0/300"},
		"the plane knows":       {plane: []model.FrontendBackend{backend(1, 100, 0, well), backend(9, 0, 300, well)}, own: map[int]model.Health{1: ill}, want: "100/100/0 0/0/300"},
		"the plane is away":     {plane: []model.FrontendBackend{backend(1, 100, 0, well), backend(9, 0, 300, well)}, own: map[int]model.Health{1: ill}, alone: true, want: "0/100/0 300/300/0"},
		"the plane knows not":   {plane: []model.FrontendBackend{backend(1, 100, 0, unknown), backend(9, 0, 300, unknown)}, own: map[int]model.Health{1: ill}, want: "0/100/0 300/300/0"},
		"one of two is left":    {plane: []model.FrontendBackend{backend(1, 100, 0, well), backend(2, 100, 0, well), backend(9, 0, 300, well)}, own: map[int]model.Health{1: ill}, alone: true, want: "0/100/0 100/100/0 0/0/300"},
		"nobody checks another": {plane: []model.FrontendBackend{backend(1, 100, 0, well), backend(2, 100, 0, unchecked), backend(9, 0, 300, well)}, own: map[int]model.Health{1: ill}, alone: true, want: "0/100/0 100/100/0 0/0/300"},
		"an ill backup": {
			plane: []model.FrontendBackend{backend(1, 100, 0, well), backend(8, 0, 200, well), backend(9, 0, 300, well)},
			own:   map[int]model.Health{1: ill, 9: ill}, alone: true, want: "0/100/0 200/200/0 0/0/300",
		},
		"all are ill":                       {plane: []model.FrontendBackend{backend(1, 100, 0, well), backend(9, 0, 300, well)}, own: map[int]model.Health{1: ill, 9: ill}, alone: true, want: "0/100/0 0/0/300"},
		"all are ill, and nobody asked":     {plane: []model.FrontendBackend{backend(1, 100, 0, well), backend(9, 0, 300, well)}, own: map[int]model.Health{1: ill, 9: ill}, alone: true, presumed: true, want: "100/100/0 0/0/300"},
		"a backup before panic":             {plane: []model.FrontendBackend{backend(1, 100, 0, well), backend(9, 0, 300, well)}, own: map[int]model.Health{1: ill}, alone: true, panics: 100, want: "0/100/0 300/300/0"},
		"one that the plane had out":        {plane: []model.FrontendBackend{backend(1, 0, 0, ill), backend(9, 0, 300, ill)}, own: map[int]model.Health{1: well, 9: well}, alone: true, want: "0/0/0 300/300/0"},
		"one that has flows, and is no use": {plane: []model.FrontendBackend{backend(1, 0, 0, ill), {Address: backend(9, 0, 0, "").Address, Weight: 300, HopWeight: 300, Backup: true, Health: well}}, own: map[int]model.Health{9: ill}, alone: true, want: "0/0/0 0/300/0"},
	} {
		t.Run(name, func(t *testing.T) {
			frontend := &model.Frontend{
				FrontendKey: model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.TCP, Port: 80},
				Check:       &model.HealthCheck{Kind: model.CheckTCP, Presumed: c.presumed}, Panic: c.panics,
			}
			f := &finds{results: map[string]model.Health{}, alone: c.alone}
			for i, h := range c.own {
				f.results[model.NewCheck(backend(i, 0, 0, "").Address, *frontend.Check).ID] = h
			}
			sent := slices.Clone(c.plane)
			r := NewRows(f.own)
			r.SetFrontend(frontend.FrontendKey, frontend)
			got := r.SetBackends(frontend.FrontendKey, c.plane)
			if !slices.Equal(c.plane, sent) {
				t.Error("what the plane sent was changed in its place")
			}
			var words []string
			for _, b := range got {
				if (b.State == model.BackendReady) != (b.Weight > 0) {
					t.Errorf("%s has weight %d and is %s", b.Address, b.Weight, b.State)
				}
				words = append(words, fmt.Sprintf("%d/%d/%d", b.Weight, b.HopWeight, b.Standby))
			}
			if got := strings.Join(words, " "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if len(r.Again()) != 0 {
				t.Error("nothing changed, and it is another")
			}
		})
	}
}

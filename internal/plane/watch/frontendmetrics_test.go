package watch

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
)

// Frontends of others are not told to a namespace, and the series of many are bounded.
func TestFrontendMetrics(t *testing.T) {
	frontend := func(port uint16) model.FrontendFigures {
		return model.FrontendFigures{
			FrontendKey: model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.TCP, Port: port}, Packets: 5, Bytes: 600, NewFlows: 2,
			Backends: []model.BackendFigures{{Flows: 1}, {Flows: 2}},
		}
	}
	series := func(c *frontendCollector) map[string]float64 {
		r := prometheus.NewRegistry()
		if err := r.Register(c); err != nil {
			t.Fatal(err)
		}
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				values[fmt.Sprint(f.GetName(), " ", m.GetLabel()[0].GetValue(), " ", m.GetLabel()[1].GetValue())] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return values
	}
	figures := map[string]southbound.Figures{"edge-1": {Frontends: []model.FrontendFigures{frontend(80), frontend(81)}, Drops: map[string]uint64{"no-backend": 3}}}
	all := series(&frontendCollector{figures: figures})
	if len(all) != 9 || all["fairlead_lb_flows tcp://192.0.2.1:80 edge-1"] != 3 || all["fairlead_lb_dropped_packets_total edge-1 no-backend"]+all["fairlead_lb_dropped_packets_total no-backend edge-1"] != 3 {
		t.Errorf("all are %v", all)
	}
	own := series(&frontendCollector{figures: figures, wanted: map[model.FrontendKey]bool{frontend(81).FrontendKey: true}})
	if len(own) != 4 || own["fairlead_lb_new_flows_total tcp://192.0.2.1:81 edge-1"] != 2 || own["fairlead_lb_bytes_total tcp://192.0.2.1:81 edge-1"] != 600 {
		t.Errorf("a namespace has %v", own)
	}
	if none := series(new(Viewers).frontendsOf(t.Context(), "shop", nil)); len(none) != 0 {
		t.Errorf("without frontends there are %v", none)
	}
	var many []model.FrontendFigures
	for i := range mostFrontendNames + 10 {
		many = append(many, frontend(uint16(i+1)))
	}
	bounded := series(&frontendCollector{figures: map[string]southbound.Figures{"edge-1": {Frontends: many}, "edge-2": {Frontends: many}}})
	if len(bounded) != 2*4*(mostFrontendNames+1) || bounded["fairlead_lb_packets_total other edge-2"] != 50 {
		t.Errorf("%d series, others have %g packets", len(bounded), bounded["fairlead_lb_packets_total other edge-2"])
	}
}

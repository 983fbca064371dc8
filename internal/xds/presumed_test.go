package xds

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestPresumedHealthTakesNotAllOut holds that backends of connections whose check nobody asked for
// are out one by one, and never all.
func TestPresumedHealthTakesNotAllOut(t *testing.T) {
	set := model.BackendSet{ID: "team/db/5432"}
	for i := range 3 {
		set.Backends = append(set.Backends, model.Backend{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 5432)})
	}
	set.Backends[2].State = model.BackendUnready
	well, ill, unknown, unchecked := model.Healthy, model.Unhealthy, model.HealthUnknown, model.HealthUnchecked
	for _, c := range []struct {
		protocol model.BackendProtocol
		health   []model.Health
		want     string
	}{
		{model.BackendTCP, []model.Health{well, ill, well}, "HEALTHY UNHEALTHY UNHEALTHY"},
		{model.BackendTCP, []model.Health{unknown, ill, well}, "UNKNOWN UNHEALTHY UNHEALTHY"},
		{model.BackendTCP, []model.Health{ill, ill, well}, "HEALTHY HEALTHY UNHEALTHY"},
		{model.BackendTCP, []model.Health{unchecked, ill, well}, "HEALTHY UNHEALTHY UNHEALTHY"},
		{model.BackendHTTP1, []model.Health{ill, ill, well}, "UNHEALTHY UNHEALTHY UNHEALTHY"},
	} {
		g := model.BackendGroup{ID: "team/db/5432", Set: set.ID, Protocol: c.protocol}
		a := LoadAssignment(g, set, func(b netip.AddrPort) (model.Health, string) {
			h := c.health[b.Addr().As4()[3]-1]
			if h == unchecked {
				return h, ""
			}
			return h, "a check"
		})
		var words []string
		for _, e := range a.GetEndpoints()[0].GetLbEndpoints() {
			words = append(words, e.GetHealthStatus().String())
			fields := e.GetMetadata().GetFilterMetadata()[agentv1.CheckMetadata].GetFields()
			if fields[agentv1.CheckMetadataKey] != nil && fields[agentv1.PresumedMetadataKey].GetBoolValue() != g.Presumed() {
				t.Errorf("%s: agents are told %v", fmt.Sprint(c.health), fields)
			}
		}
		if got := strings.Join(words, " "); got != c.want {
			t.Errorf("%q with %v is %s, want %s", c.protocol, c.health, got, c.want)
		}
	}
}

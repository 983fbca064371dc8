package agent

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/metricstest"
)

func TestMetricsAreDocumented(t *testing.T) {
	metricstest.Documented(t, func(r prometheus.Registerer) error {
		a := &Agent{config: Config{Registerer: r, Proxy: steadyProxy{}}}
		return a.register(newCounters())
	}, "fairlead_agent_", "fairlead_lb_", "fairlead_requests_")
}

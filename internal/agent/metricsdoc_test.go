package agent

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/metricstest"
)

func TestMetricsAreDocumented(t *testing.T) {
	metricstest.Documented(t, func(r prometheus.Registerer) error {
		a := &Agent{config: Config{Registerer: r, Proxy: steadyProxy{}}, meter: newMeter(steadyProxy{}, time.Now)}
		return a.register(newCounters())
	}, "fairlead_agent_", "fairlead_lb_", "fairlead_requests_", "fairlead_request_", "fairlead_received_", "fairlead_sent_", "fairlead_retries_", "fairlead_resets_", "fairlead_connections_", "fairlead_tries_", "fairlead_first_byte_")
}

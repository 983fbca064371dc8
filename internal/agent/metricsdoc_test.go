package agent

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/metricstest"
	"fairlead.dev/internal/model"
)

// TestOpenMetrics has a strict parser read what an agent serves.
func TestOpenMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := New(Config{
		Name: "edge-1", Planes: []string{"192.0.2.1:7443"}, DataDir: t.TempDir(), RunDir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Rand: rand.New(rand.NewPCG(1, 2)), Addresses: func() ([]netip.Addr, error) { return nil, nil }, Proxy: countedProxy{}, Registerer: registry,
	}); err != nil {
		t.Fatal(err)
	}
	metricstest.OpenMetrics(t, registry)
}

// countedProxy has counted requests of everything.
type countedProxy struct{ steadyProxy }

func (countedProxy) Traffic(context.Context) (model.Traffic, error) { return trafficOf(3), nil }

func TestMetricsAreDocumented(t *testing.T) {
	metricstest.Documented(t, func(r prometheus.Registerer) error {
		a := &Agent{config: Config{Registerer: r, Proxy: steadyProxy{}}, meter: newMeter(steadyProxy{}, time.Now)}
		return a.register(newCounters())
	}, "fairlead_agent_", "fairlead_lb_", "fairlead_requests_", "fairlead_request_", "fairlead_received_", "fairlead_sent_", "fairlead_retries_", "fairlead_resets_", "fairlead_connections_", "fairlead_open_", "fairlead_tries_", "fairlead_first_byte_")
}

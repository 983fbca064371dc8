package plane

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/metricstest"
	"fairlead.dev/internal/snapshot"
)

func TestMetricsAreDocumented(t *testing.T) {
	metricstest.Documented(t, func(r prometheus.Registerer) error {
		_, err := newMetrics(r, newWriteMetrics(), calm{}, calm{})
		return err
	}, "fairlead_plane_")
}

// TestOpenMetrics has a strict parser read what a plane serves of itself.
func TestOpenMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := newMetrics(registry, newWriteMetrics(), calm{}, calm{}); err != nil {
		t.Fatal(err)
	}
	metricstest.OpenMetrics(t, registry)
}

// calm is a status writer with an empty queue, and a source without trouble.
type calm struct{}

func (calm) Pending() int                      { return 0 }
func (calm) UnderWay() int                     { return 0 }
func (calm) Trouble() map[snapshot.Kind]string { return nil }

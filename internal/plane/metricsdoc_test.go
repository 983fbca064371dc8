package plane

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/metricstest"
)

func TestMetricsAreDocumented(t *testing.T) {
	metricstest.Documented(t, func(r prometheus.Registerer) error {
		_, err := newMetrics(r, func() float64 { return 0 }, func() float64 { return 0 })
		return err
	}, "fairlead_plane_")
}

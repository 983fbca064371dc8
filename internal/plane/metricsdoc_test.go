package plane

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/metricstest"
)

func TestMetricsAreDocumented(t *testing.T) {
	zero := func() float64 { return 0 }
	metricstest.Documented(t, func(r prometheus.Registerer) error {
		_, err := newMetrics(r, zero, zero, zero)
		return err
	}, "fairlead_plane_")
}

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

// calm is a status writer with an empty queue, and a source without trouble.
type calm struct{}

func (calm) Pending() int                      { return 0 }
func (calm) UnderWay() int                     { return 0 }
func (calm) Trouble() map[snapshot.Kind]string { return nil }

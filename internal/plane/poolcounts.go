package plane

import (
	"maps"
	"slices"

	"fairlead.dev/internal/translate"
)

// mostPools is how many AddressPools have series of their own, the first by name. The others share one.
const (
	mostPools  = 100
	otherPools = "other"
)

// poolCounts are the addresses of AddressPools, as they were translated last.
type poolCounts struct {
	of      map[string][]translate.PoolUse
	changed bool
}

func newPoolCounts() *poolCounts { return &poolCounts{of: map[string][]translate.PoolUse{}} }

// set notes the addresses of a pool; none of a pool that is gone.
func (c *poolCounts) set(pool string, uses []translate.PoolUse) {
	c.changed = true
	if uses == nil {
		delete(c.of, pool)
		return
	}
	c.of[pool] = uses
}

// show brings the metrics up to date. Numbers may be larger than a float64 holds exactly.
func (c *poolCounts) show(m *metrics) {
	if !c.changed {
		return
	}
	c.changed = false
	m.poolAddresses.Reset()
	for i, pool := range slices.Sorted(maps.Keys(c.of)) {
		uses := c.of[pool]
		if i >= mostPools {
			pool = otherPools
		}
		for _, u := range uses {
			m.poolAddresses.WithLabelValues(pool, u.Family, "used").Add(float64(u.Used))
			m.poolAddresses.WithLabelValues(pool, u.Family, "free").Add(float64(u.Free))
		}
	}
}

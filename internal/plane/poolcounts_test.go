package plane

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.dev/internal/translate"
)

// TestPoolCounts: each pool has its used and free addresses by family; pools beyond the bound share a series, and one
// that is gone has none.
func TestPoolCounts(t *testing.T) {
	m, err := newMetrics(nil, newWriteMetrics(), calm{}, calm{})
	if err != nil {
		t.Fatal(err)
	}
	c := newPoolCounts()
	has := func(pool, family, state string, want float64) {
		t.Helper()
		c.show(m)
		if got := testutil.ToFloat64(m.poolAddresses.WithLabelValues(pool, family, state)); got != want {
			t.Errorf("%s has %v %s addresses of %s, want %v", pool, got, state, family, want)
		}
	}
	c.set("edge", []translate.PoolUse{{Family: "IPv4", Used: 3, Free: 13}, {Family: "IPv6", Used: 1, Free: math.MaxUint64}})
	has("edge", "IPv4", "used", 3)
	has("edge", "IPv4", "free", 13)
	has("edge", "IPv6", "free", math.MaxUint64)
	c.set("edge", []translate.PoolUse{{Family: "IPv4", Used: 4, Free: 12}})
	has("edge", "IPv4", "used", 4)
	has("edge", "IPv4", "free", 12)
	for i := range mostPools + 1 {
		c.set(fmt.Sprintf("z%03d", i), []translate.PoolUse{{Family: "IPv4", Used: 1, Free: 2}})
	}
	has("other", "IPv4", "used", 2)
	has("other", "IPv4", "free", 4)
	c.set("edge", nil)
	has("other", "IPv4", "free", 2)
	for i := range mostPools + 1 {
		c.set(fmt.Sprintf("z%03d", i), nil)
	}
	if c.show(m); testutil.CollectAndCount(m.poolAddresses) != 0 {
		t.Error("pools that are gone have series")
	}
}

package openstack

import (
	"context"
	"errors"
	"testing"
	"time"
)

// started is a real cloud that ends with the test.
func started(t *testing.T, cfg Config) *Cloud {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a real cloud")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cfg.Dir = t.TempDir()
	c, err := Start(ctx, cfg)
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

func TestStart(t *testing.T) {
	began := time.Now()
	c := started(t, Config{})
	t.Logf("up in %s", time.Since(began))
	ids, err := c.Seed(t.Context(), 10, 2, "00000000000000000000000000000001", "00000000000000000000000000000002")
	if err != nil || len(ids) != 20 {
		t.Errorf("seed: %v, %v", ids, err)
	}
	t.Logf("seeded in %s", time.Since(began))
}

package bench

import (
	"errors"
	"testing"

	"fairlead.dev/internal/xds/envoytest"
)

// TestScopes runs the benchmark small: every figure must be there.
func TestScopes(t *testing.T) {
	r, err := Scopes(t.Context(), ScopesOptions{Hosts: 200, Changes: 5, Requests: 2000, Runs: 1})
	if errors.Is(err, envoytest.ErrNoEnvoy) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.LoadSeconds <= 0 || r.RSSMB <= 0 || r.ChangeP50 <= 0 || r.OneChangeP50 <= 0 || r.PlainMicros <= 0 || r.ExactMicros <= 0 || r.WildcardMicros <= 0 {
		t.Errorf("a figure is missing: %+v", r)
	}
}

package contour

import (
	"testing"

	"fairlead.dev/internal/translate/field"
)

// TestLongestDurations holds that no route waits for longer than Envoy can count.
func TestLongestDurations(t *testing.T) {
	c := Compiler{Route: &IngressRoute{}}
	if d := c.Duration("2562047h47m16s", "x"); d != field.Longest || len(c.Route.Problems) > 0 {
		t.Errorf("%s, %v", d, c.Route.Problems)
	}
}

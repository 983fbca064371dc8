package contour

import (
	"testing"

	"fairlead.dev/internal/translate/field"
)

// TestLongestDurations holds that no route waits for longer than Envoy can count.
func TestLongestDurations(t *testing.T) {
	c := compiler{route: &IngressRoute{}}
	if d := c.duration("2562047h47m16s", "x"); d != field.Longest || len(c.route.Problems) > 0 {
		t.Errorf("%s, %v", d, c.route.Problems)
	}
}

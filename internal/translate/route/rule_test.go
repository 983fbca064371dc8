package route

import (
	"fmt"
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/translate/field"
)

// TestManyExpressions holds that a route has no more expressions than the plane has time for: each is judged once.
func TestManyExpressions(t *testing.T) {
	c := compiler{}
	for i := range 2 * field.RegexesLimit / 1000 {
		expression := fmt.Sprintf("/%d%s", i, strings.Repeat("a", 900))
		first, again := c.regexProblem(expression), c.regexProblem(expression)
		if many := i >= field.RegexesLimit/903; first != again && !many || (first != "") != many && i != field.RegexesLimit/903 {
			t.Fatalf("expression %d: %q, and again %q", i, first, again)
		}
	}
	classes := compiler{}
	for i := range 3 * field.RegexClassesOfRoute {
		if problem := classes.regexProblem(fmt.Sprintf(`/%d\p{Greek}`, i)); (problem != "") != (i >= field.RegexClassesOfRoute) {
			t.Fatalf("class %d: %q", i, problem)
		}
	}
	if problem := classes.regexProblem("/plain[0-9]"); problem != "" {
		t.Errorf("an expression without classes: %q", problem)
	}
	if len(c.regexes) > field.RegexesLimit/900 {
		t.Errorf("%d expressions were judged", len(c.regexes))
	}
}

// TestLongestDurations holds that no route waits for longer than Envoy can count.
func TestLongestDurations(t *testing.T) {
	text := gatewayv1.Duration("99999h99999h99999h")
	if d, said := (&compiler{}).duration(&text, "x"); d != field.Longest || !said {
		t.Errorf("%s, %t", d, said)
	}
}

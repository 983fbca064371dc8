package translate

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/contour"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/route"
)

// TestRegexOfRE2 holds that classes whose names RE2 does not know are refused here: Envoy would refuse all routes of
// the host, also those of others.
func TestRegexOfRE2(t *testing.T) {
	for expression, good := range map[string]bool{
		`/api/v[0-9]+/.*`: true, `/(en|de|fr)/\d{1,10}`: true, `/\pL+`: true, `/\p{Greek}`: true, `/\P{Lu}x`: true, `/\p{^Nd}`: true, `\\p{x}`: true,
		`/\p{Any}`: true, `/[^/]{1,40}`: true, "/" + strings.Repeat("a", 900): true,
		`/.{490}`: true, `/[^/?#]{245}`: true, `/\pL{80}`: true, `/[\pL\pN\pM\pS\p{Greek}\p{Han}\p{Thai}\PZ]`: true, `/(a?){200}`: true, `/((a{10}){10}){5}`: true, `(?i)/[a-z\x{e0}-\x{ff}]{64}`: true, `/(?i:k){490}`: true, `/[\pL\pN]{50}`: true, `/(?i:é){100}`: true, `/[\x{0}-\x{ff}]{900}`: true,
		`/.{900}`: false, `/(?:a?){1000}`: false, `/((a{10}){10}){20}`: false, `/(a*){1000}`: false, `/\pL\pL\pL\pL\pL\pL\pL\pL\pL`: false, `/` + strings.Repeat("[ab]", 600): false, "/" + strings.Repeat("a", 2048): false, `/\pL{200}`: false, `/(?i:k){600}`: false, `/[^/]{900}`: false, `/[\pL\pN]{300}`: false, `/[\x{0}-\x{100}]`: false, `/\x{1F600}`: false, `/\\x{1F600}`: true,
		`\p{ASCII}`: false, `/\p{Letter}`: false, `/\p{LC}`: false, `/\P{^Cn}`: false, `/[\p{Cn}a]`: false, `\p{greek}`: false,
	} {
		if problem := field.RegexProblem(expression); (problem == "") != good {
			t.Errorf("%s: %q, want good %t", expression, problem, good)
		}
	}
}

// TestClassesOfRE2 says which classes a later Go knows: Envoy must be asked about them, too (TestRegexClasses of xds).
func TestClassesOfRE2(t *testing.T) {
	want := slices.Concat([]string{"Any"}, slices.Collect(maps.Keys(unicode.Categories)), slices.Collect(maps.Keys(unicode.Scripts)))
	want = slices.DeleteFunc(want, func(name string) bool { return name == "Cn" || name == "LC" })
	if slices.Sort(want); !slices.Equal(field.RegexClasses, want) {
		t.Errorf("RE2 knows %d classes, and Go %d: %q", len(field.RegexClasses), len(want), want)
	}
}

// TestCostlyExpressions holds that no expression costs the plane much before it is refused, or taken. It counts memory, which a busy machine does not change.
func TestCostlyExpressions(t *testing.T) {
	for what, expression := range map[string]string{
		"classes in a class":   "/[" + strings.Repeat(`\pL`, 600) + "]",
		"nested repeats":       "/" + strings.Repeat(`(?:a?){100}`, 180),
		"classes repeated":     "/" + strings.Repeat(`\pL{1000}`, 200),
		"repeats of repeats":   "/((((a{9}){9}){9}){9})",
		"a class of all":       "/(?i)" + strings.Repeat(`[\x{0}-\x{10ffff}]`, 100),
		"alternatives":         "/(" + strings.Repeat("a|", 1000) + "b)",
		"alternative prefixes": "/(" + strings.Repeat("ab|ac|", 300) + "b)",
		"folded":               "/(?i)" + strings.Repeat("k", 1000) + strings.Repeat("[^k]", 200),
		"deep":                 "/" + strings.Repeat("(", 900) + strings.Repeat(")", 900),
		"deep repeats":         "/" + strings.Repeat("(?:", 300) + "a" + strings.Repeat(")?", 300),
		"the largest":          "/[" + strings.Repeat(`\pL`, 8) + "]" + strings.Repeat("a{9}", 100),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		field.RegexProblem(expression)
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		if kib := (after.TotalAlloc - before.TotalAlloc) >> 10; kib > 1024 {
			t.Errorf("%s: %d KiB are allocated, in %s", what, kib, took)
		}
	}
}

// TestManyExpressions holds that a route has no more expressions than the plane has time for: each is judged once.
func TestManyExpressions(t *testing.T) {
	c := route.Compiler{}
	for i := range 2 * field.RegexesLimit / 1000 {
		expression := fmt.Sprintf("/%d%s", i, strings.Repeat("a", 900))
		first, again := c.RegexProblem(expression), c.RegexProblem(expression)
		if many := i >= field.RegexesLimit/903; first != again && !many || (first != "") != many && i != field.RegexesLimit/903 {
			t.Fatalf("expression %d: %q, and again %q", i, first, again)
		}
	}
	classes := route.Compiler{}
	for i := range 3 * field.RegexClassesOfRoute {
		if problem := classes.RegexProblem(fmt.Sprintf(`/%d\p{Greek}`, i)); (problem != "") != (i >= field.RegexClassesOfRoute) {
			t.Fatalf("class %d: %q", i, problem)
		}
	}
	if problem := classes.RegexProblem("/plain[0-9]"); problem != "" {
		t.Errorf("an expression without classes: %q", problem)
	}
	if len(c.Regexes) > field.RegexesLimit/900 {
		t.Errorf("%d expressions were judged", len(c.Regexes))
	}
}

// TestManyServicesOfARoute holds that one route, or tcpproxy, has no more services than a resource of everybody's
// takes.
func TestManyServicesOfARoute(t *testing.T) {
	var many []contourv1beta1.Service
	for i := range 16_000 {
		many = append(many, contourv1beta1.Service{Name: fmt.Sprintf("s-%d", i), Port: 80})
	}
	s := snapshot.New()
	o := rootOf(&contourv1beta1.IngressRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "root"}}, "app.example.com")
	o.Spec.Routes = []contourv1beta1.Route{{Match: "/", Services: many}}
	setAll(t, s, o)
	tr, _ := Full(input.Config{}, s)
	if got := statusOf(t, tr, "root"); !strings.Contains(got.Description, "spec.routes[0].services: 16000 are too many: at most 128") {
		t.Errorf("the root: %.300s", got.Description)
	}
}

// TestLongestDurations holds that no route waits for longer than Envoy can count.
func TestLongestDurations(t *testing.T) {
	c := contour.Compiler{Route: &contour.IngressRoute{}}
	if d := c.Duration("2562047h47m16s", "x"); d != field.Longest || len(c.Route.Problems) > 0 {
		t.Errorf("%s, %v", d, c.Route.Problems)
	}
	text := gatewayv1.Duration("99999h99999h99999h")
	if d, said := (&route.Compiler{}).Duration(&text, "x"); d != field.Longest || !said {
		t.Errorf("%s, %t", d, said)
	}
}

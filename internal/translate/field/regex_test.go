package field

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestRegexProblem(t *testing.T) {
	for expression, want := range map[string]string{
		"": "", "/a.*": "", `^\d{3}$`: "", "(?i)a|b": "",
		"(": "not a valid RE2 expression: missing", `(?=a)`: "not a valid RE2", `\1`: "not a valid RE2", "a{1001}": "not a valid RE2",
		strings.Repeat("a", 5000): "longer than 2048", "\xff": "UTF-8", "(a{100}){11}": "not a valid RE2", "[a-z]{600}[0-9]{600}": "too large",
	} {
		if got := RegexProblem(expression); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%.20q: %q, want %q", expression, got, want)
		}
	}
}

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
		if problem := RegexProblem(expression); (problem == "") != good {
			t.Errorf("%s: %q, want good %t", expression, problem, good)
		}
	}
}

// TestClassesOfRE2 says which classes a later Go knows: Envoy must be asked about them, too (TestRegexClasses of xds).
func TestClassesOfRE2(t *testing.T) {
	want := slices.Concat([]string{"Any"}, slices.Collect(maps.Keys(unicode.Categories)), slices.Collect(maps.Keys(unicode.Scripts)))
	want = slices.DeleteFunc(want, func(name string) bool { return name == "Cn" || name == "LC" })
	if slices.Sort(want); !slices.Equal(regexClasses, want) {
		t.Errorf("RE2 knows %d classes, and Go %d: %q", len(regexClasses), len(want), want)
	}
}

// TestCostlyExpressions holds that no expression costs the plane much, whether it is valid or not. It counts memory,
// which a busy machine does not change.
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
		RegexProblem(expression)
		runtime.ReadMemStats(&after)
		if kib := (after.TotalAlloc - before.TotalAlloc) >> 10; kib > 1024 {
			t.Errorf("%s: %d KiB are allocated", what, kib)
		}
	}
}

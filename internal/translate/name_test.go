package translate

import (
	"strings"
	"testing"

	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
)

func TestHostProblem(t *testing.T) {
	long := strings.Repeat("a.", 127)
	for _, c := range []struct {
		host     string
		wildcard bool
		Want     string // in the problem; empty: none
	}{
		{"example.com", false, ""},
		{"a", false, ""},
		{"xn--bcher-kva.example", false, ""},
		{"10.0.0.1", false, ""},
		{long[:253], false, ""},
		{long, false, "longer than 253"},
		{"*.example.com", true, ""},
		{"*.example.com", false, "cannot use wildcards"},
		{"*", true, "whole first label"},
		{"a.*.com", true, "whole first label"},
		{"*.*.com", true, "whole first label"},
		{"*.", true, "must be specified"},
		{"", false, "must be specified"},
		{"example.com:80", false, "without a port"},
		{"[::1]", false, "without a port"},
		{"example.com.", false, "no DNS name"},
		{".example.com", false, "no DNS name"},
		{"a..b", false, "no DNS name"},
		{"-a.com", false, "no DNS name"},
		{"a-.com", false, "no DNS name"},
		{"a_b.com", false, "no DNS name"},
		{"A.com", false, "no DNS name"}, // callers fold first
		{strings.Repeat("a", 64) + ".com", false, "no DNS name"},
		{"é.com", false, "no DNS name"},
		{"\xff.com", false, "no DNS name"},
	} {
		got := field.HostProblem(c.host, c.wildcard)
		if (got == "") != (c.Want == "") || !strings.Contains(got, c.Want) {
			t.Errorf("%q: %q, want %q", c.host, got, c.Want)
		}
	}
}

func TestIntersect(t *testing.T) {
	for _, c := range []struct{ listener, route, Want string }{
		{"*", "*", "*"},
		{"*", "a.com", "a.com"},
		{"*", "*.com", "*.com"},
		{"a.com", "*", "a.com"},
		{"*.com", "*", "*.com"},
		{"a.com", "a.com", "a.com"},
		{"a.com", "b.com", ""},
		{"*.com", "a.com", "a.com"},
		{"*.com", "b.a.com", "b.a.com"},
		{"*.com", "com", ""},
		{"*.a.com", "a.com", ""},
		{"b.a.com", "*.com", "b.a.com"},
		{"*.com", "*.a.com", "*.a.com"},
		{"*.a.com", "*.com", "*.a.com"},
		{"*.a.com", "*.b.com", ""},
		{"*.a.com", "xa.com", ""},
	} {
		if got, ok := field.Intersect(c.listener, c.route); got != c.Want || ok != (c.Want != "") {
			t.Errorf("%s and %s have %q in common, want %q", c.listener, c.route, got, c.Want)
		}
		// What both take does not depend on who says it.
		if got, _ := field.Intersect(c.route, c.listener); got != c.Want {
			t.Errorf("%s and %s have %q in common, want %q", c.route, c.listener, got, c.Want)
		}
	}
}

func TestPathProblem(t *testing.T) {
	for path, want := range map[string]string{
		"/": "", "/a": "", "/é": "", "/a%20b": "", "/" + strings.Repeat("a", 1023): "",
		"":  "begin",
		"a": "begin", "/a b": "spaces", "/a\n": "spaces", "/\x7f": "spaces", "/\xff": "spaces", "/a?b": `"?"`, "/a#b": `"?"`,
		"/" + strings.Repeat("a", 1024): "longer",
	} {
		if got := field.PathProblem(path); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestRegexProblem(t *testing.T) {
	for expression, want := range map[string]string{
		"": "", "/a.*": "", `^\d{3}$`: "", "(?i)a|b": "",
		"(": "no RE2 expression: missing", `(?=a)`: "no RE2", `\1`: "no RE2", "a{1001}": "no RE2",
		strings.Repeat("a", 5000): "longer than 2048", "\xff": "UTF-8", "(a{100}){11}": "no RE2", "[a-z]{600}[0-9]{600}": "too large",
	} {
		if got := field.RegexProblem(expression); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%.20q: %q, want %q", expression, got, want)
		}
	}
}

func TestLimit(t *testing.T) {
	if got := condition.Limit("short é"); got != "short é" {
		t.Errorf("changed to %q", got)
	}
	if got := condition.Limit("a\xffb"); got != "a\uFFFDb" {
		t.Errorf("not UTF-8: %q", got)
	}
	if got := condition.Limit(strings.Repeat("é", 20_000) + "x"); len(got) > condition.MessageLimit+8 || !strings.HasSuffix(got, " ...") {
		t.Errorf("%d bytes", len(got))
	}
}

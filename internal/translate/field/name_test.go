package field

import (
	"strings"
	"testing"
)

func TestHostProblem(t *testing.T) {
	long := strings.Repeat("a.", 127)
	for _, c := range []struct {
		host     string
		wildcard bool
		want     string // in the problem; empty: none
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
		{"example.com.", false, "not a valid DNS name"},
		{".example.com", false, "not a valid DNS name"},
		{"a..b", false, "not a valid DNS name"},
		{"-a.com", false, "not a valid DNS name"},
		{"a-.com", false, "not a valid DNS name"},
		{"a_b.com", false, "not a valid DNS name"},
		{"A.com", false, "not a valid DNS name"}, // callers fold first
		{strings.Repeat("a", 64) + ".com", false, "not a valid DNS name"},
		{"é.com", false, "not a valid DNS name"},
		{"\xff.com", false, "not a valid DNS name"},
	} {
		got := HostProblem(c.host, c.wildcard)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%q: %q, want %q", c.host, got, c.want)
		}
	}
}

func TestIntersect(t *testing.T) {
	for _, c := range []struct{ listener, route, want string }{
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
		if got, ok := Intersect(c.listener, c.route); got != c.want || ok != (c.want != "") {
			t.Errorf("%s and %s have %q in common, want %q", c.listener, c.route, got, c.want)
		}
		// What both take does not depend on who says it.
		if got, _ := Intersect(c.route, c.listener); got != c.want {
			t.Errorf("%s and %s have %q in common, want %q", c.route, c.listener, got, c.want)
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
		if got := PathProblem(path); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

package translate

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// documentedTexts are the texts of the tables below "What it can say", as expressions.
func documentedTexts(t *testing.T) map[string]*regexp.Regexp {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/ingressroute.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "### What it can say")
	rest, _, found := strings.Cut(rest, "\n## ")
	if !found {
		t.Fatal("the page has no table of texts")
	}
	texts := map[string]*regexp.Regexp{}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cell := strings.Split(line, "|")[1]
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			text := regexp.QuoteMeta(m[1])
			text = strings.ReplaceAll(text, `\[i\]`, `\[\d+\]`)
			texts[m[1]] = regexp.MustCompile("^" + strings.ReplaceAll(text, "…", ".*") + "$")
		}
	}
	return texts
}

// beginnings are what the parts of a description begin with.
var beginnings = regexp.MustCompile(`; (spec\.|host "|IngressRoute |metadata\.)`)

// TestDescriptionsAreDocumented holds the reference and the golden cases against each other:
// every description of a case is explained, and everything explained has a case.
func TestDescriptionsAreDocumented(t *testing.T) {
	elsewhere := map[string]string{
		"spec.routes[i].delegate: too many delegations in a row": "TestDelegationDepth",
		"spec.routes: has … routes, and one host may have 65536": "TestRootWithTooManyRoutes",
		"spec.routes[i].delegate: too many routes for one host: with those of IngressRoute … and of all to which it delegates there would be more than 65536 (the smallest of the root's delegations come first)": "TestTreeWithTooManyRoutes",
		"too many routes for one host: with those of IngressRoute … and of all to which it delegates there would be more than 65536 (the smallest of the root's delegations come first)":                          "TestTreeWithTooManyRoutes",
		"… is longer than 1024 characters":             "TestPathProblem",
		"… must not have spaces or control characters": "TestPathProblem",
		"… has no …":        "TestCertificatesAreJudged",
		"… cannot be read…": "TestCertificatesAreJudged",
		`spec.virtualhost.fqdn: "…" is not a valid DNS name…`: "TestHostProblem",
	}
	texts := documentedTexts(t)
	used := map[string]bool{}
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range cases {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		for _, f := range archive.Files {
			if f.Name == "want" {
				want = string(f.Data)
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^status IngressRoute .*\n  (valid|invalid|orphaned): (.*)$`).FindAllStringSubmatch(want, -1) {
			for part := range strings.SplitSeq(beginnings.ReplaceAllString(m[2], "\n$1"), "\n") {
				explained := false
				for text, expression := range texts {
					if expression.MatchString(part) {
						used[text], explained = true, true
					}
				}
				if !explained {
					t.Errorf("%s: docs/reference/ingressroute.md does not explain %q", filepath.Base(name), part)
				}
			}
		}
	}
	for text := range texts {
		if !used[text] && elsewhere[text] == "" {
			t.Errorf("no case says %q", text)
		}
	}
}

package dashboard

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/lab/program"
)

var update = flag.Bool("update", false, "write the files in deploy")

const (
	root  = "../.."
	files = root + "/deploy/chart/fairlead/files" // deploy/dashboards and deploy/alerts lead there
)

// TestFiles: what is in deploy is what the program writes.
func TestFiles(t *testing.T) {
	all, err := Files(Options{}, RuleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range all {
		path := filepath.Join(files, f.Name)
		names = append(names, path)
		if *update {
			if err := os.WriteFile(path, f.Content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(have, f.Content) {
			t.Errorf("%s is stale (%v): go test ./internal/dashboard -update, then read the difference", path, err)
		}
	}
	for _, pattern := range []string{"dashboards/*", "alerts/*"} {
		there, err := filepath.Glob(filepath.Join(files, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range there {
			if !slices.Contains(names, path) {
				t.Errorf("%s is no dashboard and no rule any more: delete it", path)
			}
		}
	}
}

var (
	metricName = regexp.MustCompile(`\b(fairlead_[a-z0-9_]+)`)
	selector   = regexp.MustCompile(`\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*[!=]~?`)
	grouping   = regexp.MustCompile(`(?:by|on) \(([^)]*)\)`)
	legend     = regexp.MustCompile(`\{\{ ?\$?(?:labels\.)?([a-z_]+)`)
	row        = regexp.MustCompile("(?m)^\\| `(fairlead_[a-z0-9_]+)` \\| (\\w+) \\| ([^|]*) \\|")
	variable   = regexp.MustCompile(`\$([a-z]+)`)
)

// always are labels that every series has, and those of what Prometheus makes itself.
var always = []string{"instance", "job", "le", "alertname", "alertstate", "value"}

// documented are the labels of each metric in the reference.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		labels[m[1]] = strings.FieldsFunc(m[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })
	}
	return labels
}

// TestQueries: every metric and label of a query or legend is in the reference.
func TestQueries(t *testing.T) {
	known := documented(t)
	check := func(where, expr, text string) {
		t.Helper()
		allowed := slices.Clone(always)
		for _, m := range metricName.FindAllString(expr, -1) {
			m = strings.TrimSuffix(m, "_bucket")
			labels, is := known[m]
			if !is {
				m = strings.TrimSuffix(strings.TrimSuffix(m, "_sum"), "_count")
				labels, is = known[m]
			}
			if !is {
				t.Errorf("%s: the reference has no metric %s", where, m)
			}
			allowed = append(allowed, labels...)
		}
		var used []string
		for _, m := range selector.FindAllStringSubmatch(expr, -1) {
			for _, l := range matcher.FindAllStringSubmatch(m[1], -1) {
				used = append(used, l[1])
			}
		}
		for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
			used = append(used, strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' })...)
		}
		for _, m := range legend.FindAllStringSubmatch(text, -1) {
			used = append(used, m[1])
		}
		for _, l := range used {
			if !slices.Contains(allowed, l) {
				t.Errorf("%s: no metric of it has the label %s, in %s, %s", where, l, expr, text)
			}
		}
	}
	for _, d := range All() {
		var choices []string
		for _, v := range d.Variables {
			choices = append(choices, v.Name)
			check(d.Name, v.Metric, "{{"+v.Of+"}}")
		}
		for _, r := range d.Rows {
			for _, p := range r.Panels {
				if p.Title == "" || !strings.HasSuffix(p.Description, ".") || p.Unit == "" || len(p.Queries) == 0 {
					t.Errorf("%s: panel %q lacks a title, a description, a unit or a query", d.Name, p.Title)
				}
				for _, q := range p.Queries {
					check(d.Name+"/"+p.Title, q.Expr, q.Legend)
					for _, v := range variable.FindAllStringSubmatch(strings.ReplaceAll(q.Expr, "$__rate_interval", ""), -1) {
						if !slices.Contains(choices, v[1]) {
							t.Errorf("%s/%s: there is no variable %s", d.Name, p.Title, v[1])
						}
					}
				}
			}
		}
	}
	for _, a := range Alerts() {
		check(a.Name, strings.ReplaceAll(a.Expr, "{window}", "1m"), a.Summary+a.Description)
	}
}

// TestRunbooks: every alert has a page, and every page an alert.
func TestRunbooks(t *testing.T) {
	dir := filepath.Join(root, defaultRunbooks)
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]bool{"README.md": true}
	for _, a := range Alerts() {
		page := a.Name + ".md"
		pages[page] = true
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, heading := range []string{"# " + a.Name, "## Meaning", "## Impact", "## Look", "## Mend", "## End"} {
			if !strings.Contains(string(text), heading+"\n") {
				t.Errorf("%s has no heading %q", page, heading)
			}
		}
		if !strings.Contains(string(index), "["+a.Name+"]("+page+") | "+string(a.Severity)+" |") {
			t.Errorf("the index of runbooks has no row of %s with its severity", a.Name)
		}
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range there {
		if !pages[e.Name()] {
			t.Errorf("docs/runbooks/%s is of no alert", e.Name())
		}
	}
}

// TestPromtool has Prometheus' own tool judge the rules, and compute each of them.
func TestPromtool(t *testing.T) {
	tool, err := program.Promtool.Find()
	if err != nil {
		t.Skip(err)
	}
	for _, args := range [][]string{
		{"check", "rules", "--lint-fatal", filepath.Join(files, "alerts", RulesFile)},
		{"test", "rules", "testdata/rules.yml"},
	} {
		if out, err := exec.Command(tool.Path, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	text, err := os.ReadFile("testdata/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range Alerts() {
		if !strings.Contains(string(text), "alertname: "+a.Name+"\n") {
			t.Errorf("testdata/rules.yml computes no %s", a.Name)
		}
	}
}

// TestGrafana: IDs are unique, panels do not overlap, and every dashboard has its own UID.
func TestGrafana(t *testing.T) {
	uids := map[string]bool{}
	for _, d := range All() {
		text, err := d.Grafana(Options{DataSource: "main"})
		if err != nil {
			t.Fatal(err)
		}
		var page struct {
			UID        string
			Templating struct {
				List []struct {
					Name    string
					Current struct{ Value any }
				}
			}
			Panels []struct {
				ID      int
				GridPos gGrid
			}
		}
		if err := json.Unmarshal(text, &page); err != nil {
			t.Fatal(err)
		}
		if uids[page.UID] || page.UID == "" || len(page.UID) > 40 {
			t.Errorf("%s has the UID %q", d.Name, page.UID)
		}
		uids[page.UID] = true
		if first := page.Templating.List[0]; first.Name != "datasource" || first.Current.Value != "main" {
			t.Errorf("%s: the first choice is %v", d.Name, first)
		}
		taken, ids := map[[2]int]bool{}, map[int]bool{}
		for _, p := range page.Panels {
			if ids[p.ID] {
				t.Errorf("%s has two panels %d", d.Name, p.ID)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if taken[[2]int{x, y}] || x >= 24 {
						t.Errorf("%s: panel %d overlaps another at %d, %d", d.Name, p.ID, x, y)
					}
					taken[[2]int{x, y}] = true
				}
			}
		}
	}
}

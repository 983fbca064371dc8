package console

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
)

// declaredPaths are the constants of package v1 whose names end with Path.
func declaredPaths(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("v1/*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, is := n.(*ast.ValueSpec)
			if !is || len(spec.Values) != len(spec.Names) {
				return true
			}
			for i, id := range spec.Names {
				value, is := spec.Values[i].(*ast.BasicLit)
				if !is || !strings.HasSuffix(id.Name, "Path") {
					continue
				}
				at, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				declared[at] = id.Name
			}
			return true
		})
	}
	return declared
}

// TestEveryPathIsInTheTable: what package v1 declares is answered by the rows of paths, and only that.
func TestEveryPathIsInTheTable(t *testing.T) {
	declared := declaredPaths(t)
	delete(declared, v1.DropsPath) // at an agent's socket, which has no other path and no reader but its user
	for _, p := range paths {
		if declared[p.at] == "" {
			t.Errorf("%s is in the table twice, or not declared in v1", p.at)
		}
		delete(declared, p.at)
	}
	if len(declared) > 0 {
		t.Errorf("v1 declares %v, which the table does not have", declared)
	}
}

// TestReadAPIIsDocumented: the reference has the rows of the table, in its order.
func TestReadAPIIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/read-api.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| `/v1/") || len(cells) != 4 {
			continue
		}
		of := "all namespaces"
		if strings.TrimSpace(cells[3]) != "" {
			of = "one namespace"
		}
		documented = append(documented, strings.Join([]string{strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2]), of}, " "))
	}
	var want []string
	for _, p := range paths {
		verbs, of := "`"+p.right.Verb+"`", "all namespaces"
		if p.watched {
			verbs += ", `watch`"
		}
		if p.named {
			verbs += "; with `name` `get`"
		}
		if p.namespaced {
			of = "one namespace"
		}
		want = append(want, strings.Join([]string{"`" + p.at + "`", verbs, "`" + p.right.Resource + "`", of}, " "))
	}
	if !slices.Equal(documented, want) {
		t.Errorf("docs/reference/read-api.md has\n%s\nwant\n%s", strings.Join(documented, "\n"), strings.Join(want, "\n"))
	}
}

// TestRolesGiveTheRightsOfTheTable: the chart's roles let read what there is, of one namespace what is namespaced, and tap by a role
// of its own.
func TestRolesGiveTheRightsOfTheTable(t *testing.T) {
	text, err := os.ReadFile("../../deploy/chart/fairlead/templates/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, namespaced, taps := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, p := range paths {
		if p.right.Verb == TapVerb {
			taps[p.right.Resource] = true
			continue
		}
		all[p.right.Resource] = true
		if p.namespaced {
			namespaced[p.right.Resource] = true
		}
	}
	for what, rule := range map[string]string{
		"all":           resourceRule(all, "get, list, watch"),
		"one namespace": resourceRule(namespaced, "get, list, watch"),
		"taps":          resourceRule(taps, TapVerb),
	} {
		if !strings.Contains(string(text), rule) {
			t.Errorf("no role of the chart has the rule of %s:\n%s", what, rule)
		}
	}
}

func resourceRule(resources map[string]bool, verbs string) string {
	return "- {apiGroups: [read.fairlead.dev], resources: [" + strings.Join(slices.Sorted(maps.Keys(resources)), ", ") + "], verbs: [" + verbs + "]}\n"
}

// complete answers at every path, and fails the test if it has to.
func complete(t *testing.T) Config {
	asked := func() { t.Error("a standby answers by itself") }
	c := Config{
		Status:  func(context.Context) any { return model.Status{} },
		Explain: func(context.Context, explain.Request) (e explain.Explanation, err error) { asked(); return e, err },
		ExplainFlow: func(context.Context, explain.FlowRequest) (e explain.FlowExplanation, err error) {
			asked()
			return e, err
		},
		Revisions: func(context.Context) ([]model.Revision, error) { asked(); return nil, nil },
		Changes:   func(context.Context) ([]model.Change, error) { asked(); return nil, nil },
		Routes:    &RouteList{Rows: func(context.Context, string, string) ([]model.RouteRow, error) { asked(); return nil, nil }},
		Top:       func(context.Context, TopQuestion) (top model.Top, err error) { asked(); return top, err },
		RequestMetrics: func(context.Context, string) (prometheus.Gatherer, error) {
			asked()
			return prometheus.NewRegistry(), nil
		},
		Tap:       func(context.Context, model.TapFilter, func(model.TapEvent) error) error { asked(); return nil },
		TapFlows:  func(context.Context, model.FlowTapQuery, func(model.FlowTapEvent) error) error { asked(); return nil },
		Upstreams: func(context.Context, string) ([]model.UpstreamStatus, error) { asked(); return nil, nil },
		Backends:  func(context.Context, string) ([]model.BackendStatus, error) { asked(); return nil, nil },
		Flows:     func(context.Context, FlowFilter) (list model.FlowList, err error) { asked(); return list, err },
		Watches:   map[string]Watch{},
	}
	for _, p := range paths {
		c.Watches[p.at] = func(context.Context, *Position, string) (u Update, err error) { asked(); return u, err }
	}
	return c
}

// TestStandbysAnswerByTheTable: a standby answers for itself where the table says so, also streams it has the leader answer, and
// nothing is watched that is not in the table as such.
func TestStandbysAnswerByTheTable(t *testing.T) {
	c := complete(t)
	c.Standby = func() error { return Standby{Leader: "other"} }
	h := Reads(c)
	code := func(uri string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, uri, nil))
		return w.Code
	}
	for _, p := range paths {
		want := http.StatusMisdirectedRequest
		if p.own != nil {
			want = http.StatusOK
		}
		if got := code(p.at); got != want {
			t.Errorf("%s is answered %d, want %d", p.at, got, want)
		}
		want = http.StatusBadRequest
		if p.watched {
			want = http.StatusMisdirectedRequest
		}
		if got := code(p.at + "?watch=true"); got != want {
			t.Errorf("a stream of %s is answered %d, want %d", p.at, got, want)
		}
	}
	if got := code(v1.StatusPath + "?" + v1.OfLeader); got != http.StatusMisdirectedRequest {
		t.Errorf("the leader's status is answered %d", got)
	}
}

// TestAgentsSayWhatTheyAre: a console without answers says whose it is, at every path.
func TestAgentsSayWhatTheyAre(t *testing.T) {
	h := Reads(Config{})
	for _, p := range paths {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, p.at, nil))
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "--plane-console") {
			t.Errorf("%s is answered %d: %s", p.at, w.Code, w.Body)
		}
	}
}

package guard

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const root = "../.."

// large are the files over 1 MiB that we keep, each with its reason.
var large = []string{}

func load(t *testing.T) (*Tree, Tables) {
	t.Helper()
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Go) < 20 {
		t.Fatalf("found only %d Go files: the guards would look at nothing", len(tree.Go))
	}
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	tables, err := ParseTables(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return tree, tables
}

func report(t *testing.T, bad []Violation, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range bad {
		t.Error(v)
	}
}

// TestRepository holds this repository against every rule.
func TestRepository(t *testing.T) {
	tree, tables := load(t)
	t.Run("imports", func(t *testing.T) { report(t, CheckImports(tree.Go, tables), nil) })
	t.Run("permissions", func(t *testing.T) { report(t, CheckPermissions(tree.Go, tables), nil) })
	t.Run("purity", func(t *testing.T) { report(t, CheckPurity(tree.Go, tables), nil) })
	t.Run("files", func(t *testing.T) { report(t, CheckFiles(tree.Go), nil) })
	t.Run("comments", func(t *testing.T) { report(t, CheckComments(tree.Go), nil) })
	t.Run("reading orders", func(t *testing.T) { report(t, CheckReadingOrders(tree.Go), nil) })
	t.Run("lists", func(t *testing.T) { report(t, CheckLists(tree.Go), nil) })
	t.Run("records", func(t *testing.T) { report(t, CheckRecords(tree.Paths), nil) })
	t.Run("record index", func(t *testing.T) {
		bad, err := CheckRecordIndex(tree)
		report(t, bad, err)
	})
	t.Run("sizes", func(t *testing.T) {
		bad, err := CheckSizes(tree, large)
		report(t, bad, err)
	})
	t.Run("generated", func(t *testing.T) {
		bad, err := CheckGenerated(tree)
		report(t, bad, err)
	})
	t.Run("promises", func(t *testing.T) {
		bad, err := CheckPromises(tree)
		report(t, bad, err)
	})
	t.Run("glossary", func(t *testing.T) {
		bad, err := CheckGlossary(tree)
		report(t, bad, err)
	})
	t.Run("links", func(t *testing.T) {
		bad, err := CheckLinks(tree)
		report(t, bad, err)
	})
}

// TestTablesSayWhatTheyMust pins the rows that everything else rests on, so that
// a slip of the pen in ARCHITECTURE.md cannot switch a rule off.
func TestTablesSayWhatTheyMust(t *testing.T) {
	_, tables := load(t)
	for _, name := range []string{"model", "translate", "schedule", "lookup", "weigh", "plan", "delta"} {
		if rule, _, found := tables.rule("internal/" + name); !found || !rule.Pure {
			t.Errorf("%s must be pure", name)
		}
	}
	for _, name := range []string{"api/v1alpha1", "proto/agent/v1", "internal/model", "internal/muffle", "internal/rtdump"} {
		if rule, _, found := tables.rule(name); !found || rule.Anything || len(rule.Allowed) > 0 {
			t.Errorf("%s must import nothing of ours", name)
		}
	}
	// The log that it needs has no part of ours behind it.
	if rule, _, found := tables.rule("internal/embedded"); !found || rule.Anything || !slices.Equal(rule.Allowed, []string{"internal/muffle"}) {
		t.Errorf("internal/embedded must import nothing of ours but internal/muffle: %v", rule.Allowed)
	}
	for _, r := range tables.Rules {
		for _, allowed := range r.Allowed {
			if covers("cmd", allowed) {
				t.Errorf("%s may import %s: cmd is imported by nobody", r.Room, allowed)
			}
		}
	}
	if r, found := tables.module("k8s.io/kubernetes/pkg/controller/namespace"); !found || len(r.OnlyIn) != 1 {
		t.Error("k8s.io/kubernetes must stay in one room")
	}
}

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// statusWords are the folders whose words people see in conditions and problems.
var statusWords = []string{"api/v1alpha1", "internal/model", "internal/translate", "internal/health", "internal/catalog", "internal/progress", "internal/plane", "internal/southbound", "cmd/fairlead"}

var (
	// Constants that stand in a status: by their own name, or their type's.
	shownName = regexp.MustCompile(`Reason|^reason[A-Z]|^Condition[A-Z]|^RouteProgrammed$|^([sS]tate|machine)[A-Z]`)
	shownType = regexp.MustCompile(`(Reason|ConditionType)$`)
	// Gateway API's constants are named for their values.
	gatewayReason = regexp.MustCompile(`^(?:GatewayClass|Gateway|ListenerSet|Listener|Route)Reason(\w+)$`)
)

// words collects from one file what a status can show, and where that is said.
func words(set *token.FileSet, file *ast.File, found map[string]string) {
	note := func(node ast.Expr) {
		if lit, ok := node.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if value, err := strconv.Unquote(lit.Value); err == nil && value != "" {
				found[value] = set.Position(node.Pos()).String()
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.GenDecl:
			if n.Tok != token.CONST {
				return true
			}
			for _, spec := range n.Specs {
				spec := spec.(*ast.ValueSpec)
				kind := ""
				switch t := spec.Type.(type) {
				case *ast.Ident:
					kind = t.Name
				case *ast.SelectorExpr:
					kind = t.Sel.Name
				}
				for i, name := range spec.Names {
					if i < len(spec.Values) && (shownName.MatchString(name.Name) || shownType.MatchString(kind)) {
						note(spec.Values[i])
					}
				}
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Reason" {
				note(n.Value)
			}
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok && of.Name == "gatewayv1" {
				if m := gatewayReason.FindStringSubmatch(n.Sel.Name); m != nil {
					found[m[1]] = set.Position(n.Pos()).String()
				}
			}
		}
		return true
	})
}

// A reason that the reference does not explain leaves its reader with one word.
func TestReferenceExplainsEveryReason(t *testing.T) {
	const page = "docs/reference/status.md"
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	set := token.NewFileSet()
	for _, dir := range statusWords {
		files := 0
		err := filepath.WalkDir("../../"+dir, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			files++
			file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			if err == nil {
				words(set, file, found)
			}
			return err
		})
		if err != nil || files == 0 {
			t.Fatalf("%s has no Go files: %v", dir, err)
		}
	}
	// One of each way to say it, so that a search that finds nothing does not pass.
	for _, known := range []string{"Lost", "HostKept", "RefNotPermitted", "NotRunning", "ClassNotFound", "fairlead.dev/Programmed", "orphaned", "Unhealthy", "Frozen", "BackendsNotChecked", "CannotBeSent"} {
		if found[known] == "" {
			t.Errorf("the search for reasons does not find %s any more", known)
		}
	}
	for _, word := range slices.Sorted(maps.Keys(found)) {
		if !strings.Contains(string(text), "`"+word+"`") {
			t.Errorf("%s does not explain `%s`, which %s can show: say there what it means and what to do", page, word, strings.TrimPrefix(found[word], "../../"))
		}
	}
}

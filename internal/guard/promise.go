package guard

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	promises    = "docs/dev/security.md"
	whyPromises = "a promise without a test is a hope"
	cases       = "internal/translate/testdata"
)

var coded = regexp.MustCompile("`([^`]+)`")

// CheckPromises looks for the tests of each promise about security: a function in one of the packages
// that its row names, or a case of translate.
func CheckPromises(t *Tree) ([]Violation, error) {
	text, err := os.ReadFile(filepath.Join(t.Root, promises))
	if err != nil {
		return nil, err
	}
	tests := map[string]bool{} // package and function
	for _, f := range t.Go {
		if f.AST == nil || !f.Test {
			continue
		}
		for _, d := range f.AST.Decls {
			if fn, is := d.(*ast.FuncDecl); is && fn.Recv == nil {
				tests[f.Dir+" "+fn.Name.Name] = true
			}
		}
	}
	var bad []Violation
	rows := 0
	for i, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[2], "`") {
			continue
		}
		rows++
		where := fmt.Sprintf("%s:%d", promises, i+1)
		names := coded.FindAllStringSubmatch(cells[3], -1)
		if len(names) == 0 {
			bad = append(bad, Violation{where, "the promise has no test", whyPromises})
		}
		for _, name := range names {
			is := slices.Contains(t.Paths, path.Join(cases, name[1]+".txtar"))
			for _, room := range coded.FindAllStringSubmatch(cells[2], -1) {
				is = is || tests[room[1]+" "+name[1]]
			}
			if !is {
				bad = append(bad, Violation{where, "there is no test " + name[1] + " in" + cells[2], whyPromises})
			}
		}
	}
	if rows == 0 {
		bad = append(bad, Violation{promises, "there is no row with a promise", whyPromises})
	}
	return bad, nil
}

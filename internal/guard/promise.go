package guard

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"slices"
)

const (
	promises    = "docs/dev/security.md"
	whyPromises = "a promise without a test is a hope"
	// cases are the golden cases of the room that reads them.
	casesRoom = "internal/translate"
	cases     = casesRoom + "/testdata"
)

// CheckPromises looks for the tests of each promise about security: a function in one of the packages
// that its row names, or a case of translate.
func CheckPromises(t *Tree) ([]Violation, error) {
	text, err := os.ReadFile(filepath.Join(t.Root, promises))
	if err != nil {
		return nil, err
	}
	rows, err := section(string(text), "promises", 3)
	if err != nil {
		return []Violation{{promises, err.Error(), whyPromises}}, nil
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
	for _, row := range rows {
		where, rooms, wanted := promises+": "+row[0], names(row[1]), names(row[2])
		if len(rooms) == 0 || len(wanted) == 0 {
			bad = append(bad, Violation{where, "the promise names no package, or no test", whyPromises})
		}
		for _, name := range wanted {
			is := slices.Contains(rooms, casesRoom) && slices.Contains(t.Paths, path.Join(cases, name+".txtar"))
			for _, room := range rooms {
				is = is || tests[room+" "+name]
			}
			if !is {
				bad = append(bad, Violation{where, "there is no test " + name + " in " + row[1], whyPromises})
			}
		}
	}
	return bad, nil
}

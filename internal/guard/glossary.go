package guard

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"
)

const (
	glossary    = "docs/glossary.md"
	whyGlossary = "one thing has one name, in code and documents"
)

// CheckGlossary compares the glossary with the code: each type that it names exists, and no name of a type
// and no exported name has a word that it refuses.
func CheckGlossary(t *Tree) ([]Violation, error) {
	text, err := os.ReadFile(filepath.Join(t.Root, glossary))
	if err != nil {
		return nil, err
	}
	rows, err := section(string(text), "refused", 2)
	if err != nil {
		return []Violation{{glossary, err.Error(), whyGlossary}}, nil
	}
	bad := checkTerms(t.Go, string(text))
	instead := map[string]string{}
	for _, row := range rows {
		for _, word := range strings.Split(row[0], ", ") {
			if row[1] == "" {
				bad = append(bad, Violation{glossary, "no word to use instead of " + word, whyGlossary})
			}
			instead[strings.Trim(word, "*")] = row[1]
		}
	}
	return append(bad, CheckNames(t.Go, instead)...), nil
}

// checkTerms looks for the types that the glossary's terms name in their third column.
func checkTerms(files []GoFile, text string) []Violation {
	types := map[string]bool{}
	for _, f := range files {
		for _, id := range declared(f.AST) {
			if id.isType && !f.Test {
				types[strings.TrimPrefix(f.Dir, "internal/")+"."+id.Name] = true
			}
		}
	}
	var bad []Violation
	found := false
	for i, line := range strings.Split(text, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 4 || !strings.HasPrefix(line, "| **") {
			continue
		}
		for _, name := range names(cells[2]) {
			found = true
			if !types[name] {
				bad = append(bad, Violation{fmt.Sprintf("%s:%d", glossary, i+1), "there is no type " + name, whyGlossary})
			}
		}
	}
	if !found {
		bad = append(bad, Violation{glossary, "no term names a type", whyGlossary})
	}
	return bad
}

// CheckNames finds names that have a refused word, with or without a final s: names of types, and exported
// names of functions, values and fields. instead has the words to use for each refused word.
func CheckNames(files []GoFile, instead map[string]string) []Violation {
	var bad []Violation
	for _, f := range files {
		if f.Test || f.Generated {
			continue
		}
		for _, id := range declared(f.AST) {
			if !id.isType && !id.IsExported() {
				continue
			}
			for _, word := range nameWords(id.Name) {
				better, refused := instead[word]
				if !refused {
					better, refused = instead[strings.TrimSuffix(word, "s")]
				}
				if refused {
					bad = append(bad, Violation{f.At(id), fmt.Sprintf("%s has the word %s; use %s", id.Name, word, better), path.Base(glossary) + " refuses it: " + whyGlossary})
				}
			}
		}
	}
	return bad
}

// declaration is a name where it is declared.
type declaration struct {
	*ast.Ident
	isType bool
}

// declared lists the names that a file declares: types, functions, methods, values outside of functions,
// and the fields and methods of types.
func declared(f *ast.File) []declaration {
	var all []declaration
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			all = append(all, declaration{Ident: d.Name})
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					all = append(all, declaration{spec.Name, true})
					all = append(all, members(spec.Type)...)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						all = append(all, declaration{Ident: name})
					}
				}
			}
		}
	}
	return all
}

// members lists the fields and methods in a type.
func members(t ast.Expr) []declaration {
	var all []declaration
	ast.Inspect(t, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType: // the names of parameters are local
			return false
		case *ast.Field:
			for _, name := range n.Names {
				all = append(all, declaration{Ident: name})
			}
		}
		return true
	})
	return all
}

// nameWords splits a name in mixed caps or with underscores into its words, in lower case: HTTPRouteName
// has http, route and name.
func nameWords(name string) []string {
	runes := []rune(name)
	var words []string
	start := 0
	cut := func(end int) {
		if word := strings.Trim(string(runes[start:end]), "_"); word != "" {
			words = append(words, strings.ToLower(word))
		}
		start = end
	}
	for i := 1; i < len(runes); i++ {
		lowerBefore := !unicode.IsUpper(runes[i-1])
		lowerAfter := i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if runes[i] == '_' || unicode.IsUpper(runes[i]) && (lowerBefore || lowerAfter) {
			cut(i)
		}
	}
	cut(len(runes))
	return words
}

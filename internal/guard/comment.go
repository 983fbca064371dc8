package guard

import (
	"go/ast"
	"regexp"
	"strings"
)

var (
	word = regexp.MustCompile(`\w+`)
	// camel has words with a capital letter inside; unexported is one that begins with a small letter. English has none.
	camel      = regexp.MustCompile(`^\w*[a-z0-9][A-Z]\w*$`)
	unexported = regexp.MustCompile(`^[a-z]+[A-Z]\w*$`)
)

const whyComments = "a reader looks for the name, and finds nothing or something else"

// CheckComments finds comments that renamed code has left behind. A function's comment begins with another
// function's name, or a comment names as unexported a function or type that is exported now.
func CheckComments(files []GoFile) []Violation {
	funcs, declared, used := map[string]bool{}, map[string]bool{}, map[string]bool{} // by folder and name
	quoted := map[string]bool{}
	for _, f := range files {
		for _, d := range f.AST.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				funcs[f.Dir+" "+d.Name.Name], declared[f.Dir+" "+d.Name.Name] = true, true
			case *ast.GenDecl:
				for _, name := range declaredNames(d) {
					declared[f.Dir+" "+name] = true
				}
			}
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				used[f.Dir+" "+n.Name] = true
			case *ast.BasicLit: // fields of JSON, say
				for _, w := range word.FindAllString(n.Value, -1) {
					quoted[w] = true
				}
			}
			return true
		})
	}
	var bad []Violation
	for _, f := range files {
		if f.Generated {
			continue
		}
		for _, d := range f.AST.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is {
				continue
			}
			first, name := word.FindString(fn.Doc.Text()), fn.Name.Name
			if first != name && (strings.EqualFold(first, name) || unexported.MatchString(first) || camel.MatchString(first) && funcs[f.Dir+" "+first]) {
				bad = append(bad, Violation{f.At(fn), "the comment of " + name + " begins with " + first, whyComments})
			}
		}
		for _, group := range f.AST.Comments {
			for _, c := range group.List {
				for _, w := range word.FindAllString(c.Text, -1) {
					if exported := strings.ToUpper(w[:1]) + w[1:]; unexported.MatchString(w) && !used[f.Dir+" "+w] && !quoted[w] && declared[f.Dir+" "+exported] {
						bad = append(bad, Violation{f.At(c), "a comment names " + w + ", which is " + exported, whyComments})
					}
				}
			}
		}
	}
	return bad
}

// declaredNames are the types, variables and constants of a declaration.
func declaredNames(d *ast.GenDecl) (names []string) {
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			names = append(names, s.Name.Name)
		case *ast.ValueSpec:
			for _, n := range s.Names {
				names = append(names, n.Name)
			}
		}
	}
	return names
}

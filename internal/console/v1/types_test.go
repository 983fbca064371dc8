package v1

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write types.ts")

// types.ts says to web pages what this package declares. A change of it is a change of what consoles answer.
func TestTypesForWebPages(t *testing.T) {
	got := typeScript(t)
	if *update {
		if err := os.WriteFile("types.ts", []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("types.ts")
	if err != nil || string(want) != got {
		t.Errorf("types.ts does not say what is declared (go test ./internal/console/v1 -update writes it): %v", err)
	}
}

// typeScript is every type that is declared here, file by file.
func typeScript(t *testing.T) string {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var types []*ast.TypeSpec
	values := map[string][]string{} // of the types with a few
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			g, is := d.(*ast.GenDecl)
			if !is {
				continue
			}
			for _, spec := range g.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					s.Doc = g.Doc
					types = append(types, s)
				case *ast.ValueSpec:
					if of, is := s.Type.(*ast.Ident); is {
						values[of.Name] = append(values[of.Name], s.Values[0].(*ast.BasicLit).Value)
					}
				}
			}
		}
	}
	b := &strings.Builder{}
	fmt.Fprintln(b, "// The answers of Fairlead's consoles. Written by `go test ./internal/console/v1 -update` from the declarations in Go.")
	for _, s := range types {
		fmt.Fprintln(b)
		comment(b, "", s.Doc)
		if of, is := s.Type.(*ast.StructType); is {
			writeInterface(b, s.Name.Name, of)
			continue
		}
		text := strings.Join(values[s.Name.Name], " | ")
		if text == "" {
			text = typeOf(s.Type)
		}
		fmt.Fprintf(b, "export type %s = %s;\n", s.Name, text)
	}
	return b.String()
}

func writeInterface(b *strings.Builder, name string, s *ast.StructType) {
	var extends []string
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 {
			extends = append(extends, typeOf(f.Type))
		}
	}
	fmt.Fprintf(b, "export interface %s", name)
	if len(extends) > 0 {
		fmt.Fprintf(b, " extends %s", strings.Join(extends, ", "))
	}
	fmt.Fprintln(b, " {")
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 {
			continue
		}
		comment(b, "  ", f.Doc)
		comment(b, "  ", f.Comment)
		tag, _ := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Lookup("json")
		field, options, _ := strings.Cut(tag, ",")
		text := typeOf(f.Type)
		switch f.Type.(type) {
		case *ast.ArrayType, *ast.MapType, *ast.StarExpr:
			if options == "" && text != "string" {
				text += " | null"
			}
		}
		if options != "" {
			field += "?"
		}
		fmt.Fprintf(b, "  %s: %s;\n", field, text)
	}
	fmt.Fprintln(b, "}")
}

// typeOf is a type as JSON has it.
func typeOf(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return typeOf(x.X)
	case *ast.ArrayType:
		if of, is := x.Elt.(*ast.Ident); is && of.Name == "byte" {
			return "string" // in base64
		}
		return typeOf(x.Elt) + "[]"
	case *ast.MapType:
		return "Record<" + typeOf(x.Key) + ", " + typeOf(x.Value) + ">"
	case *ast.SelectorExpr:
		if x.Sel.Name == "Duration" {
			return "number"
		}
		return "string" // an address, a time
	case *ast.Ident:
		switch {
		case x.Name == "string":
			return "string"
		case x.Name == "bool":
			return "boolean"
		case ast.IsExported(x.Name):
			return x.Name
		default:
			return "number"
		}
	}
	return "unknown"
}

func comment(b *strings.Builder, indent string, of *ast.CommentGroup) {
	for line := range strings.Lines(of.Text()) {
		fmt.Fprintf(b, "%s// %s\n", indent, strings.TrimSpace(line))
	}
}

package guard

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// use is a set of names of a package that pure code must not use; no names means
// that the package must not be imported at all.
type use struct {
	pkg   string // import path; /... covers what is below
	names []string
	but   []string // with no names: these are all right
	why   string
}

const (
	whyIO      = "a pure package does no input or output: what it needs comes in as arguments"
	whyClock   = "a pure package reads no clock: time comes in as an argument"
	whyRandom  = "a pure package makes no random choice: seeds come in as arguments"
	whyGlobals = "a pure package keeps no state between calls"
	whyOrder   = "a pure package starts no goroutine: the same input must give the same output"
)

var impure = []use{
	{pkg: "os/...", why: whyIO},
	{pkg: "net", why: whyIO},
	{pkg: "net/http/...", why: whyIO},
	{pkg: "net/rpc/...", why: whyIO},
	{pkg: "net/smtp", why: whyIO},
	{pkg: "io/ioutil", why: whyIO},
	{pkg: "syscall/...", why: whyIO},
	{pkg: "golang.org/x/sys/...", why: whyIO},
	{pkg: "log/...", why: whyIO},
	{pkg: "flag", why: whyIO},
	{pkg: "unsafe", why: whyIO},
	{pkg: "fmt", names: []string{"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"}, why: whyIO},
	{pkg: "time", names: []string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Sleep", "Local", "LoadLocation"}, why: whyClock},
	{pkg: "context", names: []string{"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"}, why: whyClock},
	{pkg: "crypto/rand", why: whyRandom},
	{pkg: "hash/maphash", why: whyRandom},
	{pkg: "math/rand", but: []string{"New", "NewSource", "Rand", "Source"}, why: whyRandom},
	{pkg: "math/rand/v2", but: []string{"New", "NewPCG", "NewChaCha8", "Rand", "Source", "PCG", "ChaCha8"}, why: whyRandom},
	{pkg: "sync/...", why: whyGlobals},
}

// constructors make values that nobody can change, or that nobody changes.
var constructors = []string{
	"errors.New", "fmt.Errorf", "regexp.MustCompile", "strings.NewReplacer",
	"netip.MustParseAddr", "netip.MustParsePrefix", "netip.AddrFrom4", "netip.AddrFrom16", "netip.PrefixFrom",
}

// CheckPurity looks at the files of pure packages, tests left out.
func CheckPurity(files []GoFile, t Tables) []Violation {
	var bad []Violation
	packages := map[string][]GoFile{}
	for _, f := range files {
		if rule, _, found := t.rule(f.Dir); found && rule.Pure && !f.Test {
			packages[f.Dir] = append(packages[f.Dir], f)
			bad = append(bad, checkUses(f)...)
		}
	}
	for _, pkg := range packages {
		bad = append(bad, checkGlobals(pkg)...)
	}
	return bad
}

// checkUses finds forbidden imports, names and statements in one file.
func checkUses(f GoFile) []Violation {
	var bad []Violation
	watched := map[string]use{} // by the name that the file uses
	for _, i := range f.Imports() {
		for _, u := range impure {
			if !matchesImport(u.pkg, i.Path) {
				continue
			}
			if len(u.names) == 0 && len(u.but) == 0 {
				bad = append(bad, Violation{fmt.Sprintf("%s:%d", f.Path, i.Line), "a pure package imports " + i.Path, u.why})
			} else {
				watched[i.Name] = u
			}
		}
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			bad = append(bad, Violation{f.At(n), "a pure package starts a goroutine", whyOrder})
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && id.Obj == nil && (id.Name == "print" || id.Name == "println") {
				bad = append(bad, Violation{f.At(n), "a pure package prints", whyIO})
			}
		case *ast.SelectorExpr:
			id, ok := n.X.(*ast.Ident)
			if !ok || id.Obj != nil { // a variable of that name, not the package
				return true
			}
			u, ok := watched[id.Name]
			if ok && (slices.Contains(u.names, n.Sel.Name) || len(u.names) == 0 && !slices.Contains(u.but, n.Sel.Name)) {
				bad = append(bad, Violation{f.At(n), fmt.Sprintf("a pure package uses %s.%s", u.pkg, n.Sel.Name), u.why})
			}
		}
		return true
	})
	return bad
}

func matchesImport(pattern, importPath string) bool {
	if base, all := strings.CutSuffix(pattern, "/..."); all {
		return covers(base, importPath)
	}
	return pattern == importPath
}

// checkGlobals finds package variables that are, or could become, state: those
// without a value, those made by a function that is not known to make constants,
// and those that some function writes to. It goes by names, not by types: a
// change through a method or an alias is not seen.
func checkGlobals(files []GoFile) []Violation {
	var bad []Violation
	globals := map[string]bool{}
	for _, f := range files {
		for _, decl := range f.AST.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && !f.Generated {
				bad = append(bad, Violation{f.At(fn), "a pure package has an init function", whyGlobals})
			}
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR || f.Generated {
				continue
			}
			for _, spec := range gen.Specs {
				value := spec.(*ast.ValueSpec) // the only kind below var
				for i, name := range value.Names {
					if name.Name == "_" {
						continue
					}
					globals[name.Name] = true
					if len(value.Values) != len(value.Names) || !constant(value.Values[i]) {
						bad = append(bad, Violation{f.At(name), fmt.Sprintf("the package variable %s is no constant table, error or pattern", name.Name), whyGlobals})
					}
				}
			}
		}
	}
	for _, f := range files {
		bad = append(bad, checkWrites(f, globals)...)
	}
	return bad
}

// constant reports whether an initialiser gives a value that stays as it is, as
// long as nobody writes to it.
func constant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit, *ast.CompositeLit, *ast.FuncLit, *ast.Ident, *ast.SelectorExpr:
		return true
	case *ast.ParenExpr:
		return constant(e.X)
	case *ast.UnaryExpr:
		return e.Op != token.AND && constant(e.X)
	case *ast.BinaryExpr:
		return constant(e.X) && constant(e.Y)
	case *ast.CallExpr:
		if _, conversion := e.Fun.(*ast.ArrayType); conversion {
			return true // []byte("...")
		}
		sel, ok := e.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, ok := sel.X.(*ast.Ident)
		return ok && slices.Contains(constructors, pkg.Name+"."+sel.Sel.Name)
	}
	return false
}

// checkWrites finds assignments to package variables or parts of them.
func checkWrites(f GoFile, globals map[string]bool) []Violation {
	var bad []Violation
	check := func(e ast.Expr, what string) {
		id := base(e)
		if id == nil || !globals[id.Name] {
			return
		}
		// Resolved to something else than this file's scope: a parameter or local variable of the same name.
		if id.Obj != nil && f.AST.Scope.Lookup(id.Name) != id.Obj {
			return
		}
		bad = append(bad, Violation{f.At(e), fmt.Sprintf("%s the package variable %s", what, id.Name), whyGlobals})
	}
	for _, decl := range f.AST.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					for _, left := range n.Lhs {
						check(left, "writes to")
					}
				}
			case *ast.IncDecStmt:
				check(n.X, "writes to")
			case *ast.RangeStmt:
				if n.Tok == token.ASSIGN {
					check(n.Key, "writes to")
					check(n.Value, "writes to")
				}
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					check(n.X, "takes the address of")
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && id.Obj == nil && (id.Name == "delete" || id.Name == "clear" || id.Name == "copy") && len(n.Args) > 0 {
					check(n.Args[0], "writes to")
				}
			}
			return true
		})
	}
	return bad
}

// base is the variable that an expression is a part of: a in a.b[c].
func base(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

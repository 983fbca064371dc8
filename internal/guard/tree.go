package guard

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of our module; import paths below it are ours.
const Module = "fairlead.dev"

// Tree is the repository as git sees it: tracked files and new ones that are not
// ignored.
type Tree struct {
	Root  string
	Paths []string // slash-separated, from the root
	Go    []GoFile
}

// GoFile is one parsed Go file.
type GoFile struct {
	Path      string // from the root
	Dir       string // the same without the file's name; the package's path below Module
	AST       *ast.File
	Set       *token.FileSet
	Lines     int
	Test      bool // a _test.go file, or part of a package that is for tests
	Generated bool
}

// Import is one import of a Go file.
type Import struct {
	Path string
	Name string // the name that the file uses for it
	Line int
}

// Load reads the tree at root. Files that are deleted but still tracked, and
// files in testdata, are left out; so is the Go code of modules below it, which
// nobody here can import and which is not compiled with the rest.
func Load(root string) (*Tree, error) {
	// safe.directory: the clone may belong to another user than the one who runs the tests.
	cmd := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list files of %s: %w", root, err)
	}
	t := &Tree{Root: root}
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
			t.Paths = append(t.Paths, name)
		}
	}
	for _, name := range t.Paths {
		if path.Ext(name) != ".go" || strings.Contains("/"+name, "/testdata/") || t.ofAnotherModule(name) {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		f, err := parseGo(name, source)
		if err != nil {
			return nil, err
		}
		t.Go = append(t.Go, f)
	}
	return t, nil
}

// ofAnotherModule reports whether a file is below a folder with a go.mod of its own.
func (t *Tree) ofAnotherModule(name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if slices.Contains(t.Paths, dir+"/go.mod") {
			return true
		}
	}
	return false
}

func parseGo(name string, source []byte) (GoFile, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.ParseComments)
	if err != nil {
		return GoFile{}, fmt.Errorf("parse %s: %w", name, err)
	}
	dir := path.Dir(name)
	return GoFile{
		Path:      name,
		Dir:       dir,
		AST:       file,
		Set:       set,
		Lines:     bytes.Count(source, []byte("\n")),
		Test:      strings.HasSuffix(name, "_test.go") || forTests(dir),
		Generated: ast.IsGenerated(file),
	}, nil
}

// forTests reports whether a folder holds a package that serves tests, by its
// name: envoytest, say.
func forTests(dir string) bool {
	base := path.Base(dir)
	return base != "test" && strings.HasSuffix(base, "test")
}

// Imports lists what the file imports.
func (f GoFile) Imports() []Import {
	imports := make([]Import, 0, len(f.AST.Imports))
	for _, spec := range f.AST.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser accepts only quoted paths
		}
		i := Import{Path: p, Name: guessName(p), Line: f.Set.Position(spec.Pos()).Line}
		if spec.Name != nil {
			i.Name = spec.Name.Name
		}
		imports = append(imports, i)
	}
	return imports
}

// guessName is the name of a package by the last element of its path, or the one
// before when that is a major version.
func guessName(p string) string {
	base := path.Base(p)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(p))
	}
	return base
}

// At is the place of a node, for violations.
func (f GoFile) At(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.Path, f.Set.Position(n.Pos()).Line)
}

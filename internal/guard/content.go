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
	maxLines = 600
	maxBytes = 1 << 20
)

// vagueNames say nothing about what a package holds.
var vagueNames = []string{"base", "common", "helper", "helpers", "lib", "misc", "shared", "util", "utils"}

// CheckFiles holds Go files against the rules of their room: length, a package's
// name and documentation, nothing left to do.
func CheckFiles(files []GoFile) []Violation {
	var bad []Violation
	documented := map[string]bool{}
	var order []string
	for _, f := range files {
		name := f.AST.Name.Name
		if slices.Contains(vagueNames, name) || slices.Contains(vagueNames, path.Base(f.Dir)) {
			bad = append(bad, Violation{f.Path, "the package is called " + name, "a package is named for what it holds"})
		}
		if f.Generated || strings.HasSuffix(f.Path, "_test.go") {
			continue
		}
		if f.Lines > maxLines {
			bad = append(bad, Violation{f.Path, fmt.Sprintf("%d lines", f.Lines), fmt.Sprintf("a file holds one idea; ask for a split at about %d lines", maxLines)})
		}
		if _, seen := documented[f.Dir]; !seen {
			documented[f.Dir] = false
			order = append(order, f.Dir)
		}
		if isPackageDoc(f.AST.Doc, name) {
			documented[f.Dir] = true
		}
	}
	for _, dir := range order {
		if !documented[dir] {
			bad = append(bad, Violation{dir, `no comment "Package <name> ..." or "Command <name> ..." above the package clause`, "a package says what it does, what it refuses to do, and its invariant"})
		}
	}
	return append(bad, checkLeftovers(files)...)
}

// partialLists are functions of Go's net that list interfaces or addresses.
var partialLists = []string{"Interfaces", "InterfaceAddrs", "InterfaceByName", "InterfaceByIndex"}

// CheckLists finds where lists of the kernel are read that may lack entries: of interfaces and
// addresses, by Go's own package. Tests and the lab are free to.
func CheckLists(files []GoFile) []Violation {
	var bad []Violation
	for _, f := range files {
		if f.Test || covers("lab", f.Dir) || covers("test", f.Dir) {
			continue
		}
		for _, i := range f.Imports() {
			if i.Path != "net" {
				continue
			}
			ast.Inspect(f.AST, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(partialLists, s.Sel.Name) {
					if id, ok := s.X.(*ast.Ident); ok && id.Obj == nil && id.Name == i.Name {
						bad = append(bad, Violation{f.At(n), "uses net." + s.Sel.Name, "a list that changed while it was read is not told from a whole one: see internal/rtdump"})
					}
				}
				return true
			})
		}
	}
	return bad
}

func isPackageDoc(doc *ast.CommentGroup, name string) bool {
	if doc == nil {
		return false
	}
	if name == "main" {
		return strings.HasPrefix(doc.Text(), "Command ")
	}
	return strings.HasPrefix(doc.Text(), "Package "+name+" ")
}

var leftover = regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)

func checkLeftovers(files []GoFile) []Violation {
	var bad []Violation
	for _, f := range files {
		if f.Generated {
			continue
		}
		for _, group := range f.AST.Comments {
			for _, comment := range group.List {
				if word := leftover.FindString(comment.Text); word != "" {
					bad = append(bad, Violation{f.At(comment), "a comment says " + word, "work that is left over belongs in the issue tracker, where somebody finds it"})
				}
			}
		}
	}
	return bad
}

// CheckSizes finds files that are too large for a repository.
func CheckSizes(t *Tree, allowed []string) ([]Violation, error) {
	var bad []Violation
	for _, name := range t.Paths {
		info, err := os.Lstat(filepath.Join(t.Root, name))
		if err != nil {
			return nil, err
		}
		if info.Size() > maxBytes && !slices.Contains(allowed, name) {
			bad = append(bad, Violation{name, fmt.Sprintf("%d bytes", info.Size()), "everybody downloads every version of a large file for ever"})
		}
	}
	return bad, nil
}

// CheckGenerated finds sources whose generated code is not there.
func CheckGenerated(t *Tree) ([]Violation, error) {
	var bad []Violation
	missing := func(source, generated string) {
		if !slices.Contains(t.Paths, generated) {
			bad = append(bad, Violation{source, generated + " is missing: run make generate", "a build needs neither protoc nor controller-gen"})
		}
	}
	for _, name := range t.Paths {
		base, isProto := strings.CutSuffix(name, ".proto")
		if !isProto {
			continue
		}
		text, err := os.ReadFile(filepath.Join(t.Root, name))
		if err != nil {
			return nil, err
		}
		missing(name, base+".pb.go")
		if regexp.MustCompile(`(?m)^service `).Match(text) {
			missing(name, base+"_grpc.pb.go")
		}
	}
	for _, f := range t.Go {
		for _, group := range f.AST.Comments {
			if group.End() < f.AST.Name.End() && strings.Contains(commentText(group), "+kubebuilder:object:generate=true") {
				missing(f.Path, f.Dir+"/zz_generated.deepcopy.go")
			}
		}
	}
	return bad, nil
}

// commentText is a group's text with its directives, which Text leaves out.
func commentText(group *ast.CommentGroup) string {
	var text strings.Builder
	for _, c := range group.List {
		text.WriteString(c.Text + "\n")
	}
	return text.String()
}

var recordName = regexp.MustCompile(`^docs/adr/(\d{4})-[a-z0-9-]+\.md$`)

// CheckRecords holds the names of decision records: four digits, each once.
func CheckRecords(paths []string) []Violation {
	var bad []Violation
	taken := map[string]string{}
	for _, name := range paths {
		if path.Dir(name) != "docs/adr" || name == "docs/adr/README.md" {
			continue
		}
		m := recordName.FindStringSubmatch(name)
		switch {
		case m == nil:
			bad = append(bad, Violation{name, "not named NNNN-words-in-lower-case.md", "records are found by their number"})
		case taken[m[1]] != "":
			bad = append(bad, Violation{name, "has the number of " + taken[m[1]], "records are found by their number"})
		default:
			taken[m[1]] = name
		}
	}
	return bad
}

// CheckRecordIndex wants a link in docs/adr/README.md, with the record's title, for
// every decision record.
func CheckRecordIndex(t *Tree) ([]Violation, error) {
	index, err := os.ReadFile(filepath.Join(t.Root, "docs/adr/README.md"))
	if err != nil {
		return nil, err
	}
	var bad []Violation
	for _, name := range t.Paths {
		if !recordName.MatchString(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(t.Root, name))
		if err != nil {
			return nil, err
		}
		heading, _, _ := strings.Cut(string(text), "\n")
		entry := fmt.Sprintf("[%s](%s)", strings.TrimPrefix(heading, "# "), path.Base(name))
		if strings.Count(string(index), entry) != 1 {
			bad = append(bad, Violation{name, "docs/adr/README.md lacks " + entry, "records are found by their subject"})
		}
	}
	return bad, nil
}

package guard

import (
	"strings"
	"testing"
)

func TestReadingOrders(t *testing.T) {
	const (
		bullets = "// Package a is one. It opens files in order.\n//\n// Read the files in this order; each calls only later ones:\n//   - a.go, b.go: what c.go needs,\n//     and more\n//   - d.go;\n//   - e.go\n//\n// The example is in f.go.\npackage a\n"
		table   = "// Package a is one.\n//\n// A file calls files after it in this order, and none before it:\n//\n//\ta, b,   the first\n//\tc\n//\t        and the last\n//\td, e    of them\n//\n// The rest follows.\npackage a\n"
	)
	for name, doc := range map[string]string{"bullets": bullets, "table": strings.Replace(table, "//\tc\n", "", 1)} {
		t.Run(name, func(t *testing.T) {
			files := []GoFile{source(t, "internal/a/doc.go", doc), source(t, "internal/a/a_test.go", "package a\n"), source(t, "internal/b/b.go", "package b\n")}
			for _, file := range []string{"a", "b", "d", "e"} {
				files = append(files, source(t, "internal/a/"+file+".go", "package a\n"))
			}
			expect(t, CheckReadingOrders(files), "")
			expect(t, CheckReadingOrders(files[:len(files)-1]), "has e.go, which is not there")
			expect(t, CheckReadingOrders(append(files, source(t, "internal/a/g.go", "package a\n"))), "lacks g.go")
		})
	}
	twice := source(t, "internal/a/doc.go", strings.Replace(bullets, "d.go", "a.go, d.go", 1))
	files := []GoFile{twice}
	for _, file := range []string{"a", "b", "d", "e"} {
		files = append(files, source(t, "internal/a/"+file+".go", "package a\n"))
	}
	expect(t, CheckReadingOrders(files), "has a.go twice")
}

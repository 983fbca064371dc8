package guard

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	includes   = regexp.MustCompile(`(?m)^#include "([^"]+)"`)
	listed     = regexp.MustCompile("`([a-z0-9]+\\.[ch])`")
	prototypes = regexp.MustCompile(`(?m)^(?:static |__noinline |int |void |long |bool |struct |__u)[^={};\n]*\w\([^={};\n]*\);`)
)

// The C headers of bpf can be read in an order: none includes itself, however far around, and none
// declares a function that a later one defines. What is in lib includes nothing outside, and no
// purpose of programs includes another's headers.
func TestHeadersFormAnOrder(t *testing.T) {
	dir := filepath.Join("..", "..", "bpf")
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(name, ".h") && !strings.HasSuffix(name, ".c") {
			return err
		}
		text, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		files[filepath.ToSlash(rel)] = string(text)
		return err
	})
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	of := func(name string) (list []string) {
		for _, m := range includes.FindAllStringSubmatch(files[name], -1) {
			list = append(list, path.Join(path.Dir(name), m[1]))
		}
		return list
	}
	done := map[string]bool{}
	var read func(name string, above []string)
	read = func(name string, above []string) {
		above = append(above, name)
		for _, a := range above[:len(above)-1] {
			if a == name {
				t.Errorf("a circle: %s", strings.Join(above, " -> "))
				return
			}
		}
		if done[name] {
			return
		}
		for _, next := range of(name) {
			if _, there := files[next]; !there {
				t.Errorf("%s includes %s, which is not there", name, next)
				continue
			}
			from, to := path.Dir(name), path.Dir(next)
			if from != "." && to != from && to != "lib" {
				t.Errorf("%s includes %s: the headers of %s include those of %s and of lib only", name, next, from, from)
			}
			read(next, above)
		}
		done[name] = true
	}
	for name, text := range files {
		read(name, nil)
		if m := prototypes.FindString(text); m != "" && strings.HasSuffix(name, ".h") {
			t.Errorf("%s declares %q: include the header that defines it", name, m)
		}
	}
	// The tables of the page list each folder's files so that none comes before what it includes.
	page, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	known, folder := map[string]bool{}, ""
	for line := range strings.Lines(string(page)) {
		cell, _, table := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !table || !strings.HasPrefix(line, "| `") {
			continue
		}
		if strings.HasSuffix(cell, "/`") {
			folder = strings.Trim(cell, "`/")
			continue
		}
		for _, m := range listed.FindAllStringSubmatch(cell, -1) {
			name := path.Join(folder, m[1])
			for _, next := range of(name) {
				if !known[next] {
					t.Errorf("bpf/README.md lists %s before %s, which it includes", name, next)
				}
			}
			known[name] = true
		}
	}
	for name := range files {
		if path.Dir(name) != "." && !known[name] {
			t.Errorf("bpf/README.md does not list %s", name)
		}
	}
}

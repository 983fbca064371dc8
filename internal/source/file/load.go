package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Warning is something that was left out.
type Warning struct {
	Where string // "file:line"
	What  string
	// Field says that it is a field that its kind does not have: mostly a slip of the pen, which an API leaves
	// out as well.
	Field bool
}

// String is "file:line: what".
func (w Warning) String() string { return w.Where + ": " + w.What }

// Faults is the error of objects that are not in the snapshot, though their files could be read.
type Faults struct {
	Found   []error // all that was found wrong, each with "file:line"; never empty
	Objects int     // that were left out: documents, and items of lists
}

// Error has a line for each fault.
func (f *Faults) Error() string { return errors.Join(f.Found...).Error() }

// Unwrap returns the faults.
func (f *Faults) Unwrap() []error { return f.Found }

// Load reads every path: a file, a directory with all its *.yaml, *.yml and *.json
// files below, or Stdin, which is read from stdin. It also says where each object stands. With an error that is Faults the snapshot
// has all other objects; with any other, which joins what could not be read and all faults, it is nil. Of Secrets and
// ConfigMaps it holds what snapshot.Trim and snapshot.TrimConfigMap leave.
func Load(stdin io.Reader, paths ...string) (*snapshot.Snapshot, Positions, []Warning, error) {
	l := newLoader()
	s, err := l.load(stdin, paths)
	return s, Positions{l.seen}, l.warnings, err
}

// loader collects what is found.
type loader struct {
	snapshot        *snapshot.Snapshot
	secretNamespace string
	seen            map[snapshot.Key]lines // where each object stood
	warnings        []Warning
	unread          []error // files
	faults          Faults
}

func newLoader() *loader {
	return &loader{snapshot: snapshot.New(), secretNamespace: v1alpha1.SystemNamespace, seen: map[snapshot.Key]lines{}}
}

func (l *loader) load(stdin io.Reader, paths []string) (*snapshot.Snapshot, error) {
	for _, path := range paths {
		l.path(stdin, path)
	}
	switch {
	case len(l.unread) > 0:
		return nil, errors.Join(append(l.unread, l.faults.Found...)...)
	case len(l.faults.Found) > 0:
		return l.snapshot, &l.faults
	}
	return l.snapshot, nil
}

// fail says what is wrong with an object.
func (l *loader) fail(where, format string, args ...any) {
	l.faults.Found = append(l.faults.Found, fmt.Errorf("%s: "+format, append([]any{where}, args...)...))
}

func (l *loader) path(stdin io.Reader, path string) {
	if path == Stdin {
		text, err := io.ReadAll(stdin)
		if err != nil {
			l.unread = append(l.unread, fmt.Errorf("standard input: %w", err))
			return
		}
		l.text("standard input", string(text))
		return
	}
	files, err := manifests(path)
	if err != nil {
		l.unread = append(l.unread, fmt.Errorf("look for manifests: %w", err))
		return
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			l.unread = append(l.unread, fmt.Errorf("read manifest: %w", err))
			continue
		}
		l.text(name, string(text))
	}
}

// manifests lists the files that a path means, in the order of their names. Of a
// directory, what is hidden is left out.
func manifests(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != path && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			files = append(files, name)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no *.yaml, *.yml or *.json file", path)
	}
	return files, err
}

// document is one YAML document of a file.
type document struct {
	line int // where it begins in the file, from 1
	text string
}

// split cuts a text at its document markers, lines of "---" and "...": they mark
// inside of block texts too (YAML 1.2, section 9.1.2).
func split(text string) []document {
	var documents []document
	current := document{line: 1}
	for i, line := range strings.SplitAfter(text, "\n") {
		marker := strings.TrimRight(line, "\r\n")
		if marker == "..." {
			documents = append(documents, current)
			current = document{line: i + 2}
			continue
		}
		if marker == "---" || strings.HasPrefix(marker, "--- ") || strings.HasPrefix(marker, "---\t") {
			documents = append(documents, current)
			// What follows the marker on its line belongs to the document.
			current = document{line: i + 1, text: "   " + line[3:]}
			continue
		}
		current.text += line
	}
	return append(documents, current)
}

package translate

import (
	"bufio"
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

var updateGoldens = flag.Bool("update", false, "write what is said into the golden cases; read them before you commit")

func newLineReader(text []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(text)) }

// TestGolden translates each case of testdata: a comment, YAML inputs (*.yaml), a
// configuration (config, optional), the time (now, optional) and the expected result (want). Secrets may say
// "CERTIFICATE name..." and "KEY name..." of certificates. Assignments are
// those that a plane would have recorded, unless there is a file named unrecorded.
func TestGolden(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(cases) < 20 {
		t.Fatalf("found %d cases: %v", len(cases), err)
	}
	for _, name := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) { golden(t, name) })
	}
}

func golden(t *testing.T, name string) {
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(bytes.TrimSpace(archive.Comment)) == 0 {
		t.Error("the case does not say what it shows")
	}
	s := snapshot.New()
	var config input.Config
	var want *txtar.File
	unrecorded := false
	for i, f := range archive.Files {
		switch {
		case filepath.Ext(f.Name) == ".yaml":
			readYAML(t, s, f.Data)
		case f.Name == "config":
			if err := yaml.UnmarshalStrict(f.Data, &config); err != nil {
				t.Fatal(err)
			}
		case f.Name == "now":
			if s.Now, err = time.Parse(time.RFC3339, strings.TrimSpace(string(f.Data))); err != nil {
				t.Fatal(err)
			}
		case f.Name == "unrecorded":
			unrecorded = true
		case f.Name == "want":
			want = &archive.Files[i]
		default:
			t.Fatalf("unexpected file %s", f.Name)
		}
	}
	if want == nil {
		t.Fatal("the case expects nothing")
	}
	tr := full(config, s)
	if !unrecorded {
		tr = Converge(config, s)
	}
	got := text(tr)
	if *updateGoldens {
		want.Data = []byte(got)
		out := txtar.Format(archive)
		if lines := bytes.Count(out, []byte("\n")); lines >= 150 {
			t.Errorf("%d lines: a case must stay readable, under 150", lines)
		}
		if err := os.WriteFile(name, out, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != string(want.Data) {
		t.Error(lineDiff(string(want.Data), got))
	}
	if text, err := os.ReadFile(name); err != nil || bytes.Count(text, []byte("\n")) >= 150 {
		t.Errorf("a case must stay readable, under 150 lines (%v)", err)
	}
}

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRealRun feeds it what `go test -json` really prints for packages that pass,
// fail, skip, panic and do not compile.
func TestRealRun(t *testing.T) {
	files := map[string]string{
		"go.mod": "module example.test\n\ngo 1.26\n",
		"good/good_test.go": `package good
import "testing"
func TestPlain(t *testing.T) {}
func TestParts(t *testing.T) { t.Run("one", func(t *testing.T) {}); t.Run("two", func(t *testing.T) {}) }
func TestSkipped(t *testing.T) { t.Skip("needs a moon that is", "full") }`,
		"bad/bad_test.go": `package bad
import "testing"
func TestBroken(t *testing.T) { t.Run("part", func(t *testing.T) { t.Error("two and two is", 5) }); t.Run("fine", func(t *testing.T) {}) }
func TestFine(t *testing.T) { t.Log("never shown") }`,
		"panics/panics_test.go": "package panics\nimport \"testing\"\nfunc TestPanic(t *testing.T) { panic(\"ouch\") }",
		"exits/exits_test.go":   "package exits\nimport (\"os\"; \"testing\")\nfunc TestMain(m *testing.M) { os.Exit(3) }\nfunc TestNever(t *testing.T) {}",
		"broken/broken_test.go": "package broken\nimport \"testing\"\nfunc TestNothing(t *testing.T) { undefinedName() }",
		"none/none.go":          "package none",
	}
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "./...")
	cmd.Dir = dir
	events, _ := cmd.Output() // its exit status is that of the failing tests
	out, ok := summarise(t, string(events), allowList{all: true})
	if ok {
		t.Error("a run with failures is called good")
	}
	for _, want := range []string{
		"ok    example.test/good ",
		"3 passed, 1 skipped",
		"example.test/good TestSkipped: needs a moon that is full\n",
		"FAIL  example.test/bad ",
		"two and two is 5",
		"panic: ouch",
		"undefined: undefinedName",
		"failed:\n",
		"  example.test/bad TestBroken/part\n      bad_test.go:",
		"  example.test/exits\n",
		"  example.test/broken\n",
		"  example.test/panics TestPanic\n",
		"\n5 passed, 4 failed, 1 skipped\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, never := range []string{"never shown", "example.test/none", "=== RUN"} {
		if strings.Contains(out, never) {
			t.Errorf("%q should not be printed", never)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestVerdict(t *testing.T) {
	const (
		started = `{"Action":"start","Package":"p"}` + "\n"
		passed  = `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n"
		ended   = `{"Action":"pass","Package":"p","Elapsed":1.5}` + "\n"
		skipped = `{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: needs root\n"}` + "\n" +
			`{"Action":"skip","Package":"p","Test":"TestB"}` + "\n"
	)
	rootOnly := allowList{rows: []allowedSkip{{"*", "*", "needs root"}}}
	tests := []struct {
		name, events string
		allowed      allowList
		good         bool
		want         string
	}{
		{"all passed", started + passed + ended, allowList{}, true, "1 passed, 0 failed, 0 skipped\n"},
		{"allowed skip", started + passed + skipped + ended, rootOnly, true, "1 passed, 0 failed, 1 skipped\n"},
		{"skip not on the list", started + passed + skipped + ended, allowList{}, false, "1 of the skips are not allowed"},
		{"stream cut off", started + passed, allowList{}, false, "started, but never ended"},
		{"nothing ran", "", allowList{}, false, "no test ran"},
		{"package without tests", started + ended, allowList{}, false, "no test ran"},
		{"words that are no events", "go: downloading x\n" + started + passed + ended, allowList{}, true, "go: downloading x\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, good := summarise(t, tt.events, tt.allowed)
			if good != tt.good {
				t.Errorf("good = %v, want %v", good, tt.good)
			}
			if !strings.Contains(out, tt.want) {
				t.Errorf("output has no %q:\n%s", tt.want, out)
			}
		})
	}
}

func TestAllowList(t *testing.T) {
	const text = "# a comment\n\nalways example.test/* TestBig no kernel support\nnot-root * * needs root\n"
	user, err := parseAllowList(text, false)
	if err != nil {
		t.Fatal(err)
	}
	root, err := parseAllowList(text, true)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		pkg, test, reason string
		user, root        bool
	}{
		{"example.test/a", "TestBig", "no kernel support for XDP here", true, true},
		{"example.test/a", "TestBig", "too slow", false, false},
		{"example.test/a/b", "TestBig", "no kernel support", false, false},
		{"example.test/a", "TestSmall", "no kernel support", false, false},
		{"other.test/a/b", "TestAny/sub", "needs root", true, false},
	}
	for _, tt := range tests {
		if got := user.allows(tt.pkg, tt.test, tt.reason); got != tt.user {
			t.Errorf("without root: allows(%s, %s, %q) = %v", tt.pkg, tt.test, tt.reason, got)
		}
		if got := root.allows(tt.pkg, tt.test, tt.reason); got != tt.root {
			t.Errorf("as root: allows(%s, %s, %q) = %v", tt.pkg, tt.test, tt.reason, got)
		}
	}
	for _, bad := range []string{"always * *", "sometimes * * why", "always [ * why"} {
		if _, err := parseAllowList(bad, true); err == nil {
			t.Errorf("parseAllowList(%q) finds no fault", bad)
		}
	}
}

func summarise(t *testing.T, events string, allowed allowList) (string, bool) {
	t.Helper()
	var out bytes.Buffer
	s := newSummary(&out, allowed)
	if err := s.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	good := s.finish()
	return out.String(), good
}

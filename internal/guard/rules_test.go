package guard

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const architecture = "<!-- imports: begin -->\n" +
	"| Package | What | May import | Pure | Because |\n|---|---|---|---|---|\n" +
	"| `proto` | p | nothing | | wire |\n" +
	"| `internal/model` | m | nothing | yes | words |\n" +
	"| `internal/plan` | p | `model` | yes | plans |\n" +
	"| `internal/driver/*` | d | `model`, `deploy/crd` | | alone |\n" +
	"| `internal/driver/lb/*` | d | `model` | | one contract |\n" +
	"| `lab` | l | anything but `cmd` | | drives |\n" +
	"| `cmd` | c | anything | | wiring |\n" +
	"<!-- imports: end -->\n<!-- modules: begin -->\n" +
	"| Module | Only in | Because |\n|---|---|---|\n" +
	"| `k8s.io` | `lab` | nouns |\n" +
	"| `k8s.io/kubernetes` | `internal/driver` | heavy |\n" +
	"<!-- modules: end -->\n"

func tables(t *testing.T) Tables {
	t.Helper()
	parsed, err := ParseTables(architecture)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func source(t *testing.T, name, text string) GoFile {
	t.Helper()
	f, err := parseGo(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// expect compares violations with what they must mention; "" means that there is none.
func expect(t *testing.T, bad []Violation, want string) {
	t.Helper()
	var all []string
	for _, v := range bad {
		all = append(all, v.String())
	}
	text := strings.Join(all, "\n")
	if (want == "") != (text == "") || !strings.Contains(text, want) {
		t.Errorf("violations:\n%s\nwant: %q", text, want)
	}
}

func TestPermissions(t *testing.T) {
	of := func(name, imports string) GoFile {
		return source(t, name, "package a\n\nimport _ \"fairlead.dev/"+imports+"\"\n")
	}
	model := source(t, "internal/model/model.go", "package model\n")
	// The one of a row without code, and those of code that is not there, are for what is to come.
	expect(t, CheckPermissions([]GoFile{model}, tables(t)), "")
	expect(t, CheckPermissions([]GoFile{model, of("internal/plan/plan.go", "internal/model/deep")}, tables(t)), "")
	expect(t, CheckPermissions([]GoFile{model, of("internal/plan/plan_test.go", "internal/model")}, tables(t)), "")
	expect(t, CheckPermissions([]GoFile{model, of("internal/plan/plan.go", "lab")}, tables(t)), "internal/plan may import internal/model and does not")
	// One of the rooms that a row covers is enough.
	expect(t, CheckPermissions([]GoFile{model, of("internal/driver/l2/a.go", "lab"), of("internal/driver/bgp/a.go", "internal/model")}, tables(t)), "")
}

func TestImports(t *testing.T) {
	tests := []struct{ name, file, imports, want string }{
		{"allowed", "internal/plan/plan.go", "fairlead.dev/internal/model", ""},
		{"allowed, below", "internal/plan/deep/plan.go", "fairlead.dev/internal/model/deep", ""},
		{"own room", "internal/plan/plan.go", "fairlead.dev/internal/plan/deep", ""},
		{"not allowed", "internal/plan/plan.go", "fairlead.dev/proto/v1", "internal/plan may import internal/model\n\tbecause plans"},
		{"a name that only begins alike", "internal/plan/plan.go", "fairlead.dev/internal/modelled", "imports internal/modelled"},
		{"nothing", "internal/model/model.go", "fairlead.dev/proto/v1", "may import nothing of ours"},
		{"a driver its neighbour", "internal/driver/bgp/a.go", "fairlead.dev/internal/driver/l2", "because alone"},
		{"a driver its own part", "internal/driver/bgp/a.go", "fairlead.dev/internal/driver/bgp/frr", ""},
		{"the most specific row", "internal/driver/lb/xdp/a.go", "fairlead.dev/deploy/crd", "because one contract"},
		{"a data plane another", "internal/driver/lb/xdp/a.go", "fairlead.dev/internal/driver/lb/nft", "because one contract"},
		{"full names", "internal/driver/bgp/a.go", "fairlead.dev/deploy/crd", ""},
		{"anything", "lab/lab.go", "fairlead.dev/internal/driver/bgp", ""},
		{"anything but", "lab/lab.go", "fairlead.dev/cmd/fairlead", "anything but cmd"},
		{"nobody imports cmd", "internal/plan/plan.go", "fairlead.dev/cmd/fairlead", "because plans"},
		{"no row", "internal/new/new.go", "fmt", "no row"},
		{"tests use real things", "internal/plan/plan_test.go", "fairlead.dev/lab", ""},
		{"tests use pure packages", "internal/model/model_test.go", "fairlead.dev/internal/plan", ""},
		{"tests obey the table", "internal/model/model_test.go", "fairlead.dev/internal/driver/bgp", "because words"},
		{"tests use packages for tests", "internal/plan/plan_test.go", "fairlead.dev/internal/driver/bgp/bgptest", ""},
		{"the lab too", "lab/lab.go", "fairlead.dev/internal/driver/bgp/bgptest", ""},
		{"code does not use packages for tests", "internal/driver/bgp/a.go", "fairlead.dev/internal/driver/bgp/bgptest", "is for tests"},
		{"nor does cmd", "cmd/fairlead/a.go", "fairlead.dev/internal/driver/bgp/bgptest", "is for tests"},
		{"code does not know testing", "lab/lab.go", "testing", "no test imports testing"},
		{"tests know testing", "lab/lab_test.go", "testing", ""},
		{"module in its place", "lab/lab.go", "k8s.io/client-go/rest", ""},
		{"module elsewhere", "internal/plan/plan.go", "k8s.io/client-go/rest", "because nouns"},
		{"the most specific module", "lab/lab.go", "k8s.io/kubernetes/cmd", "because heavy"},
		{"module in a test", "internal/plan/plan_test.go", "k8s.io/client-go/rest", ""},
		{"other modules", "internal/plan/plan.go", "example.test/thing", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := source(t, tt.file, "package p\nimport _ \""+tt.imports+"\"\n")
			expect(t, CheckImports([]GoFile{f}, tables(t)), tt.want)
		})
	}
}

func TestPurity(t *testing.T) {
	tests := []struct{ name, code, want string }{
		{"tables, errors, patterns", `import ("errors"; "regexp"; "net/netip")
			var ErrX = errors.New("x"); var word = regexp.MustCompile("a"); var table = map[string]int{"a": 1}
			var local = netip.MustParseAddr("::1"); var _ error = ErrX; var raw = []byte("x")
			func F(table map[string]int) { table["b"] = 2; ErrX := 1; ErrX++; _ = ErrX }`, ""},
		{"durations", `import "time"; const D = time.Second; func F(now time.Time) time.Time { return now.Add(D) }`, ""},
		{"a seed comes in", `import "math/rand/v2"; func F(r *rand.Rand) int { return r.IntN(5) }`, ""},
		{"a local called os", `type t struct{ Now int }; func F() int { time := t{}; return time.Now }`, ""},
		{"files", `import "os"; var _ = os.Args`, "imports os"},
		{"below os", `import "os/exec"; var _ = exec.ErrDot`, "imports os/exec"},
		{"sockets", `import "net"; type T net.Conn`, "imports net"},
		{"addresses", `import "net/netip"; type T netip.Addr`, ""},
		{"log", `import "log/slog"; type T slog.Logger`, "imports log/slog"},
		{"locks", `import "sync"; type T sync.Mutex`, "imports sync"},
		{"clock", `import "time"; func F() time.Time { return time.Now() }`, "uses time.Now"},
		{"clock under another name", `import clock "time"; func F() clock.Time { return clock.Now() }`, "uses time.Now"},
		{"clock as a value", `import "time"; func F() func() time.Time { return time.Now }`, "uses time.Now"},
		{"deadline", `import "context"; func F() { context.WithTimeout(nil, 0) }`, "uses context.WithTimeout"},
		{"random", `import "math/rand/v2"; func F() int { return rand.IntN(5) }`, "rand/v2.IntN"},
		{"random hash", `import "hash/maphash"; type T maphash.Hash`, "imports hash/maphash"},
		{"printing", `import "fmt"; func F() { fmt.Println() }`, "uses fmt.Println"},
		{"formatting", `import "fmt"; func F() string { return fmt.Sprint() }`, ""},
		{"print", `func F() { println("x") }`, "prints"},
		{"goroutine", `func F() { go F() }`, "starts a goroutine"},
		{"init", `func init() {}`, "init function"},
		{"empty variable", `var n int`, "variable n is no constant"},
		{"made by a function", `func f() int { return 1 }; var n = f()`, "variable n is no constant"},
		{"pointer", `type t struct{}; var p = &t{}`, "variable p is no constant"},
		{"written", `var n = 1; func F() { n = 2 }`, "writes to the package variable n"},
		{"counted", `var n = 1; func F() { n++ }`, "writes to the package variable n"},
		{"entry written", `var m = map[int]int{}; func F() { m[1] = 2 }`, "writes to the package variable m"},
		{"entry deleted", `var m = map[int]int{}; func F() { delete(m, 1) }`, "writes to the package variable m"},
		{"field written", `type t struct{ a []int }; var s = t{}; func F() { s.a[0]++ }`, "writes to the package variable s"},
		{"address taken", `var n = 1; func F() *int { return &n }`, "takes the address of the package variable n"},
		{"written by range", `var n = 1; func F() { for n = range 3 { _ = n } }`, "writes to the package variable n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := source(t, "internal/model/a.go", "package model\n"+tt.code)
			expect(t, CheckPurity([]GoFile{f}, tables(t)), tt.want)
			f = source(t, "internal/driver/bgp/a.go", "package bgp\n"+tt.code)
			expect(t, CheckPurity([]GoFile{f}, tables(t)), "")
			f = source(t, "internal/model/a_test.go", "package model\n"+tt.code)
			expect(t, CheckPurity([]GoFile{f}, tables(t)), "")
		})
	}
	t.Run("written in another file", func(t *testing.T) {
		a := source(t, "internal/model/a.go", "package model\nvar n = 1")
		b := source(t, "internal/model/b.go", "package model\nfunc F() { n = 2 }")
		expect(t, CheckPurity([]GoFile{a, b}, tables(t)), "internal/model/b.go:2: writes to")
	})
}

func TestFiles(t *testing.T) {
	long := strings.Repeat("\n", maxLines)
	generated := "// Code generated by hand. DO NOT EDIT.\n\n"
	tests := []struct{ name, file, text, want string }{
		{"documented", "a/a.go", "// Package a does it.\npackage a", ""},
		{"command", "cmd/a/main.go", "// Command a does it.\npackage main", ""},
		{"no document", "a/a.go", "package a", "no comment"},
		{"another package's document", "a/a.go", "// Package b does it.\npackage a", "no comment"},
		{"a comment that is apart", "a/a.go", "// Package a does it.\n\npackage a", "no comment"},
		{"only a test", "a/a_test.go", "package a" + long, ""},
		{"generated", "a/a.go", generated + "package a" + long, ""},
		{"long", "a/a.go", "// Package a does it.\npackage a" + long, "601 lines"},
		{"vague package", "a/a.go", "// Package util does it.\npackage util", "is called util"},
		{"vague folder", "helpers/a_test.go", "package a", "named for what it holds"},
		{"left over", "a/a_test.go", "package a\n// TO" + "DO: more", "a/a_test.go:2: a comment says TO" + "DO"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, CheckFiles([]GoFile{source(t, tt.file, tt.text)}), tt.want)
		})
	}
}

func TestLists(t *testing.T) {
	const uses = "package a\nimport \"net\"\nfunc f() { net.Interfaces() }"
	for _, tt := range []struct{ file, text, want string }{
		{"cmd/fairlead/a.go", uses, "cmd/fairlead/a.go:3: uses net.Interfaces"},
		{"internal/agent/a.go", "package a\nimport stdnet \"net\"\nvar _, _ = stdnet.InterfaceByName(\"lo\")", "uses net.InterfaceByName"},
		{"internal/agent/a.go", "package a\nimport \"net\"\nvar _, _ = net.ParseMAC(\"\")", ""},
		{"internal/agent/a_test.go", uses, ""},
		{"lab/a.go", uses, ""},
	} {
		expect(t, CheckLists([]GoFile{source(t, tt.file, tt.text)}), tt.want)
	}
}

func TestRecords(t *testing.T) {
	expect(t, CheckRecords([]string{"docs/adr/README.md", "docs/adr/0001-a.md", "docs/adr/0002-b.md", "docs/a.md"}), "")
	expect(t, CheckRecords([]string{"docs/adr/0001-a.md", "docs/adr/0001-b.md"}), "has the number of docs/adr/0001-a.md")
	expect(t, CheckRecords([]string{"docs/adr/1-a.md"}), "not named")
}

// TestTree makes a real git checkout with faults that only a tree can have.
func TestTree(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		".gitignore":               "ignored.go\n",
		"ignored.go":               "this is no Go",
		"testdata/broken.go":       "nor is this",
		"large.bin":                strings.Repeat("x", maxBytes+1),
		"fine.bin":                 strings.Repeat("x", maxBytes),
		"proto/a.proto":            "message A {}\nservice S {}\n",
		"proto/a.pb.go":            "package a",
		"api/doc.go":               "// Package api is.\n//\n// +kubebuilder:object:generate=true\npackage api",
		"docs/a.md":                "# The head, here\n[ok](b.md) [ok](#the-head-here) [ok](../api) [ok](/proto/a.proto) [ok](https://x.test/y)\n`[code](no)`\n```\n[code](no)\n```\n![picture](none.svg)\n",
		"docs/b.md":                "# B\n[gone](gone.md)\n[heading](a.md#nothing)\n<img src=\"no.png\">\n",
		"docs/adr/README.md":       "[1. Listed](0001-listed.md) [2. Another title](0002-renamed.md)\n",
		"docs/adr/0001-listed.md":  "# 1. Listed\n",
		"docs/adr/0002-renamed.md": "# 2. Renamed\n",
		"docs/adr/0003-missing.md": "# 3. Missing\n",
	}
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	tree, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(tree.Paths, "ignored.go") || len(tree.Go) != 2 {
		t.Errorf("loaded %d Go files of %v", len(tree.Go), tree.Paths)
	}

	check := func(bad []Violation, err error, wants ...string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if len(bad) != len(wants) {
			t.Errorf("%d violations, want %d: %v", len(bad), len(wants), bad)
		}
		for _, want := range wants {
			if !slices.ContainsFunc(bad, func(v Violation) bool { return strings.Contains(v.String(), want) }) {
				t.Errorf("no violation says %q: %v", want, bad)
			}
		}
	}
	bad, err := CheckSizes(tree, nil)
	check(bad, err, "large.bin: 1048577 bytes")
	bad, err = CheckSizes(tree, []string{"large.bin"})
	check(bad, err)
	bad, err = CheckGenerated(tree)
	check(bad, err, "proto/a_grpc.pb.go is missing", "api/zz_generated.deepcopy.go is missing")
	bad, err = CheckRecordIndex(tree)
	check(bad, err, "lacks [2. Renamed](0002-renamed.md)", "lacks [3. Missing](0003-missing.md)")
	bad, err = CheckLinks(tree)
	check(bad, err, "docs/a.md:7: links to docs/none.svg", "docs/b.md:2: links to docs/gone.md", "#nothing, which is no heading", "docs/b.md:4: links to docs/no.png")
}

func TestParseTablesRefuses(t *testing.T) {
	tests := []struct{ name, old, new string }{
		{"no table", "<!-- imports: begin -->", ""},
		{"no end", "<!-- modules: end -->", ""},
		{"a column too few", "| `proto` | p |", "| `proto` |"},
		{"no reason", "| | wire |", "| | |"},
		{"unreadable permission", "| p | nothing |", "| p | whatever |"},
		{"unreadable purity", "| yes | words", "| no | words"},
		{"two rooms in a row", "| `proto` |", "| `proto`, `api` |"},
		{"module without a place", "| `lab` | nouns", "| lab | nouns"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(architecture, tt.old, tt.new, 1)
			if text == architecture {
				t.Fatal("the case changes nothing")
			}
			if _, err := ParseTables(text); err == nil {
				t.Error("finds no fault")
			}
		})
	}
}

// TestPromises makes a table with a row for each fault.
func TestPromises(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "docs/dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	tree := &Tree{
		Root: dir, Paths: []string{"internal/translate/testdata/a-case.txtar"},
		Go: []GoFile{source(t, "internal/plane/a_test.go", "package plane\nfunc TestThere(t *testing.T) {}\nfunc (r *rig) TestMethod() {}")},
	}
	const head = "<!-- promises: begin -->\n| Promise | Where | Test |\n|---|---|---|\n"
	for rows, want := range map[string]string{
		"| a | `internal/plane` | `TestThere` |\n| b | `internal/translate` | `a-case` |\n": "",
		"| a | `internal/plane` | `TestGone` |\n":                                           "no test TestGone in `internal/plane`",
		"| a | `internal/plane` | `TestMethod` |\n":                                         "no test TestMethod",
		"| a | `internal/agent` | `TestThere` |\n":                                          "no test TestThere in `internal/agent`",
		"| a | `internal/agent` | `a-case` |\n":                                             "no test a-case in `internal/agent`",
		"| a | `internal/translate` | `no-case` |\n":                                        "no test no-case",
		"| a | `internal/plane` | |\n":                                                      "no package, or no test",
		"| a | plane | `TestThere` |\n":                                                     "no package, or no test",
		"| a | `internal/plane` |\n":                                                        "wants 3 columns",
		"":                                                                                  "is empty",
	} {
		text := head + rows + "<!-- promises: end -->\n"
		if err := os.WriteFile(filepath.Join(dir, promises), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		bad, err := CheckPromises(tree)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, bad, want)
	}
}

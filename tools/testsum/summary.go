package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json` (see `go doc test2json`), with the fields
// that `go test` adds when a build fails.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

// testRun is what is known of one test, or of a package itself (name "").
type testRun struct {
	name   string
	output []string
	result string // "", "pass", "fail" or "skip"
}

type packageRun struct {
	name  string
	tests map[string]*testRun
	order []string
	ended bool
}

type skip struct {
	pkg, test, reason string
	allowed           bool
}

// failure is a test that failed, or never ended, with the first thing that it said.
type failure struct {
	name, says string
	ended      bool
}

type summary struct {
	out      io.Writer
	allowed  allowList
	packages map[string]*packageRun
	builds   map[string][]string // compiler output of each package that did not build
	skips    []skip
	passed   int
	failed   []failure
	skipped  int
}

func newSummary(out io.Writer, allowed allowList) *summary {
	return &summary{out: out, allowed: allowed, packages: map[string]*packageRun{}, builds: map[string][]string{}}
}

// read consumes events until the input ends, printing each package as it ends.
// Lines that are no events are passed through: they come from outside the tests.
func (s *summary) read(in io.Reader) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				fmt.Fprint(s.out, string(line))
			} else {
				s.take(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) take(e event) {
	switch e.Action {
	case "build-output":
		s.builds[e.ImportPath] = append(s.builds[e.ImportPath], e.Output)
		return
	case "build-fail":
		return
	}
	p := s.packages[e.Package]
	if p == nil {
		p = &packageRun{name: e.Package, tests: map[string]*testRun{}}
		s.packages[e.Package] = p
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &testRun{name: e.Test}
		p.tests[e.Test] = t
		p.order = append(p.order, e.Test)
	}
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "pass", "fail", "skip":
		t.result = e.Action
		if e.Test == "" {
			s.endPackage(p, e)
		}
	}
}

// endPackage counts the tests of a package that has ended and prints its line.
func (s *summary) endPackage(p *packageRun, e event) {
	p.ended = true
	passed, skipped, failed := 0, 0, []string(nil)
	for _, name := range p.order {
		t := p.tests[name]
		if name == "" || (t.result != "skip" && p.hasResult(name, t.result)) {
			continue // the package itself; or a parent whose result one of its subtests already has
		}
		switch t.result {
		case "pass":
			passed++
		case "skip":
			skipped++
			why := reason(t.output)
			s.skips = append(s.skips, skip{p.name, name, why, s.allowed.allows(p.name, name, why)})
		default: // failed, or never ended because the process died
			failed = append(failed, name)
		}
	}
	s.passed += passed
	s.skipped += skipped
	result := p.tests[""].result
	if result == "fail" && len(failed) == 0 {
		failed = []string{""} // did not build, died outside a test, or TestMain failed
	}
	for _, name := range failed {
		s.failed = append(s.failed, failure{
			name: strings.TrimSuffix(p.name+" "+name, " "), says: firstWords(p.tests[name].output), ended: p.tests[name].result != "",
		})
	}
	switch {
	case len(failed) > 0:
		fmt.Fprintf(s.out, "FAIL  %-48s %s\n", p.name, s.count(passed, len(failed), skipped, e.Elapsed))
		s.printFailures(p, failed, e.FailedBuild)
	case passed+skipped > 0:
		fmt.Fprintf(s.out, "ok    %-48s %s\n", p.name, s.count(passed, 0, skipped, e.Elapsed))
	}
}

func (s *summary) count(passed, failed, skipped int, seconds float64) string {
	line := fmt.Sprintf("%4d passed", passed)
	if failed > 0 {
		line += fmt.Sprintf(", %d failed", failed)
	}
	if skipped > 0 {
		line += fmt.Sprintf(", %d skipped", skipped)
	}
	return fmt.Sprintf("%-32s %7.1f s", line, seconds)
}

// hasResult reports whether a subtest of name ended with the given result; a test
// that never ended counts as failed.
func (p *packageRun) hasResult(name, result string) bool {
	for other, t := range p.tests {
		if strings.HasPrefix(other, name+"/") && (t.result == result || (result != "pass" && t.result == "")) {
			return true
		}
	}
	return false
}

// printFailures prints everything that failed tests said, their parents' words
// included, and then the package's own (a panic, the compiler).
func (s *summary) printFailures(p *packageRun, failed []string, build string) {
	for _, name := range p.order {
		related := slices.ContainsFunc(failed, func(f string) bool { return f == name || strings.HasPrefix(f, name+"/") })
		if name == "" || !related {
			continue
		}
		fmt.Fprintf(s.out, "      --- %s\n", name)
		s.indent(p.tests[name].output)
	}
	s.indent(s.builds[build])
	if slices.Contains(failed, "") {
		s.indent(p.tests[""].output)
	}
}

var noise = regexp.MustCompile(`^(=== (RUN|PAUSE|CONT|NAME)|\s*--- (FAIL|PASS|SKIP): )`)

func (s *summary) indent(output []string) {
	for line := range strings.Lines(strings.Join(output, "")) {
		if !noise.MatchString(line) {
			fmt.Fprintf(s.out, "      %s\n", strings.TrimRight(line, "\n"))
		}
	}
}

// mostSaid bounds what is repeated of a failure.
const mostSaid = 300

// firstWords is the first line that a test said itself. Lines of logs name no file.
func firstWords(output []string) string {
	for line := range strings.Lines(strings.Join(output, "")) {
		if text := strings.TrimSpace(line); place.MatchString(line) || strings.HasPrefix(text, "panic:") {
			return text[:min(len(text), mostSaid)]
		}
	}
	return ""
}

var place = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// reason is what a skipped test said when it skipped, without file and line.
func reason(output []string) string {
	var words []string
	for line := range strings.Lines(strings.Join(output, "")) {
		if !noise.MatchString(line) {
			words = append(words, strings.Fields(place.ReplaceAllString(line, ""))...)
		}
	}
	if len(words) == 0 {
		return "(no reason given)"
	}
	return strings.Join(words, " ")
}

// finish prints the skips and the totals, and reports whether the run was good.
func (s *summary) finish() bool {
	for _, name := range slices.Sorted(maps.Keys(s.packages)) {
		if p := s.packages[name]; !p.ended {
			p.tests[""] = &testRun{result: "fail", output: []string{"started, but never ended\n"}}
			s.endPackage(p, event{})
		}
	}
	refused := 0
	for i, k := range s.skips {
		if i == 0 {
			fmt.Fprintln(s.out, "\nskipped:")
		}
		note := ""
		if !k.allowed {
			refused++
			note = "  <- not on the list of allowed skips"
		}
		fmt.Fprintf(s.out, "  %s %s: %s%s\n", k.pkg, k.test, k.reason, note)
	}
	if len(s.failed) > 0 {
		fmt.Fprintln(s.out, "\nfailed:")
		for _, f := range s.failed {
			switch {
			case !f.ended:
				fmt.Fprintf(s.out, "  %s\n      had not ended when its process did\n", f.name)
			case f.says != "":
				fmt.Fprintf(s.out, "  %s\n      %s\n", f.name, f.says)
			default:
				fmt.Fprintf(s.out, "  %s\n", f.name)
			}
		}
	}
	empty := s.passed+len(s.failed)+s.skipped == 0
	if empty {
		fmt.Fprintln(s.out, "no test ran")
	}
	fmt.Fprintf(s.out, "\n%d passed, %d failed, %d skipped\n", s.passed, len(s.failed), s.skipped)
	if refused > 0 {
		fmt.Fprintf(s.out, "%d of the skips are not allowed: mend them, or say why they may skip in the list\n", refused)
	}
	return len(s.failed) == 0 && refused == 0 && !empty
}

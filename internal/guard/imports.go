package guard

import (
	"fmt"
	"slices"
	"strings"
)

// testMayUse is what tests may import besides the table's row: real things to
// test against. The pure packages come on top.
var testMayUse = []string{"lab", "deploy/crd", "internal/embedded"}

// CheckImports holds every file's imports against the tables.
func CheckImports(files []GoFile, t Tables) []Violation {
	var bad []Violation
	unlisted := map[string]bool{}
	for _, f := range files {
		rule, room, found := t.rule(f.Dir)
		if !found {
			if !unlisted[f.Dir] {
				unlisted[f.Dir] = true
				bad = append(bad, Violation{f.Dir, "the import table has no row for this folder", "a room without a rule has no shape"})
			}
			continue
		}
		for _, i := range f.Imports() {
			if v, ok := checkImport(f, i, t, rule, room); !ok {
				v.Where = fmt.Sprintf("%s:%d", f.Path, i.Line)
				bad = append(bad, v)
			}
		}
	}
	return bad
}

// CheckPermissions finds what the import table permits and nobody does, tests included. A row
// and a permission may stand there before their packages do.
func CheckPermissions(files []GoFile, t Tables) []Violation {
	type permission struct{ room, allowed string }
	used, rooms := map[permission]bool{}, map[string]bool{}
	for _, f := range files {
		rule, _, _ := t.rule(f.Dir)
		rooms[rule.Room] = true
		for _, i := range f.Imports() {
			ours, _ := strings.CutPrefix(i.Path, Module+"/")
			for _, a := range rule.Allowed {
				if covers(a, ours) {
					used[permission{rule.Room, a}] = true
				}
			}
		}
	}
	var bad []Violation
	for _, r := range t.Rules {
		for _, a := range r.Allowed {
			there := slices.ContainsFunc(files, func(f GoFile) bool { return covers(a, f.Dir) })
			if rooms[r.Room] && there && !used[permission{r.Room, a}] {
				bad = append(bad, Violation{"ARCHITECTURE.md", r.Room + " may import " + a + " and does not", "a permission that nobody needs lets the first import in without a thought"})
			}
		}
	}
	return bad
}

func checkImport(f GoFile, i Import, t Tables, rule Rule, room string) (v Violation, ok bool) {
	ours, isOurs := strings.CutPrefix(i.Path, Module+"/")
	if !isOurs {
		if i.Path == "testing" && !f.Test {
			return Violation{What: "code that is no test imports testing", Why: "what runs in production must not know that it is tested"}, false
		}
		return checkModule(f, i, t)
	}
	if forTests(ours) && !f.Test && !covers("lab", f.Dir) && !covers("test", f.Dir) {
		return Violation{What: "imports " + ours, Why: "a package whose name ends in test is for tests and the lab"}, false
	}
	switch {
	case covers(room, ours):
		return v, true
	case rule.Anything && !slices.ContainsFunc(rule.Except, func(e string) bool { return covers(e, ours) }):
		return v, true
	case slices.ContainsFunc(rule.Allowed, func(a string) bool { return covers(a, ours) }):
		return v, true
	case f.Test && mayTestWith(ours, t):
		return v, true
	}
	may := "nothing of ours"
	if len(rule.Allowed) > 0 {
		may = strings.Join(rule.Allowed, ", ")
	} else if rule.Anything {
		may = "anything but " + strings.Join(rule.Except, ", ")
	}
	return Violation{What: fmt.Sprintf("imports %s; %s may import %s", ours, rule.Room, may), Why: rule.Because}, false
}

func mayTestWith(ours string, t Tables) bool {
	if forTests(ours) || slices.ContainsFunc(testMayUse, func(p string) bool { return covers(p, ours) }) {
		return true
	}
	target, _, found := t.rule(ours)
	return found && target.Pure
}

func checkModule(f GoFile, i Import, t Tables) (v Violation, ok bool) {
	rule, found := t.module(i.Path)
	if !found || f.Test || f.Generated || slices.ContainsFunc(rule.OnlyIn, func(p string) bool { return covers(p, f.Dir) }) {
		return v, true
	}
	return Violation{
		What: fmt.Sprintf("imports %s; %s belongs only in %s", i.Path, rule.Module, strings.Join(rule.OnlyIn, ", ")),
		Why:  rule.Because,
	}, false
}

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

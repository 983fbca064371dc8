package guard

import "testing"

func TestComments(t *testing.T) {
	of := func(text string) []GoFile {
		return []GoFile{source(t, "internal/plan/plan.go", "package plan\n\n"+text), source(t, "internal/plan/more.go", "package plan\n\nfunc runOne() {}\n\nfunc RunAll() {}\n\nfunc Names() {}\n\nvar Field = \"jsonName\"\n\ntype JsonName int\n")}
	}
	for name, test := range map[string]struct{ text, want string }{
		"its name":             {"// step does it.\nfunc step() {}\n", ""},
		"a sentence":           {"// Names of steps come first.\nfunc step() {}\n", ""},
		"a term":               {"// HTTPRoutes come first.\nfunc step() {}\n", ""},
		"another function":     {"// RunAll does it.\nfunc step() {}\n", "internal/plan/plan.go:4: the comment of step begins with RunAll"},
		"two comments in one":  {"// runOne is next.\n// step does it.\nfunc step() {}\n", "begins with runOne"},
		"nobody's name":        {"// stepTwice does it.\nfunc step() {}\n", "begins with stepTwice"},
		"as it was spelt":      {"// step does it.\nfunc Step() {}\n", "begins with step"},
		"exported since":       {"// step is runAll twice.\nfunc step() {}\n", "internal/plan/plan.go:3: a comment names runAll, which is RunAll"},
		"inside of a function": {"func step() {\n\t_ = 1 // as runAll says\n}\n", "a comment names runAll"},
		"a word of a string":   {"// step reads jsonName.\nfunc step() {}\n", ""},
		"a word of others":     {"// step asks openSUSE.\nfunc step() {}\n", ""},
	} {
		t.Run(name, func(t *testing.T) { expect(t, CheckComments(of(test.text)), test.want) })
	}
}

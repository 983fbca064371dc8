// Package guard holds the tests that keep this repository as its documents promise: imports,
// pure packages, the form of packages and files, names in comments, reading orders, the glossary's words in
// names, and links whose targets exist.
//
// The rules are read from ARCHITECTURE.md and docs/glossary.md, so these pages cannot drift from the
// code. A violation names the location, the fault and the reason of the rule. Every check is
// itself tested against code that breaks it. Nothing imports this package.
package guard

import "fmt"

// Violation is one place that breaks one rule.
type Violation struct {
	Where string // path from the repository's root, with a line where one is known
	What  string // what is wrong there
	Why   string // the reason of the rule
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s\n\tbecause %s", v.Where, v.What, v.Why)
}

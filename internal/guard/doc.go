// Package guard holds the tests that keep this repository in the shape its
// documents promise: who may import whom, which packages are pure, what every
// package and file must have, and that documents point to things that exist.
//
// The rules are read from ARCHITECTURE.md, so the page cannot drift from the
// code. A violation says what, where, and the reason of the rule. Every check is
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

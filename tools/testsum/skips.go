package main

import (
	"fmt"
	"path"
	"strings"
)

// allowList says which skips are all right.
type allowList struct {
	all  bool
	rows []allowedSkip
}

// allowedSkip allows tests that match a package and a test pattern (path.Match)
// to skip with a reason that contains the given words.
type allowedSkip struct {
	pkg, test, reason string
}

// parseAllowList reads rows of
//
//	WHEN PACKAGE TEST REASON...
//
// where WHEN is "always" or "not-root". Rows for people who are not root are left
// out when the tests ran as root. Blank lines and lines that begin with # are
// ignored.
func parseAllowList(text string, root bool) (allowList, error) {
	var list allowList
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 4 {
			return allowList{}, fmt.Errorf("line %d: want WHEN PACKAGE TEST REASON", i+1)
		}
		row := allowedSkip{pkg: fields[1], test: fields[2], reason: strings.Join(fields[3:], " ")}
		for _, pattern := range []string{row.pkg, row.test} {
			if _, err := path.Match(pattern, ""); err != nil {
				return allowList{}, fmt.Errorf("line %d: %s: %w", i+1, pattern, err)
			}
		}
		switch fields[0] {
		case "always":
			list.rows = append(list.rows, row)
		case "not-root":
			if !root {
				list.rows = append(list.rows, row)
			}
		default:
			return allowList{}, fmt.Errorf("line %d: %q is neither always nor not-root", i+1, fields[0])
		}
	}
	return list, nil
}

func (l allowList) allows(pkg, test, reason string) bool {
	if l.all {
		return true
	}
	for _, row := range l.rows {
		if matches(row.pkg, pkg) && matches(row.test, test) && strings.Contains(reason, row.reason) {
			return true
		}
	}
	return false
}

// matches is path.Match, except that a lone * matches everything, slashes too.
func matches(pattern, name string) bool {
	ok, _ := path.Match(pattern, name) // patterns were checked when they were read
	return ok || pattern == "*"
}

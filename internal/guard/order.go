package guard

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

const whyReadingOrder = "who opens a package reads its files in the order of its comment, and misses those that it leaves out"

var (
	// orderMark ends the line before a list of a package's files.
	orderMark = regexp.MustCompile(`in (this|reading) order.*`)
	fileName  = regexp.MustCompile(`\b[a-z0-9_]+\.go\b`)
)

// CheckReadingOrders holds the lists of files in comments of packages against the files: each is named once, and no other is. A list
// follows a line that says "in this order" or "in reading order". It has an item of names that end with .go for each step ("- a.go, b.go:
// what they do"), or a table whose first column has names without that end.
func CheckReadingOrders(files []GoFile) []Violation {
	listed, there := map[string]map[string]int{}, map[string]map[string]bool{}
	where := map[string]string{}
	var order []string
	for _, f := range files {
		if strings.HasSuffix(f.Path, "_test.go") || f.Generated {
			continue
		}
		if there[f.Dir] == nil {
			there[f.Dir] = map[string]bool{}
		}
		if name := path.Base(f.Path); name != "doc.go" {
			there[f.Dir][name] = true
		}
		if f.AST.Doc == nil {
			continue
		}
		if names := readingOrder(f.AST.Doc.Text()); len(names) > 0 {
			listed[f.Dir], where[f.Dir] = map[string]int{}, f.Path
			order = append(order, f.Dir)
			for _, name := range names {
				listed[f.Dir][name]++
			}
		}
	}
	var bad []Violation
	for _, dir := range order {
		for _, name := range slices.Sorted(maps.Keys(listed[dir])) {
			switch {
			case !there[dir][name]:
				bad = append(bad, Violation{where[dir], "the order in which files are read has " + name + ", which is not there", whyReadingOrder})
			case listed[dir][name] > 1:
				bad = append(bad, Violation{where[dir], "the order in which files are read has " + name + " twice", whyReadingOrder})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(there[dir])) {
			if listed[dir][name] == 0 {
				bad = append(bad, Violation{where[dir], "the order in which files are read lacks " + name, whyReadingOrder})
			}
		}
	}
	return bad
}

// readingOrder are the files that a comment lists, in its order; none: it has no such list.
func readingOrder(comment string) (names []string) {
	mark := orderMark.FindStringIndex(comment)
	if mark == nil {
		return nil
	}
	item, begun := "", false
	take := func() {
		before, _, _ := strings.Cut(item, ":")
		names = append(names, fileName.FindAllString(before, -1)...)
		item = ""
	}
	for line := range strings.Lines(comment[mark[1]:]) {
		line = strings.TrimRight(line, "\n")
		text := strings.TrimSpace(line)
		switch {
		case text == "" && !begun:
		case text == "":
			take()
			return names
		case strings.HasPrefix(line, "\t"): // a row of a table, whose first column may be empty
			begun = true
			column, _, _ := strings.Cut(line[1:], "  ")
			for name := range strings.SplitSeq(column, ",") {
				if name = strings.TrimSpace(name); name != "" {
					names = append(names, name+".go")
				}
			}
		case strings.HasPrefix(text, "- "):
			begun = true
			take()
			item = text
		case begun:
			item += " " + text
		}
	}
	take()
	return names
}

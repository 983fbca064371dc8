package guard

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Rule is one row of the import table: what the packages of a room may import.
type Rule struct {
	Room     string // pattern of folders; * stands for one folder
	Anything bool
	Except   []string // with Anything
	Allowed  []string // folders; everything below them too
	Pure     bool
	Because  string
}

// ModuleRule is one row of the table of other people's modules.
type ModuleRule struct {
	Module  string // prefix of import paths
	OnlyIn  []string
	Because string
}

// Tables are the rules of ARCHITECTURE.md.
type Tables struct {
	Rules   []Rule
	Modules []ModuleRule
}

// topFolders are the names in the table that do not stand below internal/.
var topFolders = []string{"api", "cmd", "deploy", "examples", "internal", "lab", "proto", "test", "tools"}

var code = regexp.MustCompile("`([^`]+)`")

// ParseTables reads both tables out of the text of ARCHITECTURE.md.
func ParseTables(text string) (Tables, error) {
	var t Tables
	rows, err := section(text, "imports", 5)
	if err != nil {
		return t, err
	}
	for _, cells := range rows {
		room := names(cells[0])
		if len(room) != 1 {
			return t, fmt.Errorf("import table: %q must name one package", cells[0])
		}
		r := Rule{Room: room[0], Because: cells[4]}
		allowed := names(cells[2])
		switch {
		case cells[2] == "nothing":
		case cells[2] == "anything":
			r.Anything = true
		case strings.HasPrefix(cells[2], "anything but "):
			r.Anything, r.Except = true, allowed
		case len(allowed) > 0:
			for _, name := range allowed {
				r.Allowed = append(r.Allowed, fullName(name))
			}
		default:
			return t, fmt.Errorf("import table: %s: cannot read %q", r.Room, cells[2])
		}
		switch cells[3] {
		case "yes":
			r.Pure = true
		case "":
		default:
			return t, fmt.Errorf("import table: %s: the column Pure holds %q", r.Room, cells[3])
		}
		if r.Because == "" {
			return t, fmt.Errorf("import table: %s has no reason", r.Room)
		}
		t.Rules = append(t.Rules, r)
	}
	rows, err = section(text, "modules", 3)
	if err != nil {
		return t, err
	}
	for i, cells := range rows {
		module, where := names(cells[0]), names(cells[1])
		if len(module) != 1 || len(where) == 0 || cells[2] == "" {
			return t, fmt.Errorf("module table: row %d is not complete", i+1)
		}
		because := cells[2]
		if because == "the same" && i > 0 {
			because = t.Modules[i-1].Because
		}
		t.Modules = append(t.Modules, ModuleRule{Module: module[0], OnlyIn: where, Because: because})
	}
	return t, nil
}

// section returns the rows of the table between two markers, without its head.
func section(text, name string, columns int) ([][]string, error) {
	_, rest, found := strings.Cut(text, "<!-- "+name+": begin -->")
	body, _, ended := strings.Cut(rest, "<!-- "+name+": end -->")
	if !found || !ended {
		return nil, fmt.Errorf("the table %q is not there, or has no end", name)
	}
	var rows [][]string
	for _, line := range strings.Split(strings.TrimSpace(body), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != columns {
			return nil, fmt.Errorf("the table %q wants %d columns: %s", name, columns, line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		return nil, fmt.Errorf("the table %q is empty", name)
	}
	return rows[2:], nil
}

func names(cell string) []string {
	var found []string
	for _, m := range code.FindAllStringSubmatch(cell, -1) {
		found = append(found, m[1])
	}
	return found
}

func fullName(name string) string {
	first, _, _ := strings.Cut(name, "/")
	for _, top := range topFolders {
		if first == top {
			return name
		}
	}
	return "internal/" + name
}

// covers reports whether dir is the folder or below it.
func covers(folder, dir string) bool {
	return dir == folder || strings.HasPrefix(dir, folder+"/")
}

// rule returns the most specific row for a folder, and the room there: the part
// of dir that the row's pattern matched.
func (t Tables) rule(dir string) (rule Rule, room string, found bool) {
	parts := strings.Split(dir, "/")
	best := -1
	for _, r := range t.Rules {
		n := strings.Count(r.Room, "/") + 1
		if n > len(parts) {
			continue
		}
		head := strings.Join(parts[:n], "/")
		ok, err := path.Match(r.Room, head)
		if err != nil || !ok {
			continue
		}
		score := 2 * n
		if !strings.Contains(r.Room, "*") {
			score++
		}
		if score > best {
			best, rule, room, found = score, r, head, true
		}
	}
	return rule, room, found
}

// module returns the most specific row for an import path.
func (t Tables) module(importPath string) (rule ModuleRule, found bool) {
	for _, r := range t.Modules {
		if covers(r.Module, importPath) && len(r.Module) > len(rule.Module) {
			rule, found = r, true
		}
	}
	return rule, found
}

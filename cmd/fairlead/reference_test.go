package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// sections cuts a page of Markdown at its headings of the second level.
func sections(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/" + page)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(part, "\n")
		all[title] = body
	}
	return all
}

// flagName is a flag in code, with or without a value behind it.
var flagName = regexp.MustCompile("`--([a-z][a-z-]*)`")

// documented are the commands that the reference owes a section: those that run. What
// `completion` has below it is cobra's, and one section for all.
func documented(c *cobra.Command) []*cobra.Command {
	if c.HasSubCommands() && c.Name() != "completion" {
		var all []*cobra.Command
		for _, sub := range c.Commands() {
			all = append(all, documented(sub)...)
		}
		return all
	}
	if c.Name() == "help" || c.CommandPath() == "fairlead lab keep" { // nobody types that one
		return nil
	}
	return []*cobra.Command{c}
}

// own are the flags that a command's section must name, with their defaults.
func own(c *cobra.Command) map[string]string {
	flags := map[string]string{}
	note := func(f *pflag.Flag) {
		switch f.Name {
		case "help", "version", "log-level", "log-format": // stand in a section for all
		default:
			flags[f.Name] = f.DefValue
		}
	}
	c.LocalFlags().VisitAll(note)
	c.InheritedFlags().VisitAll(note)
	for _, sub := range c.Commands() {
		sub.LocalFlags().VisitAll(note)
	}
	return flags
}

// A reference that lacks a command or a flag, or names one that is gone, misleads.
func TestReferenceNamesEveryCommandAndFlag(t *testing.T) {
	page := sections(t, "cli.md")
	for _, flag := range []string{"`--log-level`", "`--log-format`", "`--help`", "`--version`"} {
		if !strings.Contains(page["What all commands have in common"], flag) {
			t.Errorf("docs/reference/cli.md: the section for all commands does not name %s", flag)
		}
	}
	for _, c := range documented(newRoot()) {
		text, ok := page[c.CommandPath()]
		if !ok {
			t.Errorf("docs/reference/cli.md has no section %q", "## "+c.CommandPath())
			continue
		}
		delete(page, c.CommandPath())
		if !strings.Contains(text, "    "+c.CommandPath()) {
			t.Errorf("docs/reference/cli.md: %s has no example", c.CommandPath())
		}
		flags := own(c)
		for name, value := range flags {
			row := regexp.MustCompile("(?m)^\\| (`-.`, )?`--" + name + "`.*$").FindString(text)
			switch {
			case !strings.Contains(text, "`--"+name+"`"):
				t.Errorf("docs/reference/cli.md: %s does not name --%s", c.CommandPath(), name)
			case row != "" && !slices.Contains([]string{"", "0", "[]", "false"}, value) && !strings.Contains(row, "`"+value+"`"):
				t.Errorf("docs/reference/cli.md: %s --%s does not say its default %s: %s", c.CommandPath(), name, value, row)
			}
		}
		for _, m := range flagName.FindAllStringSubmatch(text, -1) {
			if _, ok := flags[m[1]]; !ok {
				t.Errorf("docs/reference/cli.md: %s has no flag --%s", c.CommandPath(), m[1])
			}
		}
	}
	for title := range page {
		if strings.HasPrefix(title, "fairlead ") {
			t.Errorf("docs/reference/cli.md: there is no command %s", title)
		}
	}
}

// The table at the top of the reference has a row for each command and no other: its link and the line that the
// help has of it.
func TestReferenceListsEveryCommand(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	top, _, _ := strings.Cut(string(text), "\n## ")
	rows := map[string]bool{}
	for line := range strings.Lines(top) {
		if strings.HasPrefix(line, "| [`fairlead ") {
			rows[strings.TrimSpace(line)] = true
		}
	}
	for _, c := range documented(newRoot()) {
		row := "| [`" + c.CommandPath() + "`](#" + strings.ReplaceAll(c.CommandPath(), " ", "-") + ") | " + c.Short + " |"
		if !rows[row] {
			t.Errorf("docs/reference/cli.md: the table of commands lacks the row\n%s", row)
		}
		delete(rows, row)
	}
	for row := range rows {
		t.Errorf("docs/reference/cli.md: the table of commands has a row that is no command's:\n%s", row)
	}
}

// Somebody who asks for help wants a line to copy.
func TestEveryCommandHasAnExample(t *testing.T) {
	for _, c := range documented(newRoot()) {
		if c.Name() != "completion" && !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s: its help has no example", c.CommandPath())
		}
	}
}

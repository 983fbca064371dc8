package guard

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

const whyLinks = "a reader who follows a link must arrive"

// link is the target in [text](target) and ![text](target), or in src="target".
var link = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)|(?:src|srcset|href)="([^"]+)"`)

// inlineCode is left out: what stands in it is an example.
var inlineCode = regexp.MustCompile("`[^`]*`")

// CheckLinks follows the relative links of every Markdown file, to files, folders
// and headings.
func CheckLinks(t *Tree) ([]Violation, error) {
	texts := map[string]string{}
	for _, name := range t.Paths {
		if path.Ext(name) == ".md" {
			text, err := os.ReadFile(filepath.Join(t.Root, name))
			if err != nil {
				return nil, err
			}
			texts[name] = string(text)
		}
	}
	var bad []Violation
	for _, name := range t.Paths {
		text, isMarkdown := texts[name]
		if !isMarkdown {
			continue
		}
		for i, line := range prose(text) {
			for _, m := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, ""), -1) {
				if what := follow(t.Paths, texts, name, m[1]+m[2]); what != "" {
					bad = append(bad, Violation{fmt.Sprintf("%s:%d", name, i+1), what, whyLinks})
				}
			}
		}
	}
	return bad, nil
}

// follow says what is wrong with a target, or nothing.
func follow(paths []string, texts map[string]string, from, target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return fmt.Sprintf("the link %s cannot be read", target)
	}
	if u.Scheme != "" || u.Host != "" {
		return "" // somebody else's page: not ours to test on every run
	}
	to := from
	if u.Path != "" {
		to = path.Join(path.Dir(from), u.Path)
		if strings.HasPrefix(u.Path, "/") {
			to = strings.TrimPrefix(u.Path, "/")
		}
	}
	if !slices.ContainsFunc(paths, func(p string) bool { return covers(to, p) }) && to != "." {
		return fmt.Sprintf("links to %s, which is not there", to)
	}
	text, isMarkdown := texts[to]
	if u.Fragment != "" && isMarkdown && !slices.Contains(anchors(text), u.Fragment) {
		return fmt.Sprintf("links to #%s, which is no heading of %s", u.Fragment, to)
	}
	return ""
}

// prose returns the lines of a Markdown text, with those inside fences empty.
func prose(text string) []string {
	lines := strings.Split(text, "\n")
	fence := ""
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence == "" && (strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~")):
			fence = trimmed[:3]
			lines[i] = ""
		case fence != "":
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			lines[i] = ""
		}
	}
	return lines
}

// anchors are the names that GitHub gives a text's headings: lower case, spaces
// to hyphens, other punctuation away, repeated ones numbered.
func anchors(text string) []string {
	var found []string
	seen := map[string]int{}
	for _, line := range prose(text) {
		heading := strings.TrimLeft(line, "#")
		if level := len(line) - len(heading); level == 0 || level > 6 || !strings.HasPrefix(heading, " ") {
			continue
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(heading))
		if n := seen[name]; n > 0 {
			found = append(found, fmt.Sprintf("%s-%d", name, n))
		} else {
			found = append(found, name)
		}
		seen[name]++
	}
	return found
}

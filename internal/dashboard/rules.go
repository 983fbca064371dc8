package dashboard

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// RuleOptions are what people, and tests, choose for the rules.
type RuleOptions struct {
	// Runbooks is the address of docs/runbooks, a URL with http or https or a path; default: that folder of the repository.
	Runbooks string
	// Hold and Window, if positive, replace the times that alerts must hold, and over which they look
	// back: tests do not wait for hours.
	Hold, Window time.Duration
}

// defaultRunbooks is the folder of the pages.
const defaultRunbooks = "docs/runbooks"

// Check refuses addresses that are no place to read something: who sees an alert follows its link.
func (o RuleOptions) Check() error {
	u, err := url.Parse(o.Runbooks)
	if err != nil || u.Opaque != "" || u.Scheme != "" && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return fmt.Errorf("runbooks %q: want a URL with http or https, or a path", o.Runbooks)
	}
	return nil
}

// Rules renders the alerts as a file of rules for Prometheus.
func Rules(o RuleOptions) []byte {
	var out strings.Builder
	out.WriteString("groups:\n- name: fairlead\n  rules:\n")
	for _, line := range ruleLines(o) {
		out.WriteString("  " + line + "\n")
	}
	return []byte(out.String())
}

// ruleLines are the entries of the list of rules.
func ruleLines(o RuleOptions) []string {
	base := strings.TrimSuffix(o.Runbooks, "/")
	if base == "" {
		base = defaultRunbooks
	}
	var lines []string
	for _, a := range Alerts() {
		hold, window := a.For, a.Window
		if o.Hold > 0 {
			hold = min(hold, o.Hold)
		}
		if o.Window > 0 {
			window = o.Window
		}
		lines = append(lines, "- alert: "+a.Name, "  expr: "+strconv.Quote(strings.ReplaceAll(a.Expr, "{window}", seconds(window))))
		if hold > 0 {
			lines = append(lines, "  for: "+seconds(hold))
		}
		lines = append(
			lines,
			"  labels: {severity: "+string(a.Severity)+"}",
			"  annotations:",
			"    summary: "+strconv.Quote(a.Summary),
			"    description: "+strconv.Quote(a.Description),
			"    runbook_url: "+strconv.Quote(base+"/"+a.Name+".md"),
		)
	}
	return lines
}

// seconds is a time as Prometheus reads it.
func seconds(d time.Duration) string {
	if d%time.Minute == 0 {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// File is one that is written for Grafana or Prometheus.
type File struct {
	Name    string
	Content []byte
}

// RulesFile is the name of the file with the rules.
const RulesFile = "fairlead.rules.yml"

// Files renders everything, unless an option is wrong.
func Files(o Options, r RuleOptions) ([]File, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	var files []File
	for _, d := range All() {
		text, err := d.Grafana(o)
		if err != nil {
			return nil, err
		}
		files = append(files, File{"dashboards/" + d.Name + ".json", text})
	}
	return append(files, File{"alerts/" + RulesFile, Rules(r)}), nil
}

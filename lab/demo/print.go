package demo

import (
	"fmt"
	"strings"

	"fairlead.dev/lab/load"
	"fairlead.dev/lab/report"
)

func (d *demo) say(format string, args ...any) {
	_, _ = fmt.Fprintln(d.Out, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

func (s *Step) fact(format string, args ...any) {
	s.Observations = append(s.Observations, fmt.Sprintf(format, args...))
}

func (s *Step) wrong(format string, args ...any) {
	s.Wrong = append(s.Wrong, fmt.Sprintf(format, args...))
}

func (s *Step) figure(name string, value float64) { s.Figures[name] = value }

// count adds a load's requests to the step.
func (s *Step) count(r load.Report) {
	s.Requests += r.Requests
	s.Failed += r.Failed
}

func (d *demo) printStep(s Step) {
	for _, r := range s.Shares {
		d.printShares(r)
	}
	if len(s.NextHops) > 0 {
		d.printNextHops(s.NextHops)
	}
	for _, f := range s.Observations {
		d.say("    %s", f)
	}
	for _, line := range s.screen {
		d.say("      %s", line)
	}
	if s.Requests > 0 {
		d.say("    %s requests, %d failed", thousands(s.Requests), s.Failed)
	}
	for _, w := range s.Wrong {
		d.say("    WRONG: %s", w)
	}
	verdict := "ok"
	if len(s.Wrong) > 0 {
		verdict = "FAILED"
	}
	d.say("    %-6s %5.1f s", verdict, s.Took)
}

func (d *demo) printShares(r RouteShares) {
	d.say("    %s, http://%s/", r.Route, r.Host)
	t := report.Table{Columns: []string{"backend", "requests", "share", "weight", "off by", ""}}
	row := func(name string, sh load.Share) {
		verdict := "ok"
		if !sh.OK {
			verdict = "WRONG"
		}
		t.Add(name, thousands(sh.Count), fmt.Sprintf("%.1f %%", 100*sh.Got), fmt.Sprintf("%.1f %%", 100*sh.Want), fmt.Sprintf("%+.1f sigma", sh.Sigmas), verdict)
	}
	if len(r.Clusters) == 0 {
		for _, b := range r.Backends {
			row(b.Name, b)
		}
	}
	for _, c := range r.Clusters {
		row(c.Name, c)
		for _, b := range r.Backends {
			if clusterOf(b.Name) == c.Name {
				row("  "+b.Name, b)
			}
		}
	}
	_ = t.Write(d.Out, "      ")
}

// clusterOf returns the cluster of a backend: "os1-a" is of "os1".
func clusterOf(backend string) string {
	cluster, _, _ := strings.Cut(backend, "-")
	return cluster
}

// thousands writes 10000 as 10,000.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

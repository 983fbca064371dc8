package console

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	v1 "fairlead.dev/internal/console/v1"
)

// TextOptions say how a status is rendered.
type TextOptions struct {
	Now time.Time
	// MaxRows bounds each table; what is left out is counted. 0 is no bound.
	MaxRows int
	// Rest is what shows the rows that are left out. Default "--all".
	Rest string
}

// WriteText renders a status for a terminal: machines, listeners, routes, and
// what is wrong and why. It prints no colours and needs no terminal.
func WriteText(w io.Writer, s v1.Status, o TextOptions) error {
	b := bufio.NewWriterSize(printable{w}, screen)
	writePlane(b, s.Plane, o)
	// Else nothing is known yet, which is not the same as none; nor does a standby know.
	if s.Machines != nil && (s.Plane.Leading || s.Plane.Leader == "") {
		writeMachines(b, s.Machines, o)
		writeListeners(b, s.Listeners, o)
		writeRoutes(b, s.Routes, o)
		switch s.OfOthers {
		case 0:
		case 1:
			fmt.Fprint(b, "  1 IngressRoute of another class is not ours (--ingress-class)\n")
		default:
			fmt.Fprintf(b, "  %d IngressRoutes of other classes are not ours (--ingress-class)\n", s.OfOthers)
		}
		if len(s.VIPs)+len(s.Sessions) > 0 {
			writeNetwork(b, s)
		}
		if u := s.Upstreams; u.Total > 0 {
			fmt.Fprintf(b, "\n%-10s %d, %d of them current; `fairlead upstreams` lists them\n", "Upstreams", u.Total, u.Current)
		}
	}
	writeProblems(b, s.Problems, o)
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

func writePlane(w io.Writer, p v1.PlaneStatus, o TextOptions) {
	if p.Started.IsZero() {
		fmt.Fprintf(w, "Plane      starting, version %s\n", p.Version)
		return
	}
	role := "leading"
	switch {
	case p.Leading:
	case p.Ending:
		role = "ending"
	case p.Starting:
		role = "starting to lead"
	case p.Leader != "":
		role = "standby of " + p.Leader
	default:
		role = "standby, without knowing the leader"
	}
	fmt.Fprintf(w, "Plane      %s, %s, up %s, epoch %d, revision %d, version %s\n",
		p.Identity, role, age(o.Now, p.Started), p.Epoch, p.Revision, p.Version)
	writeFreeze(w, p.Freeze, o)
	if !p.Leading && !p.Starting && !p.Ending && p.Leader != "" {
		fmt.Fprint(w, "           machines report to the leader: ask it for their state")
		if p.LeaderConsole != "" {
			fmt.Fprint(w, ", its console is at ", p.LeaderConsole)
		}
		fmt.Fprintln(w)
	}
}

func writeMachines(w io.Writer, machines []v1.MachineStatus, o TextOptions) {
	t := heading(w, "Machines", len(machines), "no machine has joined: run `fairlead token create --machine NAME`, then `fairlead agent` there")
	if t == nil {
		return
	}
	shown := rows(w, machines, o)
	fmt.Fprintln(t, "  NAME\tSTATE\tPROXY\tREVISION\tREQUESTS\tADDRESSES")
	for _, m := range shown {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%d\t%s\n",
			m.Name, machineState(m, o.Now), proxyState(m.Proxy), machineRevision(m), m.Proxy.Requests, list(m.Addresses, 3))
	}
	flush(t)
}

func writeListeners(w io.Writer, listeners []v1.ListenerStatus, o TextOptions) {
	t := heading(w, "Listeners", len(listeners), "none: no Gateway and no root IngressRoute asks for one")
	if t == nil {
		return
	}
	shown := rows(w, listeners, o)
	fmt.Fprintln(t, "  NAME\tPORT\tPROTOCOL\tHOSTS\tMACHINES")
	for _, l := range shown {
		fmt.Fprintf(t, "  %s\t%d\t%s\t%d\t%s\n", l.ID, l.Port, l.Protocol, l.Hosts, list(l.Machines, 5))
	}
	flush(t)
}

func writeRoutes(w io.Writer, routes []v1.RouteStatus, o TextOptions) {
	t := heading(w, "Routes", len(routes), "none")
	if t == nil {
		return
	}
	shown := rows(w, routes, o)
	fmt.Fprintln(t, "  KIND\tNAME\tHOSTS\tSTATE")
	for _, r := range shown {
		fmt.Fprintf(t, "  %s\t%s/%s\t%s\t%s\n", r.Kind, r.Namespace, r.Name, list(r.Hosts, 2), r.State)
	}
	flush(t)
}

// writeProblems shows what one cause does to many objects once.
func writeProblems(w io.Writer, problems []v1.Problem, o TextOptions) {
	if len(problems) == 0 {
		fmt.Fprint(w, "\nNothing is wrong.\n")
		return
	}
	var all grouped[v1.Problem]
	subjects := map[string]bool{}
	for _, p := range problems {
		k := p
		k.Subject = ""
		all.add(k, p.Subject)
		subjects[p.Subject] = true
	}
	fmt.Fprintf(w, "\nProblems (%d)", len(all.causes))
	if len(subjects) > len(all.causes) {
		fmt.Fprintf(w, ", at %d objects", len(subjects))
	}
	fmt.Fprintln(w)
	for _, c := range rows(w, all.causes, o) {
		fmt.Fprintf(w, "  %s  %s: %s\n", c.what.Severity, c.named(o), c.what.Reason)
		for line := range strings.SplitSeq(c.what.Message, "\n") {
			fmt.Fprintf(w, "         %s\n", line)
		}
	}
}

// namedSubjects is how many objects with one cause are named.
const namedSubjects = 3

// cause is what is wrong with several objects.
type cause[C comparable] struct {
	what     C
	subjects []string
}

// grouped are causes in the order in which each came first.
type grouped[C comparable] struct {
	causes []*cause[C]
	known  map[C]*cause[C]
}

func (g *grouped[C]) add(what C, subject string) {
	c := g.known[what]
	if c == nil {
		if g.known == nil {
			g.known = map[C]*cause[C]{}
		}
		c = &cause[C]{what: what}
		g.known[what] = c
		g.causes = append(g.causes, c)
	}
	c.subjects = append(c.subjects, subject)
}

// named names the first objects of a cause, and says how many more there are.
func (c *cause[C]) named(o TextOptions) string {
	if more := len(c.subjects) - namedSubjects; more > 0 && o.MaxRows > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(c.subjects[:namedSubjects], ", "), more)
	}
	return strings.Join(c.subjects, ", ")
}

// heading prints a table's title and returns its writer, or nil when it is empty.
func heading(w io.Writer, title string, n int, empty string) *tabwriter.Writer {
	if n == 0 {
		fmt.Fprintf(w, "\n%-10s %s\n", title, empty)
		return nil
	}
	fmt.Fprintf(w, "\n%s (%d)\n", title, n)
	return tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
}

// rows cuts a table to its bound and says what it left out.
func rows[T any](w io.Writer, all []T, o TextOptions) []T {
	if o.MaxRows <= 0 || len(all) <= o.MaxRows {
		return all
	}
	fmt.Fprintf(w, "  (the first %d of %d; %s shows all)\n", o.MaxRows, len(all), cmp.Or(o.Rest, "--all"))
	return all[:o.MaxRows]
}

func machineState(m v1.MachineStatus, now time.Time) string {
	state := "connected"
	switch {
	case !m.Connected && m.LastReport.IsZero():
		state = "never seen"
	case !m.Connected:
		state = "lost " + age(now, m.LastReport) + " ago"
	}
	if m.Cordoned {
		state += ", cordoned"
	}
	return state
}

func proxyState(p v1.ProxyStatus) string {
	s := cmp.Or(p.State, "unknown")
	if p.Starts > 1 {
		s += fmt.Sprintf(" (%d starts)", p.Starts)
	}
	return s
}

func machineRevision(m v1.MachineStatus) string {
	if m.Applied >= m.Wanted {
		return fmt.Sprintf("%d", m.Applied)
	}
	return fmt.Sprintf("%d of %d", m.Applied, m.Wanted)
}

func list(items []string, limit int) string {
	if len(items) == 0 {
		return "-"
	}
	if len(items) > limit {
		return fmt.Sprintf("%s and %d more", strings.Join(items[:limit], ","), len(items)-limit)
	}
	return strings.Join(items, ",")
}

// age is how long ago something was, with the one or two units that matter.
func age(now, then time.Time) string {
	if then.IsZero() {
		return "?"
	}
	return span(now.Sub(then))
}

// span is a duration with the one or two units that matter.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "?"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	}
}

// flush ignores the error: the writer underneath is buffered and reports it at the end.
func flush(t *tabwriter.Writer) { _ = t.Flush() }

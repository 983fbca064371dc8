package console

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

func upstreamsHandler(upstreams func(ctx context.Context, name string) ([]model.UpstreamStatus, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rows, err := upstreams(r.Context(), r.URL.Query().Get("name"))
		answerPage(w, r, upstreamOrder, rows, err)
	}
}

var upstreamOrder = order[model.UpstreamStatus]{
	key:  func(u model.UpstreamStatus) string { return u.Name },
	text: func(u model.UpstreamStatus) string { return u.Name + " " + u.Type },
	by: map[string]func(a, b model.UpstreamStatus) int{
		"name":     compareBy(func(u model.UpstreamStatus) string { return u.Name }),
		"type":     compareBy(func(u model.UpstreamStatus) string { return u.Type }),
		"services": compareBy(func(u model.UpstreamStatus) int { return u.Replicated.Services }),
	},
}

// Upstreams asks a plane's console for all upstreams, or for one with its last changes. It is ErrNone where there is none
// of the name.
func (c Client) Upstreams(ctx context.Context, name string) ([]v1.Upstream, error) {
	path := v1.UpstreamsPath
	if name != "" {
		path += "?" + url.Values{"name": {name}}.Encode()
	}
	body, err := c.Get(ctx, path)
	if err != nil {
		return nil, err
	}
	var rows []v1.Upstream
	if err := json.Unmarshal(body, &rows); err != nil {
		return nil, fmt.Errorf("read the upstreams from %s: %w", c.URL, err)
	}
	return rows, nil
}

// Types of an Upstream's conditions.
const (
	upstreamAccepted  = "Accepted"
	upstreamReachable = "Reachable"
	upstreamCurrent   = "Current"
)

// WriteUpstreams renders upstreams for a terminal, a line each.
func WriteUpstreams(w io.Writer, rows []v1.Upstream, now time.Time) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "no upstream: there is no Upstream in the API")
		return err
	}
	t := tabwriter.NewWriter(printable{w}, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tTYPE\tREACHABLE\tCURRENT\tSINCE\tSERVICES\tHELD\tENDPOINTS\tREFUSED\tCONTACT\tSWEEP")
	for _, u := range rows {
		if u.Deleted {
			fmt.Fprintf(t, "%s\tdeleted\t-\t-\t-\t%d left\t-\t%d\t-\t-\t-\n", u.Name, u.Replicated.Services, u.Replicated.Endpoints)
			continue
		}
		reachable, current := conditionOf(u, upstreamReachable), conditionOf(u, upstreamCurrent)
		if accepted := conditionOf(u, upstreamAccepted); accepted.Status == "False" {
			reachable = accepted // why nobody asks
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d/%d\t%d\t%d\t%d\t%s\t%s\n",
			u.Name, u.Type, conditionText(reachable), conditionText(current), ago(now, worse(u).Since),
			u.Replicated.Services, u.Seen.Services, u.Held.Services, u.Replicated.Endpoints, u.Refused, ago(now, u.LastContact), ago(now, u.LastSweep))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the upstreams: %w", err)
	}
	return nil
}

// worse is the condition of an upstream that is shown: the first that is not true, else whether it is current.
func worse(u v1.Upstream) v1.UpstreamCondition {
	for _, c := range u.Conditions {
		if c.Status != "True" {
			return c
		}
	}
	return conditionOf(u, upstreamCurrent)
}

func conditionOf(u v1.Upstream, kind string) v1.UpstreamCondition {
	i := slices.IndexFunc(u.Conditions, func(c v1.UpstreamCondition) bool { return c.Type == kind })
	if i < 0 {
		return v1.UpstreamCondition{}
	}
	return u.Conditions[i]
}

// conditionText is "yes", or the reason why not.
func conditionText(c v1.UpstreamCondition) string {
	if c.Status == "True" {
		return "yes"
	}
	return cmp.Or(c.Reason, "unknown")
}

func ago(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return age(now, then)
}

// UpstreamOptions say how one upstream is rendered. 0 refusals or changes are all.
type UpstreamOptions struct {
	Now                       time.Time
	MostRefusals, MostChanges int
}

// WriteUpstream renders one upstream for a terminal: its conditions, what is left out of it, and its last changes.
func WriteUpstream(w io.Writer, u v1.Upstream, o UpstreamOptions) error {
	b := bufio.NewWriterSize(printable{w}, screen)
	switch {
	case u.Deleted:
		writeDeletedUpstream(b, u)
	default:
		writeUpstreamState(b, u, o)
		writeUpstreamRefusals(b, u, o)
		writePassages(b, u.Changes, o)
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write the upstream: %w", err)
	}
	return nil
}

func writeDeletedUpstream(w io.Writer, u v1.Upstream) {
	fmt.Fprintf(w, "%s, deleted: %d Services with %d endpoints are left\n", u.Name, u.Replicated.Services, u.Replicated.Endpoints)
	switch {
	case u.Used == nil:
		fmt.Fprintln(w, "  the plane has yet to find out to which of them something routes")
	case len(u.Used) == 0:
		fmt.Fprintln(w, "  nothing routes to them: the plane deletes them")
	default:
		fmt.Fprintf(w, "  something routes to %d of them: change the routes, or run `fairlead upstream confirm %s`\n", len(u.Used), u.Name)
		for _, name := range u.Used {
			fmt.Fprintln(w, "    Service", name)
		}
	}
}

func writeUpstreamState(w io.Writer, u v1.Upstream, o UpstreamOptions) {
	fmt.Fprintf(w, "%s, %s\n", u.Name, u.Type)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, c := range u.Conditions {
		since := ""
		if !c.Since.IsZero() {
			since = " for " + age(o.Now, c.Since)
		}
		fmt.Fprintf(t, "  %s\t%s%s, %s\t%s\n", c.Type, strings.ToLower(c.Status), since, c.Reason, c.Message)
	}
	flush(t)
	count := func(what string, c v1.UpstreamCounts) {
		fmt.Fprintf(w, "  %-11s %d services, %d endpoints\n", what, c.Services, c.Endpoints)
	}
	count("seen", u.Seen)
	count("in effect", u.Replicated)
	if u.Held.Services > 0 {
		count("held", u.Held)
	}
	fmt.Fprintf(w, "  %-11s %s\n", "contact", agoText(o.Now, u.LastContact))
	fmt.Fprintf(w, "  %-11s %s\n", "full list", agoText(o.Now, u.LastSweep))
	var answers []string
	for _, class := range slices.Sorted(maps.Keys(u.Requests.Answers)) {
		answers = append(answers, fmt.Sprintf("%d %s", u.Requests.Answers[class], class))
	}
	if len(answers) > 0 {
		fmt.Fprintf(w, "  %-11s %s, %d bytes; %d waited because the API asked for fewer\n", "requests", strings.Join(answers, ", "), u.Requests.Bytes, u.Requests.Throttled)
	}
	fmt.Fprintf(w, "  %-11s %d\n", "writes due", u.WritesQueued)
}

func agoText(now, then time.Time) string {
	if then.IsZero() {
		return "never"
	}
	return age(now, then) + " ago"
}

func writeUpstreamRefusals(w io.Writer, u v1.Upstream, o UpstreamOptions) {
	if u.Refused == 0 {
		return
	}
	fmt.Fprintf(w, "\nLeft out (%d)\n", u.Refused)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	shown := u.Refusals
	if o.MostRefusals > 0 {
		shown = shown[:min(len(shown), o.MostRefusals)]
	}
	for _, r := range shown {
		fmt.Fprintf(t, "  %s\t%s\t%s\n", r.Object, r.Reason, r.Message)
	}
	flush(t)
	if more := u.Refused - len(shown); more > 0 {
		hint := "--all shows the first 1,000"
		if o.MostRefusals == 0 {
			hint = "the metric fairlead_discovery_refused counts them by reason"
		}
		fmt.Fprintf(w, "  %d more; %s\n", more, hint)
	}
}

// writePassages renders changes, each with when it was seen, and how long after that each step came.
func writePassages(w io.Writer, changes []v1.Passage, o UpstreamOptions) {
	if len(changes) == 0 {
		return
	}
	if o.MostChanges > 0 {
		changes = changes[:min(len(changes), o.MostChanges)]
	}
	fmt.Fprintln(w, "\nLast changes")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "  SEEN\tSERVICE\tDECIDED\tPUBLISHED\tIN FORCE\tREVISION")
	for _, p := range changes {
		published, inForce, revision := after(p.Seen, p.Published), after(p.Seen, p.InForce), "-"
		if p.Unused {
			published, inForce = "unused", "-"
		}
		if p.Revision > 0 {
			revision = fmt.Sprint(p.Revision)
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\n", p.Seen.UTC().Format("2006-01-02T15:04:05.000Z"), p.Service, after(p.Seen, p.Decided), published, inForce, revision)
	}
	flush(t)
}

// after is "+12ms", or "-" for what has not come yet.
func after(seen, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return "+" + max(then.Sub(seen), 0).Round(time.Millisecond).String()
}

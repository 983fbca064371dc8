package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
)

// ExplainPath is where a plane explains a request as JSON. Its parameters are url, which
// must be given, method, from, vip, and any number of header ("name: value").
const ExplainPath = "/v1/explain"

// explainHandler answers with an explanation, 400 to what is no request, and 503 when the
// plane cannot tell.
func explainHandler(f func(context.Context, explain.Request) (explain.Explanation, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		r, err := explainRequest(q.URL.RawQuery)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(q.Context(), 10*time.Second)
		defer cancel()
		e, err := f(ctx, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		body, err := json.MarshalIndent(e, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		writeBody(w, append(body, '\n'))
	}
}

func explainRequest(query string) (explain.Request, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return explain.Request{}, fmt.Errorf("the query: %w", err)
	}
	for name, all := range values {
		switch {
		case !slices.Contains([]string{"url", "method", "from", "vip", "header"}, name):
			return explain.Request{}, fmt.Errorf("parameter %q is unknown: want url, method, from, vip, header", name)
		case name != "header" && len(all) > 1:
			return explain.Request{}, fmt.Errorf("%s is given %d times", name, len(all))
		}
	}
	return explain.NewRequest(explain.Options{
		URL: values.Get("url"), Method: values.Get("method"), From: values.Get("from"), VIP: values.Get("vip"), Headers: values["header"],
	})
}

// Explain asks a plane's console what becomes of a request.
func (c Client) Explain(ctx context.Context, o explain.Options) (explain.Explanation, error) {
	var e explain.Explanation
	values := url.Values{"url": {o.URL}, "header": o.Headers}
	for name, value := range map[string]string{"method": o.Method, "from": o.From, "vip": o.VIP} {
		if value != "" {
			values.Set(name, value)
		}
	}
	body, err := c.Get(ctx, ExplainPath+"?"+values.Encode())
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return e, fmt.Errorf("read the explanation from %s: %w", c.URL, err)
	}
	return e, nil
}

// WriteExplanation renders an explanation for a terminal, a step a paragraph; each says
// which resource decided it.
func WriteExplanation(w io.Writer, e explain.Explanation) error {
	b := &paragraphs{w: bufio.NewWriterSize(printable{w}, screen)}
	line := e.Request.Method + " " + e.Request.URL()
	for _, h := range e.Request.Headers {
		line += ", " + h.Name + ": " + h.Value
	}
	if e.Request.From.IsValid() {
		line += ", from " + e.Request.From.String()
	}
	fmt.Fprintln(b.w, line)
	writeNetworkStep(b, e)
	if l := e.Listener; l != nil {
		text := fmt.Sprintf("%s, port %d, %s", l.ID, l.Port, l.Protocol)
		if len(l.Machines) > 0 {
			text += ", at " + list(l.Machines, 5)
		}
		b.step("listener", text)
		b.by(l.By)
	}
	writeHost(b, e)
	writeRoute(b, e)
	writeGroups(b, e)
	b.step("answer", e.Answer.Text)
	if len(e.Problems) > 0 {
		writeProblems(b.w, e.Problems, TextOptions{MaxRows: 5})
	}
	return flushAll(b.w, "explanation")
}

// paragraphs writes steps with an indent.
type paragraphs struct{ w *bufio.Writer }

func (b *paragraphs) step(name, text string) { fmt.Fprintf(b.w, "\n-> %-9s%s\n", name, text) }

func (b *paragraphs) line(format string, args ...any) {
	fmt.Fprintf(b.w, "            "+format+"\n", args...)
}

func (b *paragraphs) by(sources []explain.Source) {
	const most = 3
	for _, s := range sources[:min(len(sources), most)] {
		b.line("by %s", s)
	}
}

func writeNetworkStep(b *paragraphs, e explain.Explanation) {
	n := e.Network
	for _, v := range n.VIPs {
		b.step("VIP", fmt.Sprintf("%s, %s of %s, %s", v.Address, v.Announce, v.Pool, v.State))
		b.line("by %s", v.Owner)
		if len(v.By) > 0 {
			b.line("announced by %s", list(v.By, 8))
		}
		if len(v.By)+len(v.Not) == 0 && len(v.Machines) > 0 {
			b.line("for %s to announce", list(v.Machines, 8))
		}
		for _, m := range v.Not {
			b.line("not by %s: %s", m.Machine, m.Why)
		}
		if v.Message != "" && len(v.Not) == 0 {
			b.line("%s", v.Message)
		}
		if v.Note != "" {
			b.line("%s", v.Note)
		}
	}
	names := make([]string, 0, len(n.Edges))
	for _, edge := range n.Edges {
		names = append(names, edge.Machine)
	}
	if len(names) == 0 {
		b.step("edge", n.How)
		return
	}
	b.step("edge", list(names, 8)+": "+n.How)
	for _, edge := range n.Edges {
		if edge.Note != "" || len(n.VIPs) == 0 {
			text := edge.Machine + " at " + list(edge.Through, 4)
			if edge.Note != "" {
				text += ": " + edge.Note
			}
			b.line("%s", text)
		}
	}
}

func writeHost(b *paragraphs, e explain.Explanation) {
	h := e.Host
	if h == nil {
		return
	}
	switch h.Kind {
	case "":
		b.step("host", "none: looked for "+list(h.LookedFor, 6))
	case "exact":
		b.step("host", h.VirtualHost)
	default:
		b.step("host", h.VirtualHost+", for "+h.Name+": there is no "+list(h.LookedFor[:len(h.LookedFor)-1], 4))
	}
	b.by(h.By)
	for _, n := range append(slices.Clone(e.Notes), h.Note) {
		if n != "" {
			b.line("%s", n)
		}
	}
}

func writeRoute(b *paragraphs, e explain.Explanation) {
	const most = 6
	if e.Route == nil {
		if e.Routes != nil {
			b.step("route", fmt.Sprintf("none of the %d takes it", e.Routes.Tried))
			writePassed(b, e.Routes, most)
		}
		return
	}
	r := e.Route
	b.step("route", r.Match)
	b.line("by %s", r.By)
	writePassed(b, e.Routes, most)
	for _, s := range e.Routes.Also {
		b.line("would take it too: %s", s)
	}
	if r.Respond != nil {
		text := fmt.Sprintf("answers %d", r.Respond.Status)
		if r.Respond.Body != "" {
			text += " " + cut(fmt.Sprintf("%q", r.Respond.Body), 100)
		}
		b.line("%s", text)
		return
	}
	if r.Redirect != nil {
		b.line("redirects with %d", r.Redirect.Status)
		return
	}
	f := r.Forward
	if f.Rewrite != nil {
		b.line("backends see the path %s", f.Path)
	}
	if f.Host != "" {
		b.line("backends see the host %s", f.Host)
	}
	for _, m := range f.Mirrors {
		b.line("copies of %s go to %s", explain.Share(100*float64(m.Numerator)/float64(m.Denominator)), m.Group)
	}
	timeout := "no timeout"
	if f.Timeout > 0 {
		timeout = "timeout " + f.Timeout.String()
	}
	retry := fmt.Sprintf("%d retries of failed connections", f.Attempts)
	if f.RetryAny {
		retry = fmt.Sprintf("%d retries, of 5xx answers too", f.Attempts)
	}
	for i, code := range f.RetryCodes {
		if i == 0 {
			retry += ", of answers"
		}
		retry += fmt.Sprintf(" %d", code)
	}
	if f.PerTryTimeout > 0 {
		retry += ", each within " + f.PerTryTimeout.String()
	}
	if f.WebSocket {
		retry += ", WebSocket"
	}
	b.line("%s, %s", timeout, retry)
}

func writePassed(b *paragraphs, r *explain.Routes, most int) {
	for i, p := range r.Passed {
		if i == most || i == len(r.Passed)-1 && r.Tried > len(r.Passed) {
			b.line("not %d more", r.Tried-i)
			return
		}
		b.line("not %s: %s", p.Source, p.Why)
	}
}

func writeGroups(b *paragraphs, e explain.Explanation) {
	const most = 8
	for i, g := range e.Groups {
		name := string(g.Group)
		if name == "" {
			name = "a broken reference"
		}
		text := fmt.Sprintf("%s to %s, weight %d", explain.Share(g.Percent), name, g.Weight)
		if g.Balance != model.BalanceRoundRobin {
			text += ", " + string(g.Balance)
		}
		b.step("backends", text)
		if i == 0 && e.Route.Forward != nil {
			b.line("weights by %s", e.Route.Forward.By)
		}
		b.by(g.By)
		if g.Check != "" {
			b.line("proxies check %s; what they find is not known here", g.Check)
		}
		for i, x := range g.Backends {
			if i == most {
				b.line("%d more", len(g.Backends)-i)
				break
			}
			zone := ""
			if x.Zone != "" {
				zone = ", zone " + x.Zone
			}
			b.line("%s %s, %s%s", x.Address, x.State, explain.Share(x.Percent), zone)
		}
		if g.Group != "" && len(g.Backends) == 0 {
			b.line("no backends")
		}
	}
}

// cut shortens a text.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}

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

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/explain"
)

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
		case !slices.Contains([]string{"url", "method", "from", "vip", "sni", "header"}, name):
			return explain.Request{}, fmt.Errorf("parameter %q is unknown: want url, method, from, vip, sni, header", name)
		case name != "header" && len(all) > 1:
			return explain.Request{}, fmt.Errorf("%s is given %d times", name, len(all))
		}
	}
	return explain.NewRequest(explain.Options{
		URL: values.Get("url"), Method: values.Get("method"), From: values.Get("from"), VIP: values.Get("vip"), SNI: values.Get("sni"), Headers: values["header"],
	})
}

// Explain asks a plane's console what becomes of a request.
func (c Client) Explain(ctx context.Context, o explain.Options) (v1.Explanation, error) {
	var e v1.Explanation
	values := url.Values{"url": {o.URL}, "header": o.Headers}
	for name, value := range map[string]string{"method": o.Method, "from": o.From, "vip": o.VIP, "sni": o.SNI} {
		if value != "" {
			values.Set(name, value)
		}
	}
	body, err := c.Get(ctx, v1.ExplainPath+"?"+values.Encode())
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return e, fmt.Errorf("read the explanation from %s: %w", c.URL, err)
	}
	return e, nil
}

// Declared is an explanation as a console answers with it.
func Declared(e explain.Explanation) (v1.Explanation, error) {
	var declared v1.Explanation
	body, err := json.Marshal(e)
	if err == nil {
		err = json.Unmarshal(body, &declared)
	}
	if err != nil {
		return declared, fmt.Errorf("a bug: an explanation is not declared: %w", err)
	}
	return declared, nil
}

// WriteExplanation renders an explanation for a terminal, a step a paragraph; each says
// which resource decided it.
func WriteExplanation(w io.Writer, e v1.Explanation) error {
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
	writeListener(b, e)
	writeTLS(b, e)
	writeHost(b, e)
	writeRoute(b, e)
	writeGroups(b, e)
	b.step("answer", e.Answer.Text)
	for _, o := range e.OfOthers {
		b.line("%s has the host, but its class %q is another controller's (--ingress-class)", o.Source, o.Class)
	}
	if e.OfOthersMore > 0 {
		b.line("and so do %d more", e.OfOthersMore)
	}
	if f := e.Frozen; f != nil {
		text := "routing is frozen since " + f.Since.UTC().Format(time.RFC3339)
		if f.Reason != "" {
			text += " (" + f.Reason + ")"
		}
		if f.Held {
			text += ": a change of what concerns this request is held back"
		}
		b.line("%s", text)
	}
	if len(e.Problems) > 0 {
		writeProblems(b.w, e.Problems, TextOptions{MaxRows: 5, Rest: "`fairlead status`"})
	}
	return flushAll(b.w, "explanation")
}

// paragraphs writes steps with an indent.
type paragraphs struct{ w *bufio.Writer }

func (b *paragraphs) step(name, text string) { fmt.Fprintf(b.w, "\n-> %-9s%s\n", name, text) }

func (b *paragraphs) line(format string, args ...any) {
	fmt.Fprintf(b.w, "            "+format+"\n", args...)
}

// by names the first of the resources that brought something about, and counts the others;
// more are those that sources does not have.
func (b *paragraphs) by(sources []v1.Source, more int) {
	const most = 3
	for _, s := range sources[:min(len(sources), most)] {
		b.line("by %s", s)
	}
	if more += max(0, len(sources)-most); more > 0 {
		b.line("and by %d more", more)
	}
}

func writeNetworkStep(b *paragraphs, e v1.Explanation) {
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

// cut shortens a text.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}

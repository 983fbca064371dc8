package render

import (
	"fmt"
	"strings"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

func writeRoute(b *strings.Builder, r model.Route) {
	fmt.Fprintf(b, "  %s\n", r.Name)
	fmt.Fprintf(b, "    %s", matchText(r.Match))
	if r.Respond != nil {
		fmt.Fprintf(b, " -> %d", r.Respond.Status)
		if r.Respond.Body != "" {
			fmt.Fprintf(b, " %q", r.Respond.Body)
		}
	}
	if r.Redirect != nil {
		b.WriteString(redirectText(r.Redirect))
	}
	b.WriteByte('\n')
	if f := r.Forward; f != nil {
		writeForward(b, f)
	}
	writeEdits(b, "    ", r.RequestHeaders, r.ResponseHeaders)
	if c := r.CORS; c != nil {
		fmt.Fprintf(b, "    cors origins %s methods %s headers %s expose %s age %s%s\n",
			listText(c.Origins), listText(c.Methods), listText(c.Headers), listText(c.Expose), c.MaxAge, field.When(c.Credentials, " with credentials"))
	}
	writePolicy(b, "    ", r.Policy)
}

func writeForward(b *strings.Builder, f *model.Forward) {
	for _, w := range f.Backends {
		if w.Group == "" {
			fmt.Fprintf(b, "    -> %d broken\n", w.Weight)
		} else {
			fmt.Fprintf(b, "    -> %d %s\n", w.Weight, w.Group)
		}
		writeEdits(b, "      ", w.RequestHeaders, w.ResponseHeaders)
	}
	for _, m := range f.Mirrors {
		fmt.Fprintf(b, "    mirror %d/%d to %s\n", m.Numerator, m.Denominator, m.Group)
	}
	var options []string
	add := func(is bool, format string, args ...any) {
		if is {
			options = append(options, fmt.Sprintf(format, args...))
		}
	}
	if p := f.Path; p != nil {
		add(true, "rewrite %s%s", field.When(p.Kind == model.RewriteFull, "all to "), p.Value)
	}
	add(f.Host != "", "host %s", f.Host)
	add(f.Timeout == model.Never, "timeout never")
	add(f.Timeout > 0, "timeout %s", f.Timeout)
	add(f.Stream, "stream")
	if r := f.Retry; r != nil {
		add(true, "retry %d%s", r.Attempts, field.When(r.ServerErrors, " for server errors"))
		for _, code := range r.Codes {
			options[len(options)-1] += fmt.Sprintf(" %d", code)
		}
		add(r.Backoff != 0, "backoff %s", r.Backoff)
	}
	add(len(f.RetryMethods) > 0, "again %s", strings.Join(f.RetryMethods, " "))
	add(f.TryTimeout != 0, "each try %s", f.TryTimeout)
	if s := f.Sticky; s != nil {
		text := "cookie " + s.Name + " at " + s.Path + field.When(s.Lifetime != 0, " for "+s.Lifetime.String())
		if s.Header {
			text = "header " + s.Name
		}
		add(true, "sticky by %s", text)
	}
	add(f.WebSocket, "websocket")
	add(f.NoUpgrade && !f.Stream, "no websockets")
	if len(options) > 0 {
		fmt.Fprintf(b, "    with %s\n", strings.Join(options, ", "))
	}
}

// writeEdits writes how the headers of requests and responses are changed.
func writeEdits(b *strings.Builder, indent string, request, response *model.HeaderEdits) {
	write := func(word string, e *model.HeaderEdits) {
		if e == nil {
			return
		}
		b.WriteString(indent + word)
		for _, h := range e.Set {
			fmt.Fprintf(b, " set %s=%q", h.Name, h.Value)
		}
		for _, h := range e.Add {
			fmt.Fprintf(b, " add %s=%q", h.Name, h.Value)
		}
		b.WriteString(field.When(len(e.Remove) > 0, " remove "+listText(e.Remove)) + "\n")
	}
	write("request", request)
	write("response", response)
}

func matchText(m model.Match) string {
	text := strings.ToLower(string(m.Path.Kind)) + " " + m.Path.Value
	if m.Method != "" {
		text += " method " + m.Method
	}
	for _, h := range m.Headers {
		text += " header " + valueText(h)
	}
	for _, q := range m.Query {
		text += " query " + valueText(q)
	}
	return text
}

func valueText(v model.ValueMatch) string {
	if v.Regex {
		return fmt.Sprintf("%s~%q", v.Name, v.Value)
	}
	return fmt.Sprintf("%s=%q", v.Name, v.Value)
}

// redirectText says where a request is sent; "-" stays as the client asked.
func redirectText(r *model.Redirect) string {
	text := fmt.Sprintf(" -> %d", r.Status)
	if r.Scheme != "" {
		text += " scheme " + r.Scheme
	}
	if r.Host != "" {
		text += " host " + r.Host
	}
	if r.Port != 0 {
		text += fmt.Sprintf(" port %d", r.Port)
	}
	if r.Path != nil {
		text += " path " + strings.ToLower(string(r.Path.Kind)) + " " + r.Path.Value
	}
	return text
}

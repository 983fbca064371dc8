package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/explain"
)

func writeListener(b *paragraphs, e v1.Explanation) {
	l := e.Listener
	if l == nil {
		return
	}
	text := fmt.Sprintf("%s, port %d, %s", l.ID, l.Port, l.Protocol)
	if len(l.Addresses) > 0 {
		var at []string
		for _, a := range l.Addresses {
			at = append(at, a.String())
		}
		text += ", bound to " + list(at, 4)
	}
	if len(l.Machines) > 0 {
		text += ", at " + list(l.Machines, 5)
	}
	b.step("listener", text)
	b.by(l.By, l.ByMore)
	for _, by := range l.ClientsBy {
		b.line("clients are treated by %s", by)
	}
	for _, id := range l.Others {
		b.line("not %s, at other addresses", id)
	}
	b.notes(l.Notes)
}

func writeTLS(b *paragraphs, e v1.Explanation) {
	t := e.TLS
	if t == nil {
		return
	}
	name := t.ServerName
	if name == "" {
		name = "no server name"
	}
	switch t.Host {
	case "":
		b.step("TLS", name+": looked for "+list(t.LookedFor, 6))
	case t.ServerName:
		b.step("TLS", name)
	default:
		b.step("TLS", t.Host+", for "+name)
	}
	b.by(t.By, t.ByMore)
	if t.Passthrough {
		b.line("the connection goes on as it is")
	} else if t.TCP {
		b.line("what is inside goes on as bytes")
	}
	for _, c := range t.Certificates {
		b.line("certificate of %s, for %s, until %s", c.By, list(c.Names, 4), c.NotAfter.UTC().Format(time.RFC3339))
		if c.Problem != "" {
			b.line("%s", c.Problem)
		}
	}
	if t.MinVersion != "" && t.Fails == "" {
		text := "TLS " + t.MinVersion + " or newer"
		if t.ClientCertificate != "" {
			var by []string
			for _, a := range t.Authorities {
				by = append(by, string(a))
			}
			text += "; a client's certificate, by " + list(by, 3) + ", is " + t.ClientCertificate
		}
		b.line("%s", text)
	}
	b.notes(t.Notes)
	if t.Fails != "" {
		b.line("the handshake fails: %s", t.Fails)
	}
}

func (b *paragraphs) notes(notes []string) {
	for _, n := range notes {
		b.line("%s", n)
	}
}

// writePolicies are what a request passes before the route does what it does.
func writePolicies(b *paragraphs, r *v1.RouteStep) {
	if c := r.CORS; c != nil {
		may := "may"
		if !c.Allowed {
			may = "may not"
		}
		b.line("CORS: scripts of %s %s read the answer", c.Origin, may)
	}
	for _, p := range r.Policies {
		text := string(p.Kind) + ": " + p.Text
		if p.Status != 0 {
			text += fmt.Sprintf("; %d: %s", p.Status, p.Why)
		}
		b.line("%s", text)
		for _, by := range p.By {
			b.line("  by %s", by)
		}
	}
	writeEdits(b, "responses", r.ResponseHeaders)
}

func writeHeaders(b *paragraphs, headers []v1.ChangedHeader) {
	for _, h := range headers {
		if len(h.Values) == 0 {
			b.line("backends do not see the header %s", h.Name)
		} else {
			b.line("backends see the header %s: %s", h.Name, cut(strings.Join(h.Values, ", "), 100))
		}
	}
}

func writeEdits(b *paragraphs, of string, e *v1.HeaderEdits) {
	if e == nil {
		return
	}
	for _, name := range e.Remove {
		b.line("%s lose the header %s", of, name)
	}
	for _, h := range e.Set {
		b.line("%s have the header %s: %s", of, h.Name, cut(h.Value, 100))
	}
	for _, h := range e.Add {
		b.line("%s get a header %s: %s", of, h.Name, cut(h.Value, 100))
	}
}

// writeTreatment is how connections to a share's backends are made.
func writeTreatment(b *paragraphs, g v1.GroupStep) {
	for _, by := range g.PolicyBy {
		b.line("treated by %s", by)
	}
	if g.Host != "" {
		b.line("backends see the host %s", g.Host)
	}
	writeHeaders(b, g.Headers)
	writeEdits(b, "responses", g.ResponseHeaders)
	var how []string
	if g.Protocol != v1.BackendHTTP1 {
		how = append(how, "spoken to in "+string(g.Protocol))
	}
	if t := g.TLS; t != nil {
		text := "over TLS"
		if t.ServerName != "" {
			text += " as " + t.ServerName
		}
		switch {
		case t.Unverified:
			text += ", whatever certificate they show"
		case len(t.Authorities) == 0:
			text += ", verified by the authorities of the system"
		default:
			var by []string
			for _, a := range t.Authorities {
				by = append(by, string(a))
			}
			text += ", verified by " + list(by, 3)
		}
		if t.Certificate != "" {
			text += ", with the certificate " + string(t.Certificate)
		}
		how = append(how, text)
	}
	if g.ProxyProtocol {
		how = append(how, "with a PROXY header")
	}
	if g.IdleTimeout > 0 {
		how = append(how, "connections closed after "+g.IdleTimeout.String()+" without requests")
	}
	if o := g.Outlier; o != nil {
		how = append(how, fmt.Sprintf("out for %s after %d errors", o.EjectionTime, o.ConsecutiveErrors))
	}
	if l := g.Limits; l != nil {
		for _, limit := range []struct {
			n    uint32
			what string
		}{{l.MaxConnections, "connections"}, {l.MaxPending, "waiting requests"}, {l.MaxRequests, "requests"}} {
			if limit.n > 0 {
				how = append(how, fmt.Sprintf("at most %d %s of a machine at once", limit.n, limit.what))
			}
		}
	}
	if len(how) > 0 {
		b.line("%s", strings.Join(how, "; "))
	}
}

func writeHost(b *paragraphs, e v1.Explanation) {
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
	b.by(h.By, h.ByMore)
	for _, n := range append(slices.Clone(e.Notes), h.Note) {
		if n != "" {
			b.line("%s", n)
		}
	}
}

func writeRoute(b *paragraphs, e v1.Explanation) {
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
	writePolicies(b, r)
	if r.Respond != nil {
		text := fmt.Sprintf("answers %d", r.Respond.Status)
		if r.Respond.Body != "" {
			text += " " + cut(fmt.Sprintf("%q", r.Respond.Body), 100)
		}
		b.line("%s", text)
		return
	}
	if r.Redirect != nil {
		b.line("redirects with %d to %s", r.Redirect.Status, cut(r.Redirect.Location, 300))
		return
	}
	f := r.Forward
	if f.Rewrite != nil {
		b.line("backends see the path %s", f.Path)
	}
	if f.Host != "" {
		b.line("backends see the host %s", f.Host)
	}
	writeHeaders(b, f.Headers)
	if f.Sticky != nil {
		what := "cookie"
		if f.Sticky.Header {
			what = "header"
		}
		b.line("clients stay at the backend that the %s %s names, while that takes requests", what, f.Sticky.Name)
	}
	for _, m := range f.Mirrors {
		b.line("copies of %s go to %s", explain.Share(100*float64(m.Numerator)/float64(m.Denominator)), m.Group)
	}
	timeout := "no timeout"
	if f.Timeout > 0 {
		timeout = "timeout " + f.Timeout.String()
	}
	if f.Idle > 0 && f.Timeout == 0 {
		timeout += " but " + f.Idle.String() + " of silence"
	}
	retry := fmt.Sprintf("%d retries of failed connections", f.Attempts)
	if f.RetryAny {
		retry = fmt.Sprintf("%d retries, of 5xx answers too", f.Attempts)
	} else if f.RetryBroken {
		retry = fmt.Sprintf("%d retries of failed and broken connections", f.Attempts)
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
	if f.Stream {
		retry += ", gRPC"
	}
	if f.WebSocket {
		retry += ", WebSocket"
	}
	if f.NoUpgrade && !f.Stream {
		retry += ", no WebSockets"
	}
	b.line("%s, %s", timeout, retry)
}

func writePassed(b *paragraphs, r *v1.RoutesStep, most int) {
	for i, p := range r.Passed {
		if i == most || i == len(r.Passed)-1 && r.Tried > len(r.Passed) {
			b.line("not %d more", r.Tried-i)
			return
		}
		b.line("not %s: %s", p.Source, p.Why)
	}
}

func writeGroups(b *paragraphs, e v1.Explanation) {
	const most = 8
	for i, g := range e.Groups {
		name := string(g.Group)
		if name == "" {
			name = "a broken reference"
		}
		text := fmt.Sprintf("%s to %s, weight %d", explain.Share(g.Percent), name, g.Weight)
		if g.Balance != v1.BalanceRoundRobin {
			text += ", " + string(g.Balance)
		}
		b.step("backends", text)
		if i == 0 && e.Route != nil && e.Route.Forward != nil { // connections have no route
			b.line("weights by %s", e.Route.Forward.By)
		}
		b.by(g.By, g.ByMore)
		if g.Upstream != nil {
			b.line("%s", discoveredText(*g.Upstream))
		}
		writeTreatment(b, g)
		if g.Check != "" {
			text := "health check of " + g.Check
			if !slices.ContainsFunc(g.Backends, func(x v1.GroupBackend) bool { return x.Health != v1.HealthUnchecked }) {
				text += "; its result is not known"
			}
			b.line("%s", text)
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
			state := x.State
			if x.Health != v1.HealthUnchecked {
				state += ", " + string(x.Health)
			}
			if x.Backup {
				state += ", backup"
			}
			if x.Weight > 0 {
				state += fmt.Sprintf(", weight %d", x.Weight)
			}
			b.line("%s %s, %s%s", x.Address, state, explain.Share(x.Percent), zone)
		}
		if g.Group != "" && len(g.Backends) == 0 {
			b.line("no backends")
		}
		if g.Refusal != "" {
			b.line("%s", g.Refusal)
		}
	}
}

// discoveredText is "Service team01/app of Upstream up01, listed 3s ago".
func discoveredText(d v1.Discovered) string {
	text := cmp.Or(d.Object, "a service") + " of Upstream " + d.Upstream
	if d.Age > 0 {
		text += ", listed " + span(d.Age) + " ago"
	}
	switch {
	case !d.Held.IsZero():
		text += ", held since " + d.Held.UTC().Format(time.RFC3339) + ": the upstream does not list it like this any more"
	case !d.Failing.IsZero():
		text += "; the upstream does not answer since " + d.Failing.UTC().Format(time.RFC3339)
	case d.Contact > 0:
		text += "; the upstream answered " + span(d.Contact) + " ago"
	}
	return text
}

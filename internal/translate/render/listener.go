package render

import (
	"cmp"
	"fmt"
	"strings"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

func writeListener(b *strings.Builder, l *model.Listener, floor model.TLSVersion) {
	fmt.Fprintf(b, "listener %s port %d %s%s\n", l.ID, l.Port, l.Protocol, field.When(len(l.Addresses) > 0, " at "+addressList(l.Addresses)))
	if v := l.ClientValidation; v != nil {
		fmt.Fprintf(b, "  clients by %s%s\n", listText(v.Authorities), field.When(v.Optional, ", also without a certificate"))
	}
	writeClients(b, l.Clients, floor)
}

// writeClients writes how clients are treated at a listener.
func writeClients(b *strings.Builder, c *model.ClientSettings, floor model.TLSVersion) {
	if c == nil {
		return
	}
	var settings []string
	if c.TrustedHops != nil {
		settings = append(settings, fmt.Sprintf("trusted hops %d", *c.TrustedHops))
	}
	add := func(is bool, format string, args ...any) {
		if is {
			settings = append(settings, fmt.Sprintf(format, args...))
		}
	}
	add(c.AcceptProxyProtocol, "PROXY protocol")
	add(c.HTTP3, "HTTP/3")
	add(c.EscapedSlashes != "", "escaped slashes %s", c.EscapedSlashes)
	add(c.KeepSlashes, "slashes as they come")
	add(c.ForwardedHost, "X-Forwarded-Host")
	add(c.ForwardedPort, "X-Forwarded-Port")
	add(c.MaxConnections > 0, "connections %d", c.MaxConnections)
	add(c.MaxHeaderBytes > 0, "header bytes %d", c.MaxHeaderBytes)
	add(c.MaxHeaders > 0, "headers %d", c.MaxHeaders)
	add(c.MaxRequestsPerConnection > 0, "requests a connection %d", c.MaxRequestsPerConnection)
	add(c.MaxStreams > 0, "streams %d", c.MaxStreams)
	add(c.HeadersTimeout > 0, "headers within %s", c.HeadersTimeout)
	add(c.RequestTimeout > 0, "requests within %s", c.RequestTimeout)
	add(c.IdleTimeout > 0, "idle %s", c.IdleTimeout)
	add(c.MinTLS != "", "TLS %s", max(c.MinTLS, floor))
	if l := c.AccessLog; l != nil {
		add(l.Off, "access log off")
		what := "fields " + cmp.Or(strings.Join(l.Fields, " "), "all")
		if len(l.Template) > 0 {
			what = fmt.Sprintf("template %q", templateText(l.Template))
		}
		add(!l.Off, "access log to %s%s%s %s", cmp.Or(string(l.Collector), "file"), field.When(l.Errors, " errors only"),
			field.When(l.Percent > 0, fmt.Sprintf(" errors and %g%% of the rest", l.Percent)), what)
	}
	if t := c.Tracing; t != nil {
		add(true, "traces of %g%% to %s as %q", t.Percent, t.Collector, t.ServiceName)
	}
	add(len(c.ErrorPages) > 0, "error pages")
	fmt.Fprintf(b, "  clients %s\n", strings.Join(settings, ", "))
	writePages(b, "    ", c.ErrorPages)
}

// templateText is a template as a policy has it.
func templateText(parts []model.LogPart) string {
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p.Request != "":
			b.WriteString("{request." + p.Request + "}")
		case p.Response != "":
			b.WriteString("{response." + p.Response + "}")
		case p.Field != "":
			b.WriteString("{" + p.Field + "}")
		default:
			b.WriteString(strings.NewReplacer("{", "{{", "}", "}}").Replace(p.Text))
		}
	}
	return b.String()
}

package render

import (
	"cmp"
	"fmt"
	"strings"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

// writePolicy writes what policies ask of a route or host.
func writePolicy(b *strings.Builder, indent string, p *model.RoutePolicy) {
	if p == nil {
		return
	}
	if l := p.RateLimit; l != nil {
		fmt.Fprintf(b, "%srate limit %d per %s burst %d\n", indent, l.Requests, l.Per, l.Burst)
	}
	if g := p.GlobalRateLimit; g != nil {
		fmt.Fprintf(b, "%sglobal rate limit of %s domain %q timeout %s%s", indent, cmp.Or(g.Service, "nobody"), g.Domain, g.Timeout, field.When(g.FailOpen, " fail open"))
		for _, d := range g.Descriptors {
			fmt.Fprintf(b, " %q%s%s%s", d.Key, field.When(d.Header != "", " header "+d.Header), field.When(d.ClientAddress, " client address"), field.When(d.Value != "", fmt.Sprintf(" = %q", d.Value)))
		}
		b.WriteByte('\n')
	}
	if a := p.Authorization; a != nil {
		fmt.Fprintf(b, "%sauthorization by %s over %s timeout %s", indent, cmp.Or(a.Service, "nobody"), cmp.Or(field.When(a.HTTP, "HTTP"), "gRPC"), a.Timeout)
		fmt.Fprintf(b, "%s%s", field.When(a.FailOpen, " fail open"), field.When(a.PathPrefix != "", " path prefix "+a.PathPrefix))
		fmt.Fprintf(b, "%s%s", field.When(len(a.RequestHeaders) > 0, " request headers "+listText(a.RequestHeaders)), field.When(len(a.ResponseHeaders) > 0, " response headers "+listText(a.ResponseHeaders)))
		fmt.Fprintf(b, "%s\n", field.When(a.MaxBodyBytes > 0, fmt.Sprintf(" body %d", a.MaxBodyBytes)))
	}
	if f := p.Addresses; f != nil {
		b.WriteString(indent + "addresses")
		for _, side := range []struct {
			word string
			list []string
		}{{"allow", prefixTexts(f.Allow)}, {"deny", prefixTexts(f.Deny)}} {
			if len(side.list) > 0 {
				b.WriteString(" " + side.word + " " + listText(side.list))
			}
		}
		b.WriteByte('\n')
	}
	if p.MaxRequestBytes > 0 {
		fmt.Fprintf(b, "%srequests of at most %d bytes\n", indent, p.MaxRequestBytes)
	}
	if p.ErrorPages != nil {
		writePages(b, indent, p.ErrorPages.Pages)
	}
	if c := p.Compression; c != nil {
		var names []string
		for _, a := range c.Algorithms {
			names = append(names, string(a))
		}
		fmt.Fprintf(b, "%scompression %s%s%s\n", indent, cmp.Or(strings.Join(names, " "), "off"),
			field.When(len(names) > 0, fmt.Sprintf(" from %d bytes", c.MinBytes)), field.When(len(c.ContentTypes) > 0, " of "+strings.Join(c.ContentTypes, " ")))
	}
	if p.GRPCWeb != nil {
		fmt.Fprintf(b, "%sgRPC-Web %s\n", indent, cmp.Or(field.When(*p.GRPCWeb, "on"), "off"))
	}
	if l := p.AccessLog; l != nil {
		fmt.Fprintf(b, "%saccess log of %s\n", indent, cmp.Or(field.When(l.None, "no request"), fmt.Sprintf("errors and %g%% of the rest", l.Percent)))
	}
}

// writePages writes which page stands in place of which errors.
func writePages(b *strings.Builder, indent string, pages []model.ErrorPage) {
	for _, p := range pages {
		fmt.Fprintf(b, "%serrors %s%s: %s %q\n", indent, listText(p.Statuses), field.When(p.Backends, " of backends, too"), p.ContentType, p.Body)
	}
}

// writeBackendOptions writes what BackendPolicies ask of a group.
func writeBackendOptions(b *strings.Builder, g *model.BackendGroup) {
	if g.SendProxyProtocol {
		b.WriteString("  PROXY protocol\n")
	}
	if g.IdleTimeout > 0 {
		fmt.Fprintf(b, "  idle %s\n", g.IdleTimeout)
	}
	if o := g.Outlier; o != nil {
		fmt.Fprintf(b, "  outliers after %d errors every %s out for %s at most %d%%\n", o.ConsecutiveErrors, o.Interval, o.EjectionTime, o.MaxEjected)
	}
	if l := g.Limits; l != nil {
		words := ""
		for _, limit := range []struct {
			words string
			most  uint32
		}{
			{" connections %d", l.MaxConnections},
			{" pending %d", l.MaxPending},
			{" requests %d", l.MaxRequests},
			{" retries %d%%", l.MaxRetryBudget},
			{" retries %d", l.MaxRetries},
		} {
			if limit.most > 0 { // an unset limit is none, and not 0
				words += fmt.Sprintf(limit.words, limit.most)
			}
		}
		fmt.Fprintf(b, "  limits%s\n", words)
	}
}

// besidesContour is a policy without model.ContourEncoding; false where it says something else of these.
func besidesContour(p *model.RoutePolicy) (*model.RoutePolicy, bool) {
	if p == nil {
		return nil, false
	}
	if !model.SameEncoding(p, model.ContourEncoding()) {
		return p, false
	}
	rest := *p
	rest.Compression, rest.GRPCWeb = nil, nil
	return &rest, true
}

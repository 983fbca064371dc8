package xds

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

const corsFilter = "envoy.filters.http.cors"

// corsPolicy is what a route says to the CORS filter, which answers preflight requests and
// marks the responses of others.
func corsPolicy(c *model.CORS) *corsv3.CorsPolicy {
	p := &corsv3.CorsPolicy{
		AllowMethods:  strings.Join(c.Methods, ", "),
		AllowHeaders:  strings.Join(c.Headers, ", "),
		ExposeHeaders: strings.Join(exposed(c), ", "),
		MaxAge:        strconv.Itoa(int(c.MaxAge / time.Second)),
		// A stranger's preflight is answered here as well, without a word of permission.
		ForwardNotMatchingPreflights: wrapperspb.Bool(false),
	}
	if c.Credentials {
		p.AllowCredentials = wrapperspb.Bool(true)
	}
	for _, o := range c.Origins {
		p.AllowOriginStringMatch = append(p.AllowOriginStringMatch, originMatch(o))
	}
	return p
}

// exposed are the response headers that scripts may read. "*" with credentials would be the
// name of a header (Fetch standard, 3.2.4).
func exposed(c *model.CORS) []string {
	if c.Credentials && slices.Contains(c.Expose, "*") {
		return nil
	}
	return c.Expose
}

// originMatch compares an Origin header, in which browsers leave out the usual port of the
// scheme. "*" takes any number of labels.
func originMatch(origin string) *matcherv3.StringMatcher {
	value, regex := originValue(origin)
	return stringMatch(value, regex)
}

func originValue(origin string) (value string, regex bool) {
	if origin == "*" {
		return ".*", true
	}
	origin = strings.ToLower(origin)
	switch scheme, rest, _ := strings.Cut(origin, "://"); scheme {
	case "http":
		origin = scheme + "://" + strings.TrimSuffix(rest, ":80")
	case "https":
		origin = scheme + "://" + strings.TrimSuffix(rest, ":443")
	}
	if !strings.Contains(origin, "*") {
		return origin, false
	}
	return strings.ReplaceAll(regexp.QuoteMeta(origin), `\*`, `[^/:@]*`), true
}

// withCORS adds what a route with CORS needs besides its word to the filter, which looks at
// routes to backends only, and never at a method:
//   - Browsers ask with OPTIONS. A route for another method must hear that too.
//   - A route that answers by itself needs one before it for preflights, and one for the
//     origins that may read the answer.
func withCORS(c *model.CORS, m model.Match, routes []*routev3.Route) []*routev3.Route {
	if c == nil {
		return routes
	}
	asks := m
	asks.Method = "OPTIONS"
	wanted := model.ValueMatch{Name: "access-control-request-method", Value: ".+", Regex: true}
	if m.Method != "" && m.Method != asks.Method {
		wanted = model.ValueMatch{Name: wanted.Name, Value: m.Method}
	}
	asks.Headers = append(slices.Clone(m.Headers), model.ValueMatch{Name: "origin", Value: ".+", Regex: true}, wanted)

	last := routes[len(routes)-1]
	if last.GetRoute() != nil {
		for _, r := range routes {
			perFilter(r, corsFilter, pack(corsPolicy(c)))
		}
		if m.Method == "" || m.Method == asks.Method {
			return routes
		}
		preflight := cloneOf(last)
		preflight.Match = match(asks)
		return append([]*routev3.Route{preflight}, routes...)
	}

	set := func(r *routev3.Route, name, value string) {
		if value != "" {
			r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, headerOption(name, value, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD))
		}
	}
	list := func(values []string, asked string) string {
		if slices.Contains(values, "*") {
			return "%REQ(" + asked + ")%"
		}
		return literal(strings.Join(values, ", "))
	}
	var out []*routev3.Route
	for _, o := range c.Origins {
		from := &routev3.HeaderMatcher{Name: "origin", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: originMatch(o)}}
		preflight := &routev3.Route{Name: last.GetName(), Match: match(asks), Action: directResponse(200, "")}
		set(preflight, "access-control-allow-methods", list(c.Methods, "access-control-request-method"))
		set(preflight, "access-control-allow-headers", list(c.Headers, "access-control-request-headers"))
		set(preflight, "access-control-max-age", strconv.Itoa(int(c.MaxAge/time.Second)))
		preflight.Match.Headers = append(preflight.Match.Headers, from)
		out = append(out, preflight)
		for _, r := range routes {
			known := cloneOf(r)
			known.Match.Headers = append(known.Match.Headers, from)
			out = append(out, known)
		}
	}
	for _, r := range out {
		set(r, "access-control-allow-origin", "%REQ(origin)%")
		if c.Credentials {
			set(r, "access-control-allow-credentials", "true")
		}
		set(r, "access-control-expose-headers", literal(strings.Join(exposed(c), ", ")))
		set(r, "vary", "origin")
	}
	return append(out, routes...)
}

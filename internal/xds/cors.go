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

// preflights are routes in front of a route with CORS, for what the filter cannot do:
//   - Browsers ask with OPTIONS. A route for another method must hear that too.
//   - With credentials "*" is no wildcard, so the answer repeats what the browser asked for.
func preflights(r model.Route) []*routev3.Route {
	c := r.CORS
	if c == nil {
		return nil
	}
	var out []*routev3.Route
	asks := func() *routev3.RouteMatch {
		m := r.Match
		m.Method = "OPTIONS"
		m.Headers = append(slices.Clone(m.Headers), model.ValueMatch{Name: "origin", Value: ".+", Regex: true})
		wanted := model.ValueMatch{Name: "access-control-request-method", Value: ".+", Regex: true}
		if r.Match.Method != "" && r.Match.Method != "OPTIONS" {
			wanted = model.ValueMatch{Name: "access-control-request-method", Value: r.Match.Method}
		}
		m.Headers = append(m.Headers, wanted)
		return match(m)
	}
	if c.Credentials && (slices.Contains(c.Methods, "*") || slices.Contains(c.Headers, "*")) {
		with := &routev3.Route{Name: r.Name, Match: asks(), Action: directResponse(200, "")}
		with.Match.Headers = append(with.Match.Headers, originHeader(c.Origins))
		set := func(name, value string) {
			if value != "" {
				with.ResponseHeadersToAdd = append(with.ResponseHeadersToAdd,
					headerOption(name, value, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD))
			}
		}
		list := func(values []string, asked string) string {
			if slices.Contains(values, "*") {
				return "%REQ(" + asked + ")%"
			}
			return literal(strings.Join(values, ", "))
		}
		set("access-control-allow-origin", "%REQ(origin)%")
		set("access-control-allow-credentials", "true")
		set("access-control-allow-methods", list(c.Methods, "access-control-request-method"))
		set("access-control-allow-headers", list(c.Headers, "access-control-request-headers"))
		set("access-control-expose-headers", literal(strings.Join(exposed(c), ", ")))
		set("access-control-max-age", strconv.Itoa(int(c.MaxAge/time.Second)))
		set("vary", "origin, access-control-request-method, access-control-request-headers")
		out = append(out, with)
	}
	if r.Match.Method != "" && r.Match.Method != "OPTIONS" {
		// The filter answers; the route is there to be found.
		filtered := &routev3.Route{Name: r.Name, Match: asks(), Action: directResponse(200, "")}
		perFilter(filtered, corsFilter, pack(corsPolicy(c)))
		out = append(out, filtered)
	}
	return out
}

// originHeader takes requests from any of the origins.
func originHeader(origins []string) *routev3.HeaderMatcher {
	var alternatives []string
	for _, o := range origins {
		value, regex := originValue(o)
		if !regex {
			value = regexp.QuoteMeta(value)
		}
		alternatives = append(alternatives, value)
	}
	return headerMatch(model.ValueMatch{Name: "origin", Value: strings.Join(alternatives, "|"), Regex: true})
}

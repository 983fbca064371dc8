package route

import (
	"slices"
	"strings"
	"unicode/utf8"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/host"
)

// httpRules compiles the rules of an HTTPRoute.
func (c *compiler) httpRules(o *gatewayv1.HTTPRoute) {
	c.rules(len(o.Spec.Rules), func(i int) {
		rule := &o.Spec.Rules[i]
		matches := rule.Matches
		if len(matches) == 0 {
			matches = []gatewayv1.HTTPRouteMatch{{}}
		}
		spec := ruleSpec{
			path: field.At("spec.rules", i), filters: rule.Filters, backends: rule.BackendRefs,
			timeouts: rule.Timeouts, retry: rule.Retry, session: rule.SessionPersistence,
			name: string(field.Deref(rule.Name)), index: i, prefixes: true, cookiePath: "/",
		}
		for j := range matches {
			if p := matches[j].Path; p != nil && p.Type != nil && *p.Type != gatewayv1.PathMatchPathPrefix {
				spec.prefixes = false
			}
		}
		if p := matches[0].Path; len(matches) == 1 && p != nil && p.Value != nil && (spec.prefixes || *p.Type == gatewayv1.PathMatchExact) {
			spec.cookiePath = *p.Value
		}
		c.addEntries(&spec, len(matches), func(j int, e *host.Entry) {
			e.Route.Match = c.match(&matches[j], field.At(spec.path+".matches", j))
		})
	})
}

func (c *compiler) match(m *gatewayv1.HTTPRouteMatch, path string) model.Match {
	match := model.Match{Path: model.PathMatch{Kind: model.PathSegments, Value: "/"}}
	if m.Path != nil {
		match.Path = c.pathMatch(m.Path, path+".path")
	}
	if m.Method != nil {
		match.Method = string(*m.Method)
		if !slices.Contains(methods, *m.Method) {
			c.refuse(path+".method", field.Quote(match.Method)+" is unknown")
		}
	}
	for i, h := range m.Headers {
		kind := ""
		if h.Type != nil {
			kind = string(*h.Type)
		}
		fieldName := field.At(path+".headers", i)
		name := strings.ToLower(string(h.Name))
		if !field.IsToken(name) {
			c.refuse(fieldName+".name", field.Quote(name)+" is not a valid header name")
		}
		match.Headers = c.appendValue(match.Headers, name, h.Value, kind, fieldName)
	}
	for i, q := range m.QueryParams {
		kind := ""
		if q.Type != nil {
			kind = string(*q.Type)
		}
		fieldName := field.At(path+".queryParams", i)
		if q.Name == "" || !utf8.ValidString(string(q.Name)) {
			c.refuse(fieldName+".name", field.Quote(string(q.Name))+" is not a valid parameter name")
		}
		match.Query = c.appendValue(match.Query, string(q.Name), q.Value, kind, fieldName)
	}
	return match
}

var methods = []gatewayv1.HTTPMethod{
	gatewayv1.HTTPMethodGet, gatewayv1.HTTPMethodHead, gatewayv1.HTTPMethodPost, gatewayv1.HTTPMethodPut,
	gatewayv1.HTTPMethodDelete, gatewayv1.HTTPMethodConnect, gatewayv1.HTTPMethodOptions,
	gatewayv1.HTTPMethodTrace, gatewayv1.HTTPMethodPatch,
}

func (c *compiler) pathMatch(m *gatewayv1.HTTPPathMatch, path string) model.PathMatch {
	value := "/"
	if m.Value != nil {
		value = *m.Value
	}
	kind := gatewayv1.PathMatchPathPrefix
	if m.Type != nil {
		kind = *m.Type
	}
	switch kind {
	case gatewayv1.PathMatchExact, gatewayv1.PathMatchPathPrefix:
		if problem := field.PathProblem(value); problem != "" {
			c.refuse(path+".value", problem)
		}
		match := model.PathMatch{Kind: model.PathExact, Value: value}
		if kind == gatewayv1.PathMatchPathPrefix {
			match.Kind = model.PathSegments
			// A trailing slash means nothing: "/a/" is "/a".
			for len(match.Value) > 1 && strings.HasSuffix(match.Value, "/") {
				match.Value = match.Value[:len(match.Value)-1]
			}
		}
		if p, is := field.Slashed(path+".value", match); is {
			p.Path = value
			c.slashed = append(c.slashed, p)
		}
		return match
	case gatewayv1.PathMatchRegularExpression:
		if problem := c.regexProblem(value); problem != "" {
			c.refuse(path+".value", problem)
		}
		return model.PathMatch{Kind: model.PathRegex, Value: value}
	default:
		c.refuse(path+".type", field.Quote(string(kind))+" is unknown")
		return model.PathMatch{}
	}
}

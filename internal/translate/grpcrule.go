package translate

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
)

// grpcRules compiles the rules of a GRPCRoute.
func (c *routeCompiler) grpcRules(o *gatewayv1.GRPCRoute) {
	c.rules(len(o.Spec.Rules), func(i int) {
		rule := &o.Spec.Rules[i]
		spec := ruleSpec{
			path: at("spec.rules", i), filters: grpcFilterList(rule.Filters), session: rule.SessionPersistence,
			name: string(deref(rule.Name)), index: i, cookiePath: "/",
		}
		for j := range rule.BackendRefs {
			ref := &rule.BackendRefs[j]
			spec.backends = append(spec.backends, gatewayv1.HTTPBackendRef{BackendRef: ref.BackendRef, Filters: grpcFilterList(ref.Filters)})
		}
		matches := rule.Matches
		if len(matches) == 0 {
			matches = []gatewayv1.GRPCRouteMatch{{}}
		}
		c.addEntries(&spec, len(matches), func(j int, e *entry) {
			c.grpcMatch(e, &matches[j], at(spec.path+".matches", j))
		})
	})
}

// grpcFilterList writes the filters of a GRPCRoute as those of an HTTPRoute that they are.
func grpcFilterList(list []gatewayv1.GRPCRouteFilter) []gatewayv1.HTTPRouteFilter {
	var out []gatewayv1.HTTPRouteFilter
	for _, f := range list {
		out = append(out, gatewayv1.HTTPRouteFilter{
			Type: gatewayv1.HTTPRouteFilterType(f.Type), RequestHeaderModifier: f.RequestHeaderModifier,
			ResponseHeaderModifier: f.ResponseHeaderModifier, RequestMirror: f.RequestMirror, ExtensionRef: f.ExtensionRef,
		})
	}
	return out
}

// anyGRPCName is a service or a method, whichever.
const anyGRPCName = "[^/]+"

func (c *routeCompiler) grpcMatch(e *entry, m *gatewayv1.GRPCRouteMatch, path string) {
	e.route.Match.Path = model.PathMatch{Kind: model.PathSegments, Value: "/"}
	if m.Method != nil {
		c.grpcMethod(e, m.Method, path+".method")
	}
	for i, h := range m.Headers {
		field := at(path+".headers", i)
		name := strings.ToLower(string(h.Name))
		if !isToken(name) {
			c.refuse(field+".name", quote(name)+" is no header name")
		}
		e.route.Match.Headers = c.appendValue(e.route.Match.Headers, name, h.Value, string(deref(h.Type)), field)
	}
}

// grpcMethod matches the path of a call, which is "/service/method".
func (c *routeCompiler) grpcMethod(e *entry, m *gatewayv1.GRPCMethodMatch, path string) {
	service, method := deref(m.Service), deref(m.Method)
	e.service, e.method = utf8.RuneCountInString(service), utf8.RuneCountInString(method)
	if service == "" && method == "" {
		c.refuse(path, "one of service and method must be specified")
		return
	}
	match := &e.route.Match.Path
	switch kind := deref(m.Type); kind {
	case "", gatewayv1.GRPCMethodMatchExact:
		for _, f := range []struct{ name, value, like string }{{"service", service, "com.example.Shop"}, {"method", method, "Buy"}} {
			if f.value != "" && (strings.Contains(f.value, "/") || pathProblem("/"+f.value) != "") {
				c.refuse(path+"."+f.name, quote(f.value)+" is no name of a "+f.name+", like "+quote(f.like))
			}
		}
		switch {
		case service == "":
			*match = model.PathMatch{Kind: model.PathRegex, Value: "/" + anyGRPCName + "/" + regexp.QuoteMeta(method)}
			if problem := c.regexProblem(match.Value); problem != "" {
				c.refuse(path+".method", problem)
			}
		case method == "":
			*match = model.PathMatch{Kind: model.PathSegments, Value: "/" + service}
		default:
			*match = model.PathMatch{Kind: model.PathExact, Value: "/" + service + "/" + method}
		}
	case gatewayv1.GRPCMethodMatchRegularExpression:
		part := func(name, expression string) string {
			if expression == "" {
				return anyGRPCName
			}
			if problem := c.regexProblem(expression); problem != "" {
				c.refuse(path+"."+name, problem)
			}
			return "(?:" + expression + ")"
		}
		before := c.faults
		*match = model.PathMatch{Kind: model.PathRegex, Value: "/" + part("service", service) + "/" + part("method", method)}
		if c.faults > before {
			return
		}
		if problem := c.regexProblem(match.Value); problem != "" {
			c.refuse(path, "service and method together: "+problem)
		}
	default:
		c.refuse(path+".type", quote(string(kind))+" is unknown")
	}
}

// ruleKey tells a rule from others of the route.
func (s *ruleSpec) ruleKey() string {
	if s.name != "" {
		return s.name
	}
	return strconv.Itoa(s.index)
}

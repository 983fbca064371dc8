package route

import (
	"regexp"
	"strings"
	"unicode/utf8"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/host"
)

// grpcRules compiles the rules of a GRPCRoute.
func (c *compiler) grpcRules(o *gatewayv1.GRPCRoute) {
	c.rules(len(o.Spec.Rules), func(i int) {
		rule := &o.Spec.Rules[i]
		spec := ruleSpec{
			path: field.At("spec.rules", i), filters: grpcFilterList(rule.Filters), session: rule.SessionPersistence,
			name: string(field.Deref(rule.Name)), index: i, cookiePath: "/",
		}
		for j := range rule.BackendRefs {
			ref := &rule.BackendRefs[j]
			spec.backends = append(spec.backends, gatewayv1.HTTPBackendRef{BackendRef: ref.BackendRef, Filters: grpcFilterList(ref.Filters)})
		}
		matches := rule.Matches
		if len(matches) == 0 {
			matches = []gatewayv1.GRPCRouteMatch{{}}
		}
		c.addEntries(&spec, len(matches), func(j int, e *host.Entry) {
			c.grpcMatch(e, &matches[j], field.At(spec.path+".matches", j))
		})
	})
}

// grpcFilterList writes the filters of a GRPCRoute as those of an HTTPRoute that they are.
func grpcFilterList(list []gatewayv1.GRPCRouteFilter) []gatewayv1.HTTPRouteFilter {
	var out []gatewayv1.HTTPRouteFilter
	for _, filter := range list {
		out = append(out, gatewayv1.HTTPRouteFilter{
			Type: gatewayv1.HTTPRouteFilterType(filter.Type), RequestHeaderModifier: filter.RequestHeaderModifier,
			ResponseHeaderModifier: filter.ResponseHeaderModifier, RequestMirror: filter.RequestMirror, ExtensionRef: filter.ExtensionRef,
		})
	}
	return out
}

// anyGRPCName is a service or a method, whichever.
const anyGRPCName = "[^/]+"

func (c *compiler) grpcMatch(e *host.Entry, m *gatewayv1.GRPCRouteMatch, path string) {
	e.Route.Match.Path = model.PathMatch{Kind: model.PathSegments, Value: "/"}
	if m.Method != nil {
		c.grpcMethod(e, m.Method, path+".method")
	}
	for i, h := range m.Headers {
		fieldName := field.At(path+".headers", i)
		name := strings.ToLower(string(h.Name))
		if !field.IsToken(name) {
			c.refuse(fieldName+".name", field.Quote(name)+" is not a valid header name")
		}
		e.Route.Match.Headers = c.appendValue(e.Route.Match.Headers, name, h.Value, string(field.Deref(h.Type)), fieldName)
	}
}

// grpcMethod matches the path of a call, which is "/service/method".
func (c *compiler) grpcMethod(e *host.Entry, m *gatewayv1.GRPCMethodMatch, path string) {
	service, method := field.Deref(m.Service), field.Deref(m.Method)
	e.Service, e.Method = utf8.RuneCountInString(service), utf8.RuneCountInString(method)
	if service == "" && method == "" {
		c.refuse(path, "one of service and method must be specified")
		return
	}
	match := &e.Route.Match.Path
	switch kind := field.Deref(m.Type); kind {
	case "", gatewayv1.GRPCMethodMatchExact:
		for _, f := range []struct{ name, value, like string }{{"service", service, "com.example.Shop"}, {"method", method, "Buy"}} {
			if f.value != "" && (strings.Contains(f.value, "/") || field.PathProblem("/"+f.value) != "") {
				c.refuse(path+"."+f.name, field.Quote(f.value)+" is not a valid name of a "+f.name+", like "+field.Quote(f.like))
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
		c.refuse(path+".type", field.Quote(string(kind))+" is unknown")
	}
}

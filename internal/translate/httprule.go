package translate

import (
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// httpCompiler turns an HTTPRoute's rules into entries. A value that is not
// supported refuses the whole route: serving it without the value would be
// something that nobody asked for.
type httpCompiler struct {
	r       reader
	owner   model.Object
	route   *gatewayv1.HTTPRoute
	created int64

	refused  routeVerdict
	resolved routeVerdict
	entries  []*entry
}

func (c *httpCompiler) refuse(path, problem string) {
	c.refused.fail(gatewayv1.RouteReasonUnsupportedValue, path+": "+problem)
}

// hostnames are the route's, lower case; anyHost when it names none.
func (c *httpCompiler) hostnames() []string {
	var hosts []string
	for i, h := range c.route.Spec.Hostnames {
		host := strings.ToLower(string(h))
		if problem := hostProblem(host, true); problem != "" {
			c.refuse(at("spec.hostnames", i), problem)
			continue
		}
		hosts = append(hosts, host)
	}
	if len(c.route.Spec.Hostnames) == 0 {
		hosts = append(hosts, anyHost)
	}
	return hosts
}

func (c *httpCompiler) compile() {
	prefix := "HTTPRoute/" + c.owner.Namespace + "/" + c.owner.Name + "/rules/"
	for i := range c.route.Spec.Rules {
		rule := &c.route.Spec.Rules[i]
		path := at("spec.rules", i)
		c.refuseUnsupported(rule, path)
		forward, groups := c.backends(rule, path+".backendRefs")
		if forward != nil {
			forward.Timeout = c.timeout(rule.Timeouts, path+".timeouts")
		}
		matches := rule.Matches
		if len(matches) == 0 {
			matches = []gatewayv1.HTTPRouteMatch{{}}
		}
		for j := range matches {
			route := model.Route{
				Name:    prefix + strconv.Itoa(i) + "/matches/" + strconv.Itoa(j),
				Owner:   c.owner,
				Match:   c.match(&matches[j], at(path+".matches", j)),
				Forward: forward,
			}
			if forward == nil {
				route.Respond = &model.Respond{Status: 500}
			}
			c.entries = append(c.entries, &entry{route: route, groups: groups, created: c.created, order: len(c.entries)})
		}
	}
	slices.SortFunc(c.entries, (*entry).compare)
}

func (c *httpCompiler) refuseUnsupported(rule *gatewayv1.HTTPRouteRule, path string) {
	for i, f := range rule.Filters {
		c.refuse(at(path+".filters", i), "filter "+quote(string(f.Type))+" is not supported yet")
	}
	for i := range rule.BackendRefs {
		for j, f := range rule.BackendRefs[i].Filters {
			c.refuse(at(at(path+".backendRefs", i)+".filters", j), "filter "+quote(string(f.Type))+" is not supported yet")
		}
	}
	if rule.Retry != nil {
		c.refuse(path+".retry", "not supported yet")
	}
	if rule.SessionPersistence != nil {
		c.refuse(path+".sessionPersistence", "not supported yet")
	}
}

func (c *httpCompiler) timeout(timeouts *gatewayv1.HTTPRouteTimeouts, path string) time.Duration {
	if timeouts == nil {
		return 0
	}
	if timeouts.BackendRequest != nil {
		c.refuse(path+".backendRequest", "not supported yet")
	}
	if timeouts.Request == nil {
		return 0
	}
	d, err := time.ParseDuration(string(*timeouts.Request))
	switch {
	case err != nil || d < 0:
		c.refuse(path+".request", quote(string(*timeouts.Request))+` is no duration like "10s" or "500ms"`)
		return 0
	case d == 0:
		return model.Never
	}
	return d
}

func (c *httpCompiler) match(m *gatewayv1.HTTPRouteMatch, path string) model.Match {
	match := model.Match{Path: model.PathMatch{Kind: model.PathSegments, Value: "/"}}
	if m.Path != nil {
		match.Path = c.pathMatch(m.Path, path+".path")
	}
	if m.Method != nil {
		match.Method = string(*m.Method)
		if !slices.Contains(methods, *m.Method) {
			c.refuse(path+".method", quote(match.Method)+" is unknown")
		}
	}
	for i, h := range m.Headers {
		kind := ""
		if h.Type != nil {
			kind = string(*h.Type)
		}
		field := at(path+".headers", i)
		name := strings.ToLower(string(h.Name))
		if !isToken(name) {
			c.refuse(field+".name", quote(name)+" is no header name")
		}
		match.Headers = c.appendValue(match.Headers, name, h.Value, kind, field)
	}
	for i, q := range m.QueryParams {
		kind := ""
		if q.Type != nil {
			kind = string(*q.Type)
		}
		field := at(path+".queryParams", i)
		if q.Name == "" || !utf8.ValidString(string(q.Name)) {
			c.refuse(field+".name", quote(string(q.Name))+" is no name of a parameter")
		}
		match.Query = c.appendValue(match.Query, string(q.Name), q.Value, kind, field)
	}
	return match
}

var methods = []gatewayv1.HTTPMethod{
	gatewayv1.HTTPMethodGet, gatewayv1.HTTPMethodHead, gatewayv1.HTTPMethodPost, gatewayv1.HTTPMethodPut,
	gatewayv1.HTTPMethodDelete, gatewayv1.HTTPMethodConnect, gatewayv1.HTTPMethodOptions,
	gatewayv1.HTTPMethodTrace, gatewayv1.HTTPMethodPatch,
}

func (c *httpCompiler) pathMatch(m *gatewayv1.HTTPPathMatch, path string) model.PathMatch {
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
		if problem := pathProblem(value); problem != "" {
			c.refuse(path+".value", problem)
		}
		if kind == gatewayv1.PathMatchExact {
			return model.PathMatch{Kind: model.PathExact, Value: value}
		}
		// A trailing slash means nothing: "/a/" is "/a".
		for len(value) > 1 && strings.HasSuffix(value, "/") {
			value = value[:len(value)-1]
		}
		return model.PathMatch{Kind: model.PathSegments, Value: value}
	case gatewayv1.PathMatchRegularExpression:
		if problem := regexProblem(value); problem != "" {
			c.refuse(path+".value", problem)
		}
		return model.PathMatch{Kind: model.PathRegex, Value: value}
	default:
		c.refuse(path+".type", quote(string(kind))+" is unknown")
		return model.PathMatch{}
	}
}

// valueLimit bounds the values of headers and parameters, as the Gateway API does
// for headers.
const valueLimit = 4096

// appendValue adds a condition. Of several for one name the first counts.
func (c *httpCompiler) appendValue(list []model.ValueMatch, name, value, kind, path string) []model.ValueMatch {
	switch {
	case kind == "RegularExpression":
		if problem := regexProblem(value); problem != "" {
			c.refuse(path+".value", problem)
		}
	case kind != "" && kind != "Exact":
		c.refuse(path+".type", quote(kind)+" is unknown")
	case !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F }):
		c.refuse(path+".value", quote(value)+" must not have control characters")
	case len(value) > valueLimit:
		c.refuse(path+".value", "longer than "+strconv.Itoa(valueLimit)+" characters")
	}
	if slices.ContainsFunc(list, func(v model.ValueMatch) bool { return v.Name == name }) {
		return list
	}
	return append(list, model.ValueMatch{Name: name, Value: value, Regex: kind == "RegularExpression"})
}

// regexLimit bounds the instructions of a compiled expression. Proxies refuse
// large ones; this keeps out what could never pass.
const regexLimit = 1000

// regexProblem says why a text is no RE2 expression, or nothing.
func regexProblem(expression string) string {
	if len(expression) > valueLimit || !utf8.ValidString(expression) {
		return "no RE2 expression: too long or not UTF-8"
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return quote(expression) + " is no RE2 expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return quote(expression) + " is no RE2 expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	if len(program.Inst) > regexLimit {
		return quote(expression) + " is too large an expression"
	}
	return ""
}

// backends is where a rule's requests go, nil when to no backend at all. A share
// whose reference is broken is kept, without a group.
func (c *httpCompiler) backends(rule *gatewayv1.HTTPRouteRule, path string) (*model.Forward, []model.BackendGroup) {
	forward := &model.Forward{}
	var groups []model.BackendGroup
	sound := false
	for i := range rule.BackendRefs {
		ref := &rule.BackendRefs[i]
		weight := int32(1)
		if ref.Weight != nil {
			weight = *ref.Weight
		}
		field := at(path, i)
		if weight < 0 || weight > weightLimit {
			c.refuse(field+".weight", strconv.Itoa(int(weight))+" must be in the range 0-"+strconv.Itoa(weightLimit))
			weight = 0
		}
		group, websocket, ok := c.backend(&ref.BackendObjectReference, field)
		if weight == 0 {
			continue
		}
		if ok {
			sound = true
			groups = addGroup(groups, group)
			forward.WebSocket = forward.WebSocket || websocket
		}
		forward.Backends = addWeight(forward.Backends, group.ID, uint32(weight))
	}
	if !sound {
		return nil, nil
	}
	return forward, groups
}

// backend resolves one reference. A broken one is noted in resolved.
func (c *httpCompiler) backend(ref *gatewayv1.BackendObjectReference, path string) (group model.BackendGroup, websocket, ok bool) {
	if ref.Group != nil && *ref.Group != "" || ref.Kind != nil && *ref.Kind != gatewayv1.Kind(snapshot.KindService) {
		kind := string(deref(ref.Kind))
		if g := string(deref(ref.Group)); g != "" {
			kind += "." + g
		}
		c.resolved.fail(gatewayv1.RouteReasonInvalidKind, path+".kind: "+quote(kind)+" is no kind of backend: only Service is")
		return group, false, false
	}
	service := snapshot.Name{Namespace: c.owner.Namespace, Name: string(ref.Name)}
	if ref.Namespace != nil && *ref.Namespace != "" {
		service.Namespace = string(*ref.Namespace)
	}
	if service.Namespace != c.owner.Namespace && !c.granted(service) {
		c.resolved.fail(gatewayv1.RouteReasonRefNotPermitted,
			path+": no ReferenceGrant in namespace "+service.Namespace+" lets HTTPRoutes of namespace "+c.owner.Namespace+" use Service "+service.Name)
		return group, false, false
	}
	if ref.Port == nil {
		c.resolved.fail(gatewayv1.RouteReasonBackendNotFound, path+".port: must be set")
		return group, false, false
	}
	port, fault, problem := findPort(c.r, service, int32(*ref.Port))
	switch fault {
	case serviceFine:
		if group, fault, problem = makeGroup(c.r, service, port, groupOptions{}); fault == serviceFine {
			return group, port.protocolOfApp().websocket, true
		}
		reason := gatewayv1.RouteReasonUnsupportedProtocol
		if fault == policyInvalid {
			reason = ReasonBackendTLS
		}
		c.resolved.fail(reason, path+".port: "+problem)
	case serviceExternal:
		c.resolved.fail(gatewayv1.RouteReasonInvalidKind, path+": "+problem)
	case portProtocol:
		c.resolved.fail(gatewayv1.RouteReasonUnsupportedProtocol, path+".port: "+problem)
	case portMissing:
		c.resolved.fail(gatewayv1.RouteReasonBackendNotFound, path+".port: "+problem)
	case serviceMissing:
		c.resolved.fail(gatewayv1.RouteReasonBackendNotFound, path+".name: "+problem)
	}
	return group, false, false
}

// granted reports whether a ReferenceGrant lets the route use a Service of
// another namespace.
func (c *httpCompiler) granted(service snapshot.Name) bool {
	for _, grant := range c.r.grantsIn(service.Namespace) {
		from := slices.ContainsFunc(grant.Spec.From, func(f gatewayv1.ReferenceGrantFrom) bool {
			return f.Group == gatewayv1.GroupName && f.Kind == gatewayv1.Kind(snapshot.KindHTTPRoute) && string(f.Namespace) == c.owner.Namespace
		})
		to := slices.ContainsFunc(grant.Spec.To, func(t gatewayv1.ReferenceGrantTo) bool {
			return t.Group == "" && t.Kind == gatewayv1.Kind(snapshot.KindService) && (t.Name == nil || *t.Name == "" || string(*t.Name) == service.Name)
		})
		if from && to {
			return true
		}
	}
	return false
}

package route

import (
	"slices"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/host"
)

// Compiler turns the rules of an HTTPRoute or GRPCRoute into entries. A rule with a
// value that is not supported is dropped as a whole: serving it without the value would be
// something that nobody asked for. What its matches take is answered with an error, so that
// no wider rule gets it. A route of which no rule is left is refused.
type Compiler struct {
	t       *Tables
	ctx     *memo.Context
	owner   model.Object
	created int64
	grpc    bool
	// certificate is shown to backends.
	certificate model.CertificateID

	refused  gateway.RouteResult // the whole route
	rule     gateway.RouteResult // the rule at hand
	faults   int                 // found so far, in all rules
	resolved gateway.RouteResult
	partial  string
	entries  []*host.Entry
	services []snapshot.Name
	notes    []string // what is worth knowing of those
	slashed  []field.SlashedPath
	Regexes  map[string]string // what is wrong with each expression; empty: nothing
	ofRegex  int               // their bytes
	// ofClasses is how many tables of Unicode they name
	ofClasses int
}

// refuse notes what is wrong with the rule at hand.
func (c *Compiler) refuse(path, problem string) {
	c.refuseFor(gatewayv1.RouteReasonUnsupportedValue, path, problem)
}

func (c *Compiler) refuseFor(reason gatewayv1.RouteConditionReason, path, problem string) {
	c.faults++
	c.rule.Fail(reason, path+": "+problem)
}

// hostnames are the route's, lower case; anyHost when it names none.
func (c *Compiler) hostnames(names []gatewayv1.Hostname) []string {
	var hosts []string
	for i, h := range names {
		host := strings.ToLower(string(h))
		if problem := field.HostProblem(host, true); problem != "" {
			c.refused.Fail(gatewayv1.RouteReasonUnsupportedValue, field.At("spec.hostnames", i)+": "+problem)
			continue
		}
		hosts = append(hosts, host)
	}
	if len(names) == 0 {
		hosts = append(hosts, field.AnyHost)
	}
	return hosts
}

// rules compiles each of n rules, and drops those that are not sound.
func (c *Compiler) rules(n int, compile func(i int)) {
	var faults gateway.RouteResult
	var dropped []string
	for i := range n {
		c.rule = gateway.RouteResult{}
		first := len(c.entries)
		compile(i)
		if !c.rule.Failed {
			continue
		}
		faults.Fail(c.rule.Reason, c.rule.Message)
		dropped = append(dropped, strconv.Itoa(i))
		for j, e := range c.entries[first:] {
			c.entries[first+j] = c.closed(e)
		}
	}
	switch {
	case len(dropped) == 0:
	case len(dropped) == n || c.refused.Failed:
		c.refused.Fail(faults.Reason, faults.Message)
	default:
		c.partial = condition.Limit("Dropped Rule " + strings.Join(dropped, ", ") + " of spec.rules, whose requests are answered " +
			strconv.Itoa(int(c.brokenStatus())) + ": " + faults.Message)
	}
	slices.SortFunc(c.entries, (*host.Entry).Compare)
}

// brokenStatus is what requests are answered for which there is no sound backend: gRPC
// clients read 503 as UNAVAILABLE.
func (c *Compiler) brokenStatus() uint32 {
	if c.grpc {
		return 503
	}
	return 500
}

// closed is an entry that takes the same requests and answers them with an error.
func (c *Compiler) closed(e *host.Entry) *host.Entry {
	shut := *e
	shut.Groups = nil
	shut.Route = model.Route{Name: e.Route.Name, Owner: e.Route.Owner, Match: e.Route.Match, Respond: &model.Respond{Status: c.brokenStatus()}}
	return &shut
}

// ruleSpec is what the rules of both kinds have in common.
type ruleSpec struct {
	path     string // "spec.rules[0]"
	filters  []gatewayv1.HTTPRouteFilter
	backends []gatewayv1.HTTPBackendRef
	timeouts *gatewayv1.HTTPRouteTimeouts
	retry    *gatewayv1.HTTPRouteRetry
	session  *gatewayv1.SessionPersistence
	name     string // of the rule, if it has one
	index    int
	// prefixes says that every match is one of a path prefix.
	prefixes bool
	// cookiePath is where a cookie of the rule belongs.
	cookiePath string
}

// action is what the rule does with requests: a route without name and match.
func (c *Compiler) action(s *ruleSpec) (model.Route, []model.BackendGroup) {
	set := c.filters(s.filters, s.path+".filters", s.prefixes)
	forward, groups := c.backends(s, &set)
	route := model.Route{Owner: c.owner, CORS: set.cors, RequestHeaders: set.request, ResponseHeaders: set.response}
	switch {
	case set.redirect != nil:
		if len(s.backends) > 0 && !set.lifted {
			c.refuseFor(gatewayv1.RouteReasonIncompatibleFilters, s.path+".filters", "a RequestRedirect must not be together with backendRefs")
		}
		route.Redirect, groups = set.redirect, nil
	case forward == nil || set.broken:
		route.Respond, groups = &model.Respond{Status: c.brokenStatus()}, nil
	default:
		route.Forward = forward
		forward.Path, forward.Host = set.path, set.host
		forward.Stream = c.grpc
		for _, m := range set.mirrors {
			forward.Mirrors = append(forward.Mirrors, m.mirror)
			groups = backend.AddGroup(groups, m.group)
		}
	}
	if s.timeouts != nil || s.retry != nil || s.session != nil {
		options := forward
		if route.Forward == nil {
			options = &model.Forward{} // to find what is wrong
		}
		c.timeouts(options, s.timeouts, s.path+".timeouts")
		c.retry(options, s.retry, s.path+".retry")
		c.session(options, s)
	}
	policy, asked := c.t.policy.RoutePolicy(c.ctx, c.owner, s.name)
	route.Policy = policy
	for _, g := range asked {
		groups = backend.AddGroup(groups, g)
	}
	return route, groups
}

// addEntries adds one entry for each match that can be read.
func (c *Compiler) addEntries(s *ruleSpec, n int, match func(i int, e *host.Entry)) {
	action, groups := c.action(s)
	prefix := c.owner.Kind + "/" + c.owner.Namespace + "/" + c.owner.Name + "/rules/" + strconv.Itoa(s.index) + "/matches/"
	for i := range n {
		e := &host.Entry{Route: action, Groups: groups, Created: c.created, Order: len(c.entries)}
		e.Route.Name = prefix + strconv.Itoa(i)
		before := c.faults
		match(i, e)
		if c.faults == before {
			c.entries = append(c.entries, e)
		}
	}
}

// RegexProblem judges an expression once in a route, and not more of them than the plane has time for.
func (c *Compiler) RegexProblem(expression string) string {
	if problem, known := c.Regexes[expression]; known {
		return problem
	}
	classes := field.ClassesOf(expression)
	switch {
	case c.ofRegex+len(expression) > field.RegexesLimit:
		return "the regular expressions of the route are longer than " + strconv.Itoa(field.RegexesLimit) + " bytes together: give it to several routes"
	case classes > 0 && c.ofClasses+classes > field.RegexClassesOfRoute:
		return "the regular expressions of the route have more than " + strconv.Itoa(field.RegexClassesOfRoute) + ` classes like \pL together: give it to several routes`
	}
	c.ofRegex, c.ofClasses = c.ofRegex+len(expression), c.ofClasses+classes
	if c.Regexes == nil {
		c.Regexes = map[string]string{}
	}
	c.Regexes[expression] = field.RegexProblem(expression)
	return c.Regexes[expression]
}

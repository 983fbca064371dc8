package route

import (
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/host"
)

// compiler turns the rules of an HTTPRoute or GRPCRoute into entries. A rule with a
// value that is not supported is dropped as a whole: serving it without the value would be
// something that nobody asked for. Requests that its matches take are answered with an error, so
// that no wider rule gets them. A route of which no rule is left is refused.
type compiler struct {
	t       *Tables
	ctx     *memo.Context
	owner   model.Object
	created int64
	grpc    bool
	// measured: the route has metrics of its own.
	measured bool
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
	regexes  map[string]string // what is wrong with each expression; empty: nothing
	ofRegex  int               // their bytes
	// ofClasses is how many tables of Unicode they name
	ofClasses int
}

// refuse notes what is wrong with the rule at hand.
func (c *compiler) refuse(path, problem string) {
	c.refuseFor(gatewayv1.RouteReasonUnsupportedValue, path, problem)
}

func (c *compiler) refuseFor(reason gatewayv1.RouteConditionReason, path, problem string) {
	c.faults++
	c.rule.Fail(reason, path+": "+problem)
}

// hostnames are the route's, lower case; field.AnyHost when it names none.
func (c *compiler) hostnames(names []gatewayv1.Hostname) []string {
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

// brokenStatus is what requests are answered for which there is no sound backend: gRPC
// clients read 503 as UNAVAILABLE.
func (c *compiler) brokenStatus() uint32 {
	if c.grpc {
		return 503
	}
	return 500
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

// ruleKey tells a rule from others of the route.
func (s *ruleSpec) ruleKey() string {
	if s.name != "" {
		return s.name
	}
	return strconv.Itoa(s.index)
}

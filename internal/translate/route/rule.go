package route

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/host"
)

// rules compiles each of n rules, and drops those that are not sound.
func (c *compiler) rules(n int, compile func(i int)) {
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

// closed is an entry that takes the same requests and answers them with an error.
func (c *compiler) closed(e *host.Entry) *host.Entry {
	shut := *e
	shut.Groups = nil
	shut.Route = model.Route{Name: e.Route.Name, Owner: e.Route.Owner, Match: e.Route.Match, Respond: &model.Respond{Status: c.brokenStatus()}}
	return &shut
}

// action is what the rule does with requests: a route without name and match.
func (c *compiler) action(s *ruleSpec) (model.Route, []model.BackendGroup) {
	set := c.filters(s.filters, s.path+".filters", s.prefixes)
	forward, groups := c.backends(s, &set)
	route := model.Route{Owner: c.owner, CORS: set.cors, RequestHeaders: set.request, ResponseHeaders: set.response, Measured: c.measured}
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
	policy, asked := c.t.from.Policy.RoutePolicy(c.ctx, c.owner, s.name)
	route.Policy = policy
	for _, g := range asked {
		groups = backend.AddGroup(groups, g)
	}
	return route, groups
}

// backends compiles a rule's backendRefs; nil when none is sound. A share whose reference is broken is
// kept, without a group. Filters of an only backend become filters of the rule.
func (c *compiler) backends(s *ruleSpec, set *filterSet) (*model.Forward, []model.BackendGroup) {
	forward := &model.Forward{}
	var groups []model.BackendGroup
	sound := false
	path := s.path + ".backendRefs"
	for i := range s.backends {
		ref := &s.backends[i]
		weight := int32(1)
		if ref.Weight != nil {
			weight = *ref.Weight
		}
		fieldName := field.At(path, i)
		if weight < 0 || weight > backend.WeightLimit {
			c.refuse(fieldName+".weight", strconv.Itoa(int(weight))+" must be in the range 0-"+strconv.Itoa(backend.WeightLimit))
			weight = 0
		}
		group, port, ok := c.backend(&ref.BackendObjectReference, fieldName)
		own := c.filters(ref.Filters, fieldName+".filters", s.prefixes)
		share := model.WeightedGroup{Weight: uint32(weight), RequestHeaders: own.request, ResponseHeaders: own.response}
		own.request, own.response = nil, nil
		if len(s.backends) == 1 {
			c.lift(set, &own, fieldName+".filters")
		} else if name := own.first(); name != "" {
			c.refuse(fieldName+".filters", "filter "+field.Quote(string(name))+" works for whole rules, not for one of several backends")
		}
		if weight == 0 {
			continue
		}
		if ok && !own.broken {
			sound = true
			forward.RetryMethods = backend.AllMay(forward.RetryMethods, len(groups) > 0, port.Options)
			groups = backend.AddGroup(groups, group)
			forward.WebSocket = forward.WebSocket || port.IsWebSocket()
			share.Group = group.ID
		}
		forward.Backends = addShare(forward.Backends, share)
	}
	if !sound {
		return nil, nil
	}
	// Backends of HTTP/2 would have to know RFC 8441, and hardly any does.
	forward.NoUpgrade = !forward.WebSocket && slices.ContainsFunc(groups, func(g model.BackendGroup) bool { return g.Protocol == model.BackendHTTP2 })
	return forward, groups
}

// addShare adds a share; one that differs in nothing but the weight makes that larger.
func addShare(shares []model.WeightedGroup, share model.WeightedGroup) []model.WeightedGroup {
	for i := range shares {
		same := shares[i]
		same.Weight = share.Weight
		if reflect.DeepEqual(same, share) {
			shares[i].Weight = uint32(min(uint64(shares[i].Weight)+uint64(share.Weight), math.MaxUint32))
			return shares
		}
	}
	return append(shares, share)
}

// addEntries adds one entry for each match that can be read.
func (c *compiler) addEntries(s *ruleSpec, n int, match func(i int, e *host.Entry)) {
	action, groups := c.action(s)
	prefix := c.owner.Key() + "/rules/" + strconv.Itoa(s.index) + "/matches/"
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

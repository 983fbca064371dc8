package xds

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// bodyLimit is Envoy's default for the body of a fixed response, bytes.
const bodyLimit = 4096

// RouteConfiguration is one shard of a listener's routes. hosts are the virtual hosts
// whose Shard it is, in any order; a shard without hosts is sent too, because Envoy
// keeps the last routes of a shard that is taken away.
func RouteConfiguration(listener model.ListenerID, shard int, hosts []model.VirtualHost) *routev3.RouteConfiguration {
	sorted := slices.SortedFunc(slices.Values(hosts), func(a, b model.VirtualHost) int { return cmp.Compare(a.Host, b.Host) })
	rc := &routev3.RouteConfiguration{
		Name:                     RouteConfigurationName(listener, shard),
		IgnorePortInHostMatching: true,
		RequestHeadersToRemove:   []string{scopeHeader, clientHeader},
		RequestHeadersToAdd:      []*corev3.HeaderValueOption{loopMark()},
		ResponseHeadersToRemove:  []string{loadHeader, loadHeaderBinary},
	}
	limit := bodyLimit
	for _, h := range sorted {
		rc.VirtualHosts = append(rc.VirtualHosts, VirtualHost(h))
		for _, r := range h.Routes {
			if r.Respond != nil {
				limit = max(limit, len(r.Respond.Body))
			}
		}
	}
	if limit > bodyLimit {
		rc.MaxDirectResponseBodySizeBytes = wrapperspb.UInt32(uint32(limit))
	}
	if shard != WildShard {
		rc.VirtualHosts = append(rc.VirtualHosts, unknownHosts())
	}
	return rc
}

// VirtualHost is one host's routes, in the order of the model. It has the host's name.
func VirtualHost(h model.VirtualHost) *routev3.VirtualHost {
	refuses := h.NoUpgrade()
	v := &routev3.VirtualHost{Name: h.Host, Domains: []string{h.Host}, RetryPolicy: retryPolicy(nil, 0), Metadata: notesOfHost(h, refuses)}
	v.TypedPerFilterConfig = policies(h.Policy)
	tree := newTree(len(h.Routes))
	for _, r := range h.Routes {
		add := func(one *routev3.Route) {
			v.Routes = append(v.Routes, one)
			tree.add(r, one)
		}
		if r.Forward != nil && r.Forward.NoUpgrade && !refuses {
			add(noWebSockets(r))
		}
		for _, one := range routes(h, r) {
			if again := retriedRoute(r, one); again != nil {
				add(again)
			}
			add(one)
		}
	}
	if m := tree.matcher(); m != nil {
		v.Routes, v.Matcher = nil, m
	}
	return v
}

// noWebSockets is what stands before a route that takes none, where not the whole host takes none:
// the normaliser sees no routes of wildcard hosts (Envoy 1.40 shows a script one route only).
func noWebSockets(r model.Route) *routev3.Route {
	m := match(r.Match)
	m.Headers = append(m.Headers, &routev3.HeaderMatcher{
		Name: "upgrade",
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Exact{Exact: webSocket}, IgnoreCase: true,
		}},
	})
	return &routev3.Route{Name: r.Name, Match: m, Action: directResponse(400, "400 the route does not allow WebSockets\n")}
}

// retriedRoute is a route to backends for its RetryMethods, nil where it has none.
func retriedRoute(r model.Route, one *routev3.Route) *routev3.Route {
	if one.GetRoute() == nil || len(r.Forward.RetryMethods) == 0 {
		return nil
	}
	again := proto.Clone(one).(*routev3.Route)
	again.Match.Headers = append(again.Match.Headers, headerMatch(model.ValueMatch{Name: ":method", Value: strings.Join(r.Forward.RetryMethods, "|"), Regex: true}))
	again.RequestHeadersToAdd = append(again.RequestHeadersToAdd, headerOption(retryHeader, retryReset, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD))
	return again
}

// routes is the route, behind those that answer preflights and one that answers the share of
// broken references with 500.
func routes(h model.VirtualHost, r model.Route) []*routev3.Route {
	p := r.Policy.Or(h.Policy)
	var out []*routev3.Route
	switch {
	case unanswerable(p):
		out = []*routev3.Route{{Name: r.Name, Match: match(r.Match), Action: directResponse(500, "")}}
	case r.Redirect != nil:
		out = redirects(h.HostKey, r)
	case r.Forward != nil:
		out = forwards(r)
	default:
		respond := model.Respond{Status: 500}
		if r.Respond != nil {
			respond = *r.Respond
		}
		out = []*routev3.Route{{Name: r.Name, Match: match(r.Match), Action: directResponse(respond.Status, respond.Body)}}
	}
	var own map[string]*anypb.Any
	if r.Policy != nil { // else the host fills the slots: its token bucket is one for all of its routes
		own = policies(p)
	}
	for _, one := range out {
		one.StatPrefix = statOfRoute(r)
		one.Metadata = withLogShare(one.Metadata, r.Policy)
		// Envoy would apply the route's edits after those of a share, not before.
		if !editsByShare(r, one) {
			one.RequestHeadersToAdd, one.RequestHeadersToRemove = edits(r.RequestHeaders)
			one.ResponseHeadersToAdd, one.ResponseHeadersToRemove = edits(r.ResponseHeaders)
		}
		if one.GetRoute() != nil && r.Forward.TryTimeout > 0 && r.Forward.Retry == nil {
			// A try that takes too long counts as one that broke.
			one.RequestHeadersToRemove = append(one.RequestHeadersToRemove, retryHeader)
		}
		if one.GetRoute() != nil && r.Forward.StartHeader {
			one.RequestHeadersToAdd = append(one.RequestHeadersToAdd, startMark())
		}
		for filter, config := range own {
			perFilter(one, filter, config)
		}
	}
	return withCORS(r.CORS, r.Match, out)
}

// editsByShare reports whether the shares of a route carry its edits with their own.
func editsByShare(r model.Route, built *routev3.Route) bool {
	return built.GetRoute() != nil && haveEdits(r.Forward.Backends)
}

func haveEdits(groups []model.WeightedGroup) bool {
	return slices.ContainsFunc(groups, func(g model.WeightedGroup) bool {
		return g.Weight > 0 && g.Group != "" && (g.RequestHeaders != nil || g.ResponseHeaders != nil)
	})
}

// perFilter configures a filter of the listener's chain for one route.
func perFilter(r *routev3.Route, filter string, config *anypb.Any) {
	if r.TypedPerFilterConfig == nil {
		r.TypedPerFilterConfig = map[string]*anypb.Any{}
	}
	r.TypedPerFilterConfig[filter] = config
}

func forwards(r model.Route) []*routev3.Route {
	var groups []model.WeightedGroup
	var broken, sound uint64
	for _, g := range r.Forward.Backends {
		switch {
		case g.Weight == 0:
		case g.Group == "":
			broken += uint64(g.Weight)
		default:
			sound += uint64(g.Weight)
			groups = append(groups, g)
		}
	}
	status := uint32(500)
	if r.Forward.Stream {
		status = 503
	}
	refuse := &routev3.Route{Name: r.Name, Match: match(r.Match), Action: directResponse(status, "")}
	if sound == 0 {
		return []*routev3.Route{refuse}
	}
	out := pinned(r, groups)
	if broken > 0 {
		refuse.Match.RuntimeFraction = fraction(broken, broken+sound)
		out = append(out, refuse)
	}
	return append(out, forward(r, groups, sound))
}

// forward is the route to groups, whose weights have a sum.
func forward(r model.Route, groups []model.WeightedGroup, sum uint64) *routev3.Route {
	out := &routev3.Route{
		Name:   r.Name,
		Match:  match(r.Match),
		Action: &routev3.Route_Route{Route: action(r, groups, sum)},
	}
	if r.Forward.Sticky != nil {
		perFilter(out, sessionFilter, pack(session(r.Forward.Sticky)))
	}
	return out
}

// fraction is part of whole, to a millionth; all of it when whole is 0.
func fraction(part, whole uint64) *corev3.RuntimeFractionalPercent {
	const million = 1_000_000
	n := uint64(million)
	if whole > 0 {
		n = min((part*million+whole/2)/whole, million)
	}
	return &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{
		Numerator: uint32(n), Denominator: typev3.FractionalPercent_MILLION,
	}}
}

func match(m model.Match) *routev3.RouteMatch {
	out := &routev3.RouteMatch{}
	switch m.Path.Kind {
	case model.PathExact:
		out.PathSpecifier = &routev3.RouteMatch_Path{Path: m.Path.Value}
	case model.PathRegex:
		out.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: regexMatch(m.Path.Value)}
	case model.PathSegments:
		if p := strings.TrimRight(m.Path.Value, "/"); p != "" {
			out.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: p}
		} else {
			out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: "/"}
		}
	case model.PathPrefix:
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: m.Path.Value}
	default: // no path said: every path
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: "/"}
	}
	if m.Method != "" {
		out.Headers = append(out.Headers, headerMatch(model.ValueMatch{Name: ":method", Value: m.Method}))
	}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, headerMatch(h))
	}
	for _, q := range m.Query {
		out.QueryParameters = append(out.QueryParameters, &routev3.QueryParameterMatcher{
			Name: q.Name,
			QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_StringMatch{
				StringMatch: stringMatch(q.Value, q.Regex),
			},
		})
	}
	return out
}

func headerMatch(h model.ValueMatch) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{
		Name:                 h.Name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: stringMatch(h.Value, h.Regex)},
	}
}

func action(r model.Route, groups []model.WeightedGroup, total uint64) *routev3.RouteAction {
	f := r.Forward
	a := &routev3.RouteAction{}
	if f.Retry != nil || f.TryTimeout > 0 {
		a.RetryPolicy = retryPolicy(f.Retry, f.TryTimeout)
	}
	byShare := haveEdits(r.Forward.Backends)
	if len(groups) == 1 && !byShare {
		a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: string(groups[0].Group)}
	} else {
		a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: shares(r, groups, total, byShare)}
	}
	timeouts(a, f)
	rewriteForward(a, r.Match.Path, f.Path)
	// Envoy would prefer the route's host to that of a share.
	if host := routeHost(r); host != "" && !byShare {
		a.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: host}
	}
	for _, m := range f.Mirrors {
		if m.Group != "" {
			a.RequestMirrorPolicies = append(a.RequestMirrorPolicies, &routev3.RouteAction_RequestMirrorPolicy{
				Cluster:                       string(m.Group),
				RuntimeFraction:               fraction(uint64(m.Numerator), uint64(m.Denominator)),
				DisableShadowHostSuffixAppend: true,
			})
		}
	}
	return a
}

// routeHost is the host that backends see unless their share says otherwise; empty is the
// client's.
func routeHost(r model.Route) string { return cmp.Or(r.Forward.Host, setHost(r.RequestHeaders)) }

// weightScale is what weights are divided by: Envoy wants their sum in 32 bits. Larger ones keep their
// proportion, and none of n becomes zero.
func weightScale(total uint64, n int) uint64 { return total/(math.MaxUint32-uint64(n)) + 1 }

func shares(r model.Route, groups []model.WeightedGroup, total uint64, edited bool) *routev3.WeightedCluster {
	scale := weightScale(total, len(groups))
	w := &routev3.WeightedCluster{}
	for _, g := range groups {
		c := &routev3.WeightedCluster_ClusterWeight{
			Name: string(g.Group), Weight: wrapperspb.UInt32(uint32(max(1, uint64(g.Weight)/scale))),
		}
		if edited {
			c.RequestHeadersToAdd, c.RequestHeadersToRemove = edits(r.RequestHeaders, g.RequestHeaders)
			c.ResponseHeadersToAdd, c.ResponseHeadersToRemove = edits(r.ResponseHeaders, g.ResponseHeaders)
		}
		if host := cmp.Or(setHost(g.RequestHeaders), routeHost(r)); host != "" && edited {
			c.HostRewriteSpecifier = &routev3.WeightedCluster_ClusterWeight_HostRewriteLiteral{HostRewriteLiteral: host}
		}
		w.Clusters = append(w.Clusters, c)
	}
	remember(r.Forward.Sticky, w)
	return w
}

// longIdle is how long nothing may happen on a stream that nobody bounds: gRPC streams and
// WebSockets are quiet for long. A client that went away is noticed before that by TCP.
const longIdle = time.Hour

// timeouts bounds a request. Envoy's idle timeout is below what some routes want, so it goes
// with the others.
func timeouts(a *routev3.RouteAction, f *model.Forward) {
	switch {
	case f.Timeout == model.Never:
		a.Timeout, a.IdleTimeout = durationpb.New(0), durationpb.New(0)
	case f.Timeout > 0:
		a.Timeout = durationpb.New(max(f.Timeout.Round(time.Millisecond), time.Millisecond))
		if f.Timeout > clientIdle {
			a.IdleTimeout = a.Timeout
		}
	default: // silence ends it, by the listener; Envoy's own default is 15 s
		a.Timeout = durationpb.New(0)
	}
	if f.Stream {
		// What a gRPC client asks for in grpc-timeout counts.
		a.MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{GrpcTimeoutHeaderMax: durationpb.New(0)}
	}
	if a.IdleTimeout == nil && (f.Stream || f.WebSocket) {
		a.IdleTimeout = durationpb.New(longIdle)
	}
}

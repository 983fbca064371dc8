package xds

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// retrySafely repeats what never reached a backend's program; it is on for every route,
// so that a backend that dies costs its clients nothing.
const retrySafely = "connect-failure,refused-stream,reset-before-request"

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
		RequestHeadersToRemove:   []string{scopeHeader},
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
	v := &routev3.VirtualHost{Name: h.Host, Domains: []string{h.Host}, RetryPolicy: retryPolicy(nil, 0), Metadata: sectionOf(h)}
	for _, r := range h.Routes {
		v.Routes = append(v.Routes, routes(r)...)
	}
	return v
}

// routes is the route, behind one that answers the share of broken references with 500.
func routes(r model.Route) []*routev3.Route {
	if r.Forward == nil {
		respond := model.Respond{Status: 500}
		if r.Respond != nil {
			respond = *r.Respond
		}
		return []*routev3.Route{{Name: r.Name, Match: match(r.Match), Action: directResponse(respond.Status, respond.Body)}}
	}
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
	refuse := &routev3.Route{Name: r.Name, Match: match(r.Match), Action: directResponse(500, "")}
	if sound == 0 {
		return []*routev3.Route{refuse}
	}
	forward := &routev3.Route{
		Name:   r.Name,
		Match:  match(r.Match),
		Action: &routev3.Route_Route{Route: action(r.Match.Path, r.Forward, groups, sound)},
	}
	if r.Forward.WebSocket {
		forward.TypedPerFilterConfig = allowWebSocket()
	}
	if broken == 0 {
		return []*routev3.Route{forward}
	}
	const million = 1_000_000
	refuse.Match.RuntimeFraction = &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{
		Numerator:   uint32((broken*million + (broken+sound)/2) / (broken + sound)),
		Denominator: typev3.FractionalPercent_MILLION,
	}}
	return []*routev3.Route{refuse, forward}
}

func directResponse(status uint32, body string) *routev3.Route_DirectResponse {
	d := &routev3.DirectResponseAction{Status: status}
	if body != "" {
		d.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: body}}
	}
	return &routev3.Route_DirectResponse{DirectResponse: d}
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

func action(path model.PathMatch, f *model.Forward, groups []model.WeightedGroup, total uint64) *routev3.RouteAction {
	a := &routev3.RouteAction{}
	if f.Retry != nil {
		a.RetryPolicy = retryPolicy(f.Retry, f.TryTimeout)
	}
	if len(groups) == 1 {
		a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: string(groups[0].Group)}
	} else {
		// Envoy wants the sum in 32 bits; larger weights keep their proportion.
		scale := total/(1<<32) + 1
		w := &routev3.WeightedCluster{}
		for _, g := range groups {
			w.Clusters = append(w.Clusters, &routev3.WeightedCluster_ClusterWeight{
				Name: string(g.Group), Weight: wrapperspb.UInt32(uint32(max(1, uint64(g.Weight)/scale))),
			})
		}
		a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: w}
	}
	switch {
	case f.Timeout == model.Never:
		a.Timeout = durationpb.New(0)
	case f.Timeout > 0:
		a.Timeout = durationpb.New(f.Timeout)
	}
	if f.Path != nil {
		rewrite(a, path, f.Path.Value)
	}
	return a
}

// rewrite replaces the matched prefix without doubling or swallowing the slash after it:
// "/a" to "/" makes "/b" of "/a/b"; "/" to "/x" makes "/x/b" of "/b".
func rewrite(a *routev3.RouteAction, path model.PathMatch, to string) {
	if to == "" {
		return
	}
	from := path.Value
	if path.Kind == model.PathExact || path.Kind == model.PathRegex {
		a.PrefixRewrite = to
		return
	}
	if path.Kind == model.PathSegments {
		from, to = strings.TrimRight(from, "/"), strings.TrimRight(to, "/")
		if to == "" {
			to = "/"
		}
		if from == "" {
			from, to = "/", strings.TrimRight(to, "/")+"/"
		}
	}
	if strings.HasSuffix(to, "/") && !strings.HasSuffix(from, "/") {
		a.RegexRewrite = &matcherv3.RegexMatchAndSubstitute{
			Pattern:      regexMatch("^" + regexp.QuoteMeta(from) + "/?"),
			Substitution: strings.ReplaceAll(to, `\`, `\\`),
		}
		return
	}
	a.PrefixRewrite = to
}

// retryPolicy is the route's, or the one of every route that says nothing: the virtual
// host's, which a route's replaces as a whole.
func retryPolicy(r *model.Retry, try time.Duration) *routev3.RetryPolicy {
	p := &routev3.RetryPolicy{
		RetryOn:    retrySafely,
		NumRetries: wrapperspb.UInt32(2),
		// Not the backend again that just failed.
		RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{{
			Name: "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{
				TypedConfig: pack(&previoushostsv3.PreviousHostsPredicate{}),
			},
		}},
		HostSelectionRetryMaxAttempts: 5,
	}
	if r != nil {
		p.RetryOn = "5xx," + retrySafely
		p.NumRetries = wrapperspb.UInt32(r.Attempts)
		if try > 0 {
			p.PerTryTimeout = durationpb.New(try.Round(time.Millisecond))
		}
	}
	return p
}

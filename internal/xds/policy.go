package xds

import (
	"math"
	"net/netip"
	"slices"
	"time"

	corecncf "github.com/cncf/xds/go/xds/core/v3"
	matcherxds "github.com/cncf/xds/go/xds/type/matcher/v3"
	mutationrulesv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/ratelimit/v3"
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	bodyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/body_size_limit/v3"
	compositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	localv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// The filter slots of a listener's chain, which routes fill with the filters of their policies. Envoy
// makes these filters when the route of a request is known. So a policy needs no change of the listener,
// which would end connections, and a route without policies costs nothing.
//
// A filter that waits for an answer has its own slot: when it continues, Envoy 1.40 continues
// after the slot, without the later filters in it and without the body for the earlier ones. The order of the
// slots has forbidden clients refused first, and limits can count by the answer of the authorization.
// encodingFilter is before them.
const (
	policyFilter        = "fairlead.policy"
	bodyFilter          = "fairlead.body"
	authorizationFilter = "fairlead.authorization"
	globalLimitFilter   = "fairlead.global_limit"
)

// policyTimeout bounds a question to a policy's service that names no time.
const policyTimeout = 500 * time.Millisecond

// clientHeader carries the client's address to the descriptor of a global limit.
const clientHeader = "x-fairlead-client"

// policies is the content of the slots for a policy. The data of a WebSocket is no body.
// A request for a WebSocket has no body: the normaliser has checked that.
func policies(p *model.RoutePolicy) map[string]*anypb.Any {
	if p == nil {
		return nil
	}
	out := map[string]*anypb.Any{}
	var guard, limit chainOf
	if m := encoding(p); m != nil {
		out[encodingFilter] = slot(m)
	}
	if a := p.Addresses; a != nil && len(a.Allow)+len(a.Deny) > 0 {
		guard.add("envoy.filters.http.rbac", addressFilter(a))
	}
	if p.RateLimit != nil {
		guard.add("envoy.filters.http.local_ratelimit", localLimit(p.RateLimit))
	}
	if len(guard) > 0 {
		out[policyFilter] = slot(guard.always())
	}
	if p.MaxRequestBytes > 0 {
		body := chainOf{}
		body.add("envoy.filters.http.body_size_limit", &bodyv3.BodySizeLimit{MaxRequestBytes: wrapperspb.UInt64(p.MaxRequestBytes)})
		out[bodyFilter] = slot(unlessWebSocket(body.always()))
	}
	if a := p.Authorization; a != nil && a.Service != "" {
		ask := chainOf{}
		ask.add("envoy.filters.http.ext_authz", authorization(a))
		out[authorizationFilter] = slot(ask.always())
	}
	if g := p.GlobalRateLimit; g != nil && g.Service != "" {
		if slices.ContainsFunc(g.Descriptors, func(s model.RateLimitSource) bool { return s.ClientAddress }) {
			limit.add("envoy.filters.http.header_mutation", clientAddress())
		}
		limit.add("envoy.filters.http.ratelimit", globalLimit(g))
		out[globalLimitFilter] = slot(limit.always())
	}
	if p.ErrorPages != nil && len(p.ErrorPages.Pages) > 0 {
		out[pagesFilter] = pack(routePages(p.ErrorPages))
	}
	return out
}

// chainOf are filters, one after the other.
type chainOf []*corev3.TypedExtensionConfig

func (c *chainOf) add(name string, m proto.Message) {
	*c = append(*c, &corev3.TypedExtensionConfig{Name: name, TypedConfig: pack(m)})
}

// always is a matcher that takes the filters for every request.
func (c chainOf) always() *matcherxds.Matcher {
	return executes(&compositev3.ExecuteFilterAction{FilterChain: c.configuration()})
}

func (c chainOf) configuration() *compositev3.FilterChainConfiguration {
	return &compositev3.FilterChainConfiguration{TypedConfig: c}
}

// executes is a matcher that takes an action for every request.
func executes(action *compositev3.ExecuteFilterAction) *matcherxds.Matcher {
	return &matcherxds.Matcher{OnNoMatch: &matcherxds.Matcher_OnMatch{OnMatch: &matcherxds.Matcher_OnMatch_Action{
		Action: &corecncf.TypedExtensionConfig{Name: "policy", TypedConfig: pack(action)},
	}}}
}

// unlessWebSocket is m for requests that ask for no WebSocket.
func unlessWebSocket(m *matcherxds.Matcher) *matcherxds.Matcher {
	upgrade := &matcherxds.Matcher_MatcherList_Predicate_SinglePredicate{
		Input: &corecncf.TypedExtensionConfig{
			Name: "envoy.matching.inputs.request_headers", TypedConfig: pack(&matcherv3.HttpRequestHeaderMatchInput{HeaderName: "upgrade"}),
		},
		Matcher: &matcherxds.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: &matcherxds.StringMatcher{
			MatchPattern: &matcherxds.StringMatcher_Exact{Exact: webSocket}, IgnoreCase: true,
		}},
	}
	not := &matcherxds.Matcher_MatcherList_Predicate{MatchType: &matcherxds.Matcher_MatcherList_Predicate_NotMatcher{
		NotMatcher: &matcherxds.Matcher_MatcherList_Predicate{MatchType: &matcherxds.Matcher_MatcherList_Predicate_SinglePredicate_{SinglePredicate: upgrade}},
	}}
	return &matcherxds.Matcher{MatcherType: &matcherxds.Matcher_MatcherList_{MatcherList: &matcherxds.Matcher_MatcherList{
		Matchers: []*matcherxds.Matcher_MatcherList_FieldMatcher{{Predicate: not, OnMatch: m.GetOnNoMatch()}},
	}}}
}

func slot(m *matcherxds.Matcher) *anypb.Any { return pack(&compositev3.CompositePerRoute{Matcher: m}) }

// clientAddress writes the client's address, behind the trusted hops, into a header of ours.
// The descriptor of Envoy's own that has it has a name that cannot be chosen.
func clientAddress() *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Mutations: &mutationv3.Mutations{RequestMutations: []*mutationrulesv3.HeaderMutation{{
		Action: &mutationrulesv3.HeaderMutation_Append{Append: headerOption(clientHeader,
			"%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)},
	}}}}
}

// unanswerable reports whether a policy asks a service that does not exist, so that no
// request may pass.
func unanswerable(p *model.RoutePolicy) bool {
	return p != nil && (p.Authorization != nil && p.Authorization.Service == "" && !p.Authorization.FailOpen ||
		p.GlobalRateLimit != nil && p.GlobalRateLimit.Service == "" && !p.GlobalRateLimit.FailOpen)
}

// addressFilter answers 403 to clients that are denied or, where some are allowed, to all
// others. Their address is the one behind the trusted hops.
func addressFilter(a *model.AddressFilter) *rbacv3.RBAC {
	in := func(prefixes []netip.Prefix) *rbacconfigv3.Principal {
		set := &rbacconfigv3.Principal_Set{}
		for _, p := range prefixes {
			set.Ids = append(set.Ids, &rbacconfigv3.Principal{Identifier: &rbacconfigv3.Principal_RemoteIp{RemoteIp: &corev3.CidrRange{
				AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits())),
			}}})
		}
		return &rbacconfigv3.Principal{Identifier: &rbacconfigv3.Principal_OrIds{OrIds: set}}
	}
	var refused []*rbacconfigv3.Principal
	if len(a.Deny) > 0 {
		refused = append(refused, in(a.Deny))
	}
	if len(a.Allow) > 0 {
		refused = append(refused, &rbacconfigv3.Principal{Identifier: &rbacconfigv3.Principal_NotId{NotId: in(a.Allow)}})
	}
	return &rbacv3.RBAC{Rules: &rbacconfigv3.RBAC{
		Action: rbacconfigv3.RBAC_DENY,
		Policies: map[string]*rbacconfigv3.Policy{"addresses": {
			Permissions: []*rbacconfigv3.Permission{{Rule: &rbacconfigv3.Permission_Any{Any: true}}},
			Principals:  refused,
		}},
	}}
}

// fillLeast is the least time between two fills of a token bucket (Envoy's rule).
const fillLeast = 50 * time.Millisecond

// localLimit is a token bucket of the machine, over all threads.
func localLimit(l *model.RateLimit) *localv3.LocalRateLimit {
	always := &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: 100}}
	per, tokens := max(l.Per, time.Millisecond), max(l.Requests, 1)
	if per < fillLeast { // the same rate in larger steps
		n := (fillLeast + per - 1) / per
		per, tokens = n*per, uint32(min(uint64(n)*uint64(tokens), math.MaxUint32))
	}
	return &localv3.LocalRateLimit{
		StatPrefix: "fairlead",
		TokenBucket: &typev3.TokenBucket{
			MaxTokens:     max(l.Burst, 1),
			TokensPerFill: wrapperspb.UInt32(tokens),
			FillInterval:  durationpb.New(per),
		},
		FilterEnabled:           always,
		FilterEnforced:          always,
		EnableXRatelimitHeaders: ratelimitcommonv3.XRateLimitHeadersRFCVersion_DRAFT_VERSION_03,
		EnableRetryAfterHeader:  true,
	}
}

// globalLimit asks a service with one descriptor.
func globalLimit(g *model.GlobalRateLimit) *ratelimitv3.RateLimit {
	limit := &routev3.RateLimit{}
	for _, d := range g.Descriptors {
		a := &routev3.RateLimit_Action{}
		switch {
		case d.Header != "" || d.ClientAddress:
			header := d.Header
			if d.ClientAddress {
				header = clientHeader
			}
			a.ActionSpecifier = &routev3.RateLimit_Action_RequestHeaders_{RequestHeaders: &routev3.RateLimit_Action_RequestHeaders{
				HeaderName: header, DescriptorKey: d.Key,
			}}
		default:
			a.ActionSpecifier = &routev3.RateLimit_Action_GenericKey_{GenericKey: &routev3.RateLimit_Action_GenericKey{
				DescriptorKey: d.Key, DescriptorValue: d.Value,
			}}
		}
		limit.Actions = append(limit.Actions, a)
	}
	timeout := g.Timeout
	if timeout <= 0 {
		timeout = policyTimeout
	}
	return &ratelimitv3.RateLimit{
		Domain:          g.Domain,
		Timeout:         durationpb.New(timeout),
		FailureModeDeny: !g.FailOpen,
		StatusOnError:   serviceUnavailable(),
		RateLimitService: &ratelimitconfigv3.RateLimitServiceConfig{
			GrpcService: grpcService(g.Service, timeout), TransportApiVersion: corev3.ApiVersion_V3,
		},
		EnableXRatelimitHeaders: ratelimitv3.RateLimit_DRAFT_VERSION_03,
		EnableRetryAfterHeader:  true,
		RateLimits:              []*routev3.RateLimit{limit},
	}
}

// authorization asks whether a request may pass. What the service says to a client whom it
// refuses is the answer.
func authorization(a *model.Authorization) *authzv3.ExtAuthz {
	timeout := a.Timeout
	if timeout <= 0 {
		timeout = policyTimeout
	}
	out := &authzv3.ExtAuthz{
		TransportApiVersion: corev3.ApiVersion_V3,
		FailureModeAllow:    a.FailOpen,
		StatusOnError:       serviceUnavailable(),
		DisallowedHeaders:   names([]string{scopeHeader, retryHeader}),
		// The service may change every header but the mark by which loops end.
		DecoderHeaderMutationRules: &mutationrulesv3.HeaderMutationRules{
			AllowAllRouting: wrapperspb.Bool(true), AllowEnvoy: wrapperspb.Bool(true),
			DisallowExpression: &matcherv3.RegexMatcher{Regex: model.LoopHeader},
		},
	}
	if a.MaxBodyBytes > 0 {
		out.WithRequestBody = &authzv3.BufferSettings{MaxRequestBytes: a.MaxBodyBytes, AllowPartialMessage: true}
	}
	if !a.HTTP {
		out.Services = &authzv3.ExtAuthz_GrpcService{GrpcService: grpcService(a.Service, timeout)}
		return out
	}
	if len(a.RequestHeaders) > 0 {
		out.AllowedHeaders = names(a.RequestHeaders)
	}
	service := &authzv3.HttpService{
		ServerUri: &corev3.HttpUri{
			// Only its path would be used, and that is PathPrefix.
			Uri:              "http://" + policyHost,
			HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: string(a.Service)},
			Timeout:          durationpb.New(timeout),
		},
		PathPrefix: a.PathPrefix,
	}
	if len(a.ResponseHeaders) > 0 {
		service.AuthorizationResponse = &authzv3.AuthorizationResponse{AllowedUpstreamHeaders: names(a.ResponseHeaders)}
	}
	out.Services = &authzv3.ExtAuthz_HttpService{HttpService: service}
	return out
}

// policyHost stands in the address of a policy's service; its group says where that is.
const policyHost = "fairlead-policy"

func serviceUnavailable() *typev3.HttpStatus {
	return &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable}
}

func grpcService(g model.GroupID, timeout time.Duration) *corev3.GrpcService {
	return &corev3.GrpcService{
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: string(g), Authority: policyHost}},
		Timeout:         durationpb.New(timeout),
	}
}

func names(list []string) *matcherv3.ListStringMatcher {
	out := &matcherv3.ListStringMatcher{}
	for _, n := range list {
		out.Patterns = append(out.Patterns, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: n}, IgnoreCase: true})
	}
	return out
}

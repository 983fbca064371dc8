package xds

import (
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	requestidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// tellBackends is what backends are told of clients, and whom is believed: proxies in front, as many as are trusted.
// What others say in headers of ours, or of Envoy's, is taken away before anything looks at them.
func tellBackends(m *hcmv3.HttpConnectionManager, c *model.ClientSettings) {
	trusted := m.XffNumTrustedHops > 0
	early := &earlyv3.HeaderMutation{Mutations: []*mutationv3.HeaderMutation{
		// How many bytes the headers had on the way, for the normaliser. What a client sends there is gone.
		{Action: &mutationv3.HeaderMutation_Append{
			Append: headerOption(scopeHeader, "%DOWNSTREAM_HEADER_BYTES_RECEIVED%", corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD),
		}},
		{Action: &mutationv3.HeaderMutation_RemoveOnMatch_{RemoveOnMatch: &mutationv3.HeaderMutation_RemoveOnMatch{
			KeyMatcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "x-envoy-"}, IgnoreCase: true},
		}}},
	}}
	if c != nil && c.ForwardedHost {
		how := corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		if trusted {
			how = corev3.HeaderValueOption_ADD_IF_ABSENT
		}
		early.Mutations = append(early.Mutations, &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{
			Append: headerOption("x-forwarded-host", "%REQ(:AUTHORITY)%", how),
		}})
	}
	m.AppendXForwardedPort = c != nil && c.ForwardedPort
	m.EarlyHeaderMutationExtensions = []*corev3.TypedExtensionConfig{{
		Name: "envoy.http.early_header_mutation.header_mutation", TypedConfig: pack(early),
	}}
	if trusted {
		// Theirs is what other logs have, and is left as it is.
		m.PreserveExternalRequestId = true
		m.RequestIdExtension = &hcmv3.RequestIDExtension{TypedConfig: pack(&requestidv3.UuidRequestIdConfig{PackTraceReason: wrapperspb.Bool(false)})}
	}
}

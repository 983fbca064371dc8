package xds

import (
	"fmt"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// A backend may be an edge again, by its VIP or by its address. Each edge adds its name to CDN-Loop
// (RFC 8586), and a request that has been at model.MaxTurns edges is answered 508, its copies for mirrors, too.
const (
	loopFilter = "fairlead.loop"
	loopStatus = 508
	// guardStatus is what the guard answers by itself.
	guardStatus = 403
)

// loopMark is what requests take along.
func loopMark() *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header: &corev3.HeaderValue{Key: model.LoopHeader, Value: model.LoopName}, AppendAction: corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD,
	}
}

// turnedTooOften matches requests that have been at model.MaxTurns edges.
func turnedTooOften() *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{
		Name: model.LoopHeader,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{
				// By bytes: a client may send some that are no UTF-8.
				Regex: fmt.Sprintf(`(?:\C*\b%s\b){%d}\C*`, model.LoopName, model.MaxTurns),
			}},
		}},
	}
}

// loopGuard ends loops.
func loopGuard() *hcmv3.HttpFilter {
	return httpFilter(loopFilter, &rbacv3.RBAC{Rules: refuse(&rbacconfigv3.Permission{Rule: &rbacconfigv3.Permission_Header{Header: turnedTooOften()}})})
}

// loopReply makes the guard's answer one that says what it is.
func loopReply() *hcmv3.ResponseMapper {
	return &hcmv3.ResponseMapper{
		Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{AndFilter: &accesslogv3.AndFilter{Filters: []*accesslogv3.AccessLogFilter{
			{FilterSpecifier: &accesslogv3.AccessLogFilter_HeaderFilter{HeaderFilter: &accesslogv3.HeaderFilter{Header: turnedTooOften()}}},
			// A request that was sent on has this edge's own mark, too, and is answered something else.
			{FilterSpecifier: &accesslogv3.AccessLogFilter_StatusCodeFilter{StatusCodeFilter: &accesslogv3.StatusCodeFilter{
				Comparison: &accesslogv3.ComparisonFilter{
					Op: accesslogv3.ComparisonFilter_EQ, Value: &corev3.RuntimeUInt32{DefaultValue: guardStatus, RuntimeKey: loopFilter},
				},
			}}},
		}}}},
		StatusCode: wrapperspb.UInt32(loopStatus),
		BodyFormatOverride: &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{
			TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{
				InlineString: fmt.Sprintf("508 loop: the request has been at %d edges (CDN-Loop)\n", model.MaxTurns),
			}},
		}},
	}
}

func refuse(p *rbacconfigv3.Permission) *rbacconfigv3.RBAC {
	return &rbacconfigv3.RBAC{
		Action: rbacconfigv3.RBAC_DENY,
		Policies: map[string]*rbacconfigv3.Policy{"refused": {
			Permissions: []*rbacconfigv3.Permission{p},
			Principals:  []*rbacconfigv3.Principal{{Identifier: &rbacconfigv3.Principal_Any{Any: true}}},
		}},
	}
}

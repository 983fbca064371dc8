package xds

import (
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// Envoy decides whether a route takes upgrades when it builds a request's filters, and the
// request has no route then: the normaliser is one of the filters. The same holds for
// filters that are disabled by route. So listeners take WebSocket upgrades in general, and a
// filter behind the normaliser refuses them where the route does not want them.
const (
	upgradeFilter = "fairlead.upgrade"
	webSocket     = "websocket"
)

// upgradeGuard answers 403 to requests for an upgrade, unless the route says otherwise.
func upgradeGuard() *hcmv3.HttpFilter {
	return httpFilter(upgradeFilter, &rbacv3.RBAC{Rules: refuse(upgradeHeader(&routev3.HeaderMatcher{
		HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true},
	}))})
}

// allowWebSocket is what a route with WebSockets says to the guard: only other upgrades are
// refused.
func allowWebSocket() *rbacv3.RBACPerRoute {
	other := upgradeHeader(&routev3.HeaderMatcher{
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Exact{Exact: webSocket}, IgnoreCase: true,
		}},
		InvertMatch: true,
	})
	return &rbacv3.RBACPerRoute{Rbac: &rbacv3.RBAC{Rules: refuse(other)}}
}

func upgradeHeader(m *routev3.HeaderMatcher) *rbacconfigv3.Permission {
	m.Name = "upgrade"
	return &rbacconfigv3.Permission{Rule: &rbacconfigv3.Permission_Header{Header: m}}
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

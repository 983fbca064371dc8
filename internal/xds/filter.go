package xds

import (
	compositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	pagesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/custom_response/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	sessionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"fairlead.dev/internal/model"
)

// httpFilters are what a request passes at a listener, in this order. Every filter that
// works by route is always there and does nothing until a route configures it.
func httpFilters(l model.Listener, c chain, o Options) []*hcmv3.HttpFilter {
	filters := []*hcmv3.HttpFilter{
		// What it answers with takes the place of all that the others have made of an answer.
		httpFilter(pagesFilter, &pagesv3.CustomResponse{}),
		scopeNormaliser(l, c),
		loopGuard(),
		// Browsers ask without credentials, so preflights are answered before policies.
		httpFilter(corsFilter, &corsv3.Cors{}),
		httpFilter(encodingFilter, encodingSlot()),
		httpFilter(policyFilter, &compositev3.Composite{}),
		httpFilter(bodyFilter, &compositev3.Composite{}),
		httpFilter(authorizationFilter, &compositev3.Composite{}),
		httpFilter(globalLimitFilter, &compositev3.Composite{}),
		httpFilter(sessionFilter, &sessionv3.StatefulSession{}),
		// Backends and clients need not know what the proxy is.
		httpFilter("envoy.filters.http.router", &routerv3.Router{SuppressEnvoyHeaders: true}),
	}
	if HTTP3(l) {
		filters = append([]*hcmv3.HttpFilter{altSvc(l)}, filters...)
	}
	if len(accessLogs(l, o)) > 0 {
		filters = append([]*hcmv3.HttpFilter{putAside()}, filters...)
	}
	return filters
}

package xds

import (
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// Envoy answers 431 to a request of HTTP/1.1 with too many headers. Over HTTP/2 and HTTP/3 it resets the
// stream (1.40), and neither browsers nor clients of gRPC learn why. So the normaliser counts, and answers
// in every version. Envoy's own limits lie above, and end what no answer is worth. The count is worth its time
// where the headers took many bytes on the way: of small ones Envoy's own limit holds.
const (
	// A request may have so many headers, and so many KiB of them, unless a policy says otherwise.
	usualHeaders   = 100
	usualHeaderKiB = 60
	// Envoy's own limits, as multiples of those. Cookies count there one by one: browsers send each in a
	// header of its own, and Envoy joins them for filters.
	hardHeaders     = 4
	hardHeaderBytes = 1.5
	// Envoy takes no larger limit for the headers of a request.
	maxHeaderKiB = 8192
	// ownHeaders are in every request that is counted: four pseudo-headers (Host is one), what Envoy says of
	// a request itself (X-Forwarded-For, X-Forwarded-Proto, X-Envoy-External-Address, X-Request-Id), and the
	// scope. They do not count, whoever sent them, and neither do about as many bytes as they have.
	ownHeaders     = 9
	ownHeaderBytes = 512
)

// headerLimits are how many headers a request may have at a listener, and how many KiB they may have.
func headerLimits(l model.Listener) (count, kib uint32) {
	count, kib = usualHeaders, usualHeaderKiB
	if l.Clients != nil && l.Clients.MaxHeaders > 0 {
		count = l.Clients.MaxHeaders
	}
	if l.Clients != nil && l.Clients.MaxHeaderBytes > 0 {
		kib = min(maxHeaderKiB, (l.Clients.MaxHeaderBytes+1023)/1024)
	}
	return count, kib
}

// boundHeaders sets Envoy's own limits.
func boundHeaders(m *hcmv3.HttpConnectionManager, l model.Listener) {
	count, kib := headerLimits(l)
	m.CommonHttpProtocolOptions.MaxHeadersCount = wrapperspb.UInt32(count*hardHeaders + ownHeaders)
	m.MaxRequestHeadersKb = wrapperspb.UInt32(min(maxHeaderKiB, uint32(float64(kib)*hardHeaderBytes)+1))
}

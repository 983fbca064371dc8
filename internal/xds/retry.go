package xds

import (
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

const (
	// retrySafely repeats what never reached a backend's program; it is on for every route,
	// so that a backend that dies costs its clients nothing. Requests of methods that may be
	// repeated (RFC 9110, 9.2.2) are also sent again when a connection broke before an answer
	// began: a backend closes an idle connection just when a request comes, and nobody can know
	// whether it saw that. Envoy's policies know no methods, so the normaliser says so by request.
	retrySafely = "connect-failure,refused-stream,reset-before-request"
	// retryReset, in the header retryHeader, is what the normaliser says.
	retryReset = "reset"
	// longestBackoff is how far Envoy lets the time between tries grow, as a multiple of the
	// first (its own default).
	longestBackoff = 10
)

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
	if try > 0 {
		p.PerTryTimeout = durationpb.New(max(try.Round(time.Millisecond), time.Millisecond))
	}
	if r == nil {
		return p
	}
	p.NumRetries = wrapperspb.UInt32(r.Attempts)
	if r.ServerErrors {
		p.RetryOn = "5xx," + retrySafely
	}
	if len(r.Codes) > 0 {
		p.RetryOn = "retriable-status-codes," + p.RetryOn
		p.RetriableStatusCodes = r.Codes
	}
	if r.Backoff > 0 {
		base := max(r.Backoff, time.Millisecond)
		p.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{
			BaseInterval: durationpb.New(base), MaxInterval: durationpb.New(longestBackoff * base),
		}
	}
	return p
}

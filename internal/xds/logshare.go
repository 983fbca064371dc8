package xds

import (
	"fmt"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/internal/model"
)

// Requests that did not fail are written by their ID, which is random (a UUID, version 4): those whose ID is smaller than a
// limit. A route or a host whose policy chooses a share has its limit as metadata, so that a choice changes routes and no
// listener, which would end connections. All lines of one request are kept or none, at whatever edge they are written.
const (
	shareFilter = "fairlead.log"
	shareLimit  = "below"

	limitNone   = ""  // no line, not even of a failed request
	limitErrors = "!" // less than each ID
	limitAll    = "~" // more than each ID
)

// limitOf is the limit of a share in percent: the first eight digits of an ID.
func limitOf(percent float64) string {
	switch {
	case percent <= 0:
		return limitErrors
	case percent >= 100:
		return limitAll
	}
	return fmt.Sprintf("%08x", uint64(percent/100*(1<<32)))
}

// withLogShare adds to the metadata of a route or host which of its requests have a line.
func withLogShare(m *corev3.Metadata, p *model.RoutePolicy) *corev3.Metadata {
	if p == nil || p.AccessLog == nil {
		return m
	}
	limit := limitNone
	if !p.AccessLog.None {
		limit = limitOf(p.AccessLog.Percent)
	}
	if m == nil {
		m = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
	}
	m.FilterMetadata[shareFilter] = &structpb.Struct{Fields: map[string]*structpb.Value{shareLimit: structpb.NewStringValue(limit)}}
	return m
}

// limitOfRequest is an expression for the limit of a request: its route's, its host's, or the listener's.
func limitOfRequest(listener string) string {
	of := func(holder, otherwise string) string {
		return fmt.Sprintf(`(%q in xds.%s.filter_metadata ? xds.%s.filter_metadata[%q][%q] : %s)`, shareFilter, holder, holder, shareFilter, shareLimit, otherwise)
	}
	return fmt.Sprintf(`("route_metadata" in xds ? %s : %q)`, of("route_metadata", of("virtual_host_metadata", fmt.Sprintf("%q", listener))), listener)
}

// wanted are the requests that have a line.
func wanted(choice model.AccessLog) *accesslogv3.AccessLogFilter {
	limit := limitAll
	switch {
	case choice.Errors:
		limit = limitErrors
	case choice.Percent > 0:
		limit = limitOf(choice.Percent)
	}
	limit = limitOfRequest(limit)
	// A request that Envoy answers before it has an ID has a line where all have one.
	return anyOf(expression(fmt.Sprintf("request.id < %s || %s == %q", limit, limit, limitAll)), allOf(failures(), expression(limit+fmt.Sprintf(" != %q", limitNone))))
}

// failures are requests that were answered 4xx or 5xx, or not at all (0: the client left, or its stream was
// ended as it was no HTTP), and calls of gRPC that failed or have no status.
func failures() *accesslogv3.AccessLogFilter {
	status := func(op accesslogv3.ComparisonFilter_Op, value uint32) *accesslogv3.AccessLogFilter {
		return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_StatusCodeFilter{
			StatusCodeFilter: &accesslogv3.StatusCodeFilter{Comparison: &accesslogv3.ComparisonFilter{
				Op: op,
				// The key is of Envoy's runtime, which nobody sets.
				Value: &corev3.RuntimeUInt32{DefaultValue: value, RuntimeKey: "fairlead.access_log.status"},
			}},
		}}
	}
	failed := &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_GrpcStatusFilter{GrpcStatusFilter: &accesslogv3.GrpcStatusFilter{
		Statuses: []accesslogv3.GrpcStatusFilter_Status{accesslogv3.GrpcStatusFilter_OK}, Exclude: true,
	}}}
	// To this filter every answer without a status of gRPC is UNKNOWN, those to other requests, too.
	return anyOf(status(accesslogv3.ComparisonFilter_GE, 400), status(accesslogv3.ComparisonFilter_EQ, 0), allOf(grpcCall(), failed))
}

// wantedConnections are the connections of bytes that have a line; nil is all.
func wantedConnections(choice model.AccessLog) *accesslogv3.AccessLogFilter {
	// The group has no backend, or none that can be reached or may have another connection.
	failed := &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NC", "NR", "UF", "UH", "UO", "URX"}},
	}}
	switch {
	case choice.Errors:
		return failed
	case choice.Percent > 0:
		return anyOf(failed, &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_RuntimeFilter{RuntimeFilter: &accesslogv3.RuntimeFilter{
			RuntimeKey: "fairlead.access_log.connections", UseIndependentRandomness: true, // nobody sets the key
			PercentSampled: &typev3.FractionalPercent{
				Numerator: uint32(min(100, choice.Percent) * 10_000), Denominator: typev3.FractionalPercent_MILLION,
			},
		}}})
	}
	return nil
}

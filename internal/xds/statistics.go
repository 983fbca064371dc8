package xds

import (
	"strings"

	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"fairlead.dev/internal/model"
)

// Statistics of Envoy that we read, by the ends of their names. Those of a cluster are the figures of a group.
const (
	StatRequests     = "upstream_rq_total"
	StatErrors       = "upstream_rq_5xx"
	StatTime         = "upstream_rq_time" // a histogram, in milliseconds
	StatRetries      = "upstream_rq_retry"
	StatResetByOther = "upstream_rq_rx_reset"
	StatResetByUs    = "upstream_rq_tx_reset"
	StatToBackend    = "upstream_cx_tx_bytes_total"
	StatFromBackend  = "upstream_cx_rx_bytes_total"
	StatBackends     = "membership_total"
	StatHealthy      = "membership_healthy"
)

// Statistics of a connection manager (http.ID) and of a TCP proxy (tcp.ID), and those of a listener (listener.ID).
const (
	StatClientTime          = "downstream_rq_time" // a histogram, in milliseconds
	StatFromClient          = "downstream_cx_rx_bytes_total"
	StatToClient            = "downstream_cx_tx_bytes_total"
	StatClientReset         = "downstream_rq_rx_reset"
	StatResetToClient       = "downstream_rq_tx_reset"
	StatConnectionsOpen     = "downstream_cx_active"
	StatConnectionsAccepted = "downstream_cx_total"
)

// clusterStatistics are all statistics of a cluster that exist. There are as many clusters as Services, and whoever asks Envoy
// for statistics has its main thread look at each one. Envoy itself reads outlier_detection.ejections_active, by which it
// bounds ejections; init_fetch_timeout says that a cluster came without its backends.
var clusterStatistics = []string{
	StatRequests, StatErrors, "upstream_rq_[1-4]xx", StatTime, StatRetries, StatResetByOther, StatResetByUs, StatToBackend, StatFromBackend, StatBackends, StatHealthy,
	"init_fetch_timeout", `outlier_detection\.ejections_active`,
}

// otherStatistics are what all other names begin with: there are as many as listeners, or one. Without the second list, each
// route shard and each certificate has statistics of its own.
var (
	otherStatistics = []string{
		RequestStats + ".", "listener.", "tcp.", "connection_limit.", "http1.", "http2.", "http3.", "cluster_manager.", "listener_manager.",
		"control_plane.", "overload.", "server.", "runtime.", "main_thread.", "workers.", "access_logs.", "filesystem.",
	}
	listenerStatistics = []string{`downstream_\w+`, `rbac\.\w+`, `no_\w+`, `rs_too_large`}
)

// statistics are those that Envoy makes.
func statistics() *metricsv3.StatsMatcher {
	patterns := []*matcherv3.StringMatcher{{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{
		Regex: `(vhost\..*\.route\..*\.` + StatTime + `|cluster\.[^.]+\.(` + strings.Join(clusterStatistics, "|") + `)|http\..*\.(` + strings.Join(listenerStatistics, "|") + `))`,
	}}}}
	for _, prefix := range otherStatistics {
		patterns = append(patterns, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}})
	}
	return &metricsv3.StatsMatcher{StatsMatcher: &metricsv3.StatsMatcher_InclusionList{InclusionList: &matcherv3.ListStringMatcher{Patterns: patterns}}}
}

// upstreamInStat stands between a group and its Upstream in the names of a cluster's statistics, and dotInStat for each "." of the Upstream.
const upstreamInStat, dotInStat = "@", "|"

// statOfGroup is the name of a cluster in its statistics; empty: its own.
func statOfGroup(g model.BackendGroup) string {
	if g.Upstream == "" {
		return ""
	}
	return string(g.ID) + upstreamInStat + strings.ReplaceAll(g.Upstream, ".", dotInStat)
}

// statOfRoute has Envoy record the times of a route by its owner (vhost.HOST.route.OWNER.upstream_rq_time); empty: it records none.
func statOfRoute(r model.Route) string {
	if !r.Measured {
		return ""
	}
	return r.Owner.Kind + "/" + r.Owner.Namespace + "/" + r.Owner.Name
}

// GroupOfStat is the group that a cluster's statistics are of, and the Upstream that its Service comes from; empty: of nobody.
func GroupOfStat(name string) (group model.GroupID, upstream string) {
	id, upstream, _ := strings.Cut(name, upstreamInStat)
	return model.GroupID(id), strings.ReplaceAll(upstream, dotInStat, ".")
}

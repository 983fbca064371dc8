package xds

import (
	"strings"

	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"fairlead.dev/internal/model"
)

// Statistics of Envoy that we read, by the ends of their names. Those of clusters are of a namespace and an Upstream.
const (
	StatTime         = "upstream_rq_time" // a histogram, in milliseconds
	StatRetries      = "upstream_rq_retry"
	StatResetByOther = "upstream_rq_rx_reset"
	StatResetByUs    = "upstream_rq_tx_reset"
	StatToBackend    = "upstream_cx_tx_bytes_total"
	StatFromBackend  = "upstream_cx_rx_bytes_total"
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

// clusterStatistics are all statistics of clusters that exist. Whoever asks Envoy for statistics has its main thread look at each
// one. init_fetch_timeout says that a cluster came without its backends. Membership and ejections have none: a gauge that several clusters
// set is of the last one, and the plane knows both.
var clusterStatistics = []string{
	"upstream_rq_[1-5]xx", StatTime, StatRetries, StatResetByOther, StatResetByUs, StatToBackend, StatFromBackend,
	"init_fetch_timeout",
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

// dotInStat stands for each "." of an Upstream in the names of clusters' statistics.
const dotInStat = "|"

// statOfGroup is the name of a cluster in its statistics: all clusters of a namespace that come from the same Upstream share theirs.
// There are as many clusters as Services, and Envoy's main thread looks at each statistic (ADR 58).
func statOfGroup(g model.BackendGroup) string {
	return model.ServicesKey(g.ID.Namespace(), strings.ReplaceAll(g.Upstream, ".", dotInStat))
}

// statOfRoute has Envoy record the times of a route by its owner (vhost.HOST.route.OWNER.upstream_rq_time); empty: it records none.
func statOfRoute(r model.Route) string {
	if !r.Measured {
		return ""
	}
	return r.Owner.Key()
}

// SharedStat is what clusters' statistics are of, by their name: the namespace, and the Upstream that its Services come from; empty: of
// nobody. Clusters that are no groups of backends have other names.
func SharedStat(name string) (namespace, upstream string, ok bool) {
	namespace, upstream, ok = model.ParseServicesKey(name)
	return namespace, strings.ReplaceAll(upstream, dotInStat, "."), ok && !strings.Contains(namespace, "/") // an older plane has clusters named by groups
}

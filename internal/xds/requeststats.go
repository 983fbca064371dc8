package xds

import (
	"strconv"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	statslogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	transformv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/actions/transform_stat/v3"
	statsinputv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/stats/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// RequestStats is the prefix of Envoy's counters of requests. The name of a counter is RequestStats + ".requests", and then for
// each of the tags below "." + its name + "." + its value, in this order. No value has a "@".
const RequestStats = "fairlead"

// Tags of a counter of requests.
const (
	StatListener = "@listener" // model.Listener's ID
	StatHost     = "@host"     // model.VirtualHost's Host; empty: no virtual host has the request's host
	StatRoute    = "@route"    // model.Route's Name; empty: no route matches
	StatGroup    = "@group"    // model.BackendGroup's ID; empty: the request was sent to none
	StatClass    = "@class"    // of the status, such as "2xx"; "none": the client left before an answer
)

// maxRequestCounters bounds the counters of requests of one listener. Requests beyond have none.
const maxRequestCounters = 100_000

// requestStats counts the requests of a listener by host, route, group and class of the status (ADR 55). Each listener has
// a scope of its own: with a shared one (sharing_name) Envoy 1.40 crashes when it validates a configuration and ends.
func requestStats(l model.Listener) *accesslogv3.AccessLog {
	return accessLogger("envoy.access_loggers.stats", &statslogv3.Config{
		StatsScope: &typev3.Scope{
			Prefix: RequestStats, MaxCounters: wrapperspb.UInt32(maxRequestCounters),
		},
		Counters: []*statslogv3.Config_Counter{{
			Stat: &statslogv3.Config_Stat{Name: "requests", Tags: []*statslogv3.Config_Tag{
				{Name: StatListener, ValueFormat: string(l.ID)},
				{Name: StatHost, ValueFormat: "%METADATA(VIRTUAL_HOST:" + scopeFilter + ":" + hostName + ")%"},
				{Name: StatRoute, ValueFormat: "%ROUTE_NAME%"},
				{Name: StatGroup, ValueFormat: "%UPSTREAM_CLUSTER_RAW%"},
				{Name: StatClass, ValueFormat: "%RESPONSE_CODE%", Rules: classes()},
			}},
			ValueFixed: wrapperspb.UInt64(1),
		}},
	})
}

// classes makes a class of a status: there are 600 statuses, and a backend may send any of them.
func classes() *xdsmatcherv3.Matcher {
	input := &xdscorev3.TypedExtensionConfig{Name: "status", TypedConfig: pack(&statsinputv3.StatTagValueInput{})}
	var list []*xdsmatcherv3.Matcher_MatcherList_FieldMatcher
	for _, class := range []model.StatusClass{2, 3, 4, 5, 1} { // the most frequent first
		list = append(list, &xdsmatcherv3.Matcher_MatcherList_FieldMatcher{
			Predicate: &xdsmatcherv3.Matcher_MatcherList_Predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{
				SinglePredicate: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
					Input: input,
					Matcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{
						ValueMatch: &xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Prefix{Prefix: strconv.Itoa(int(class))}},
					},
				},
			}},
			OnMatch: newTag(class.String()),
		})
	}
	return &xdsmatcherv3.Matcher{
		MatcherType: &xdsmatcherv3.Matcher_MatcherList_{MatcherList: &xdsmatcherv3.Matcher_MatcherList{Matchers: list}},
		OnNoMatch:   newTag(model.StatusClass(0).String()),
	}
}

func newTag(value string) *xdsmatcherv3.Matcher_OnMatch {
	return &xdsmatcherv3.Matcher_OnMatch{OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{Action: &xdscorev3.TypedExtensionConfig{
		Name:        "tag",
		TypedConfig: pack(&transformv3.TransformStat{UpdateTag: &transformv3.TransformStat_UpdateTag{NewTagValue: value}}),
	}}}
}

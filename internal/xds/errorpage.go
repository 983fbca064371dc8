package xds

import (
	"strings"

	corecncf "github.com/cncf/xds/go/xds/core/v3"
	matcherxds "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pagesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/custom_response/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	pagev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/custom_response/local_response_policy/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/model"
)

// pagesFilter shows the error pages of a route's policy. Its answer takes the place of the other one with all of its
// headers, and is a local reply without details, which is how the replies of the listener know it.
const pagesFilter = "fairlead.pages"

// routePages are what pagesFilter does for a route or host.
func routePages(p *model.ErrorPages) *pagesv3.CustomResponse {
	list := &matcherxds.Matcher_MatcherList{}
	for _, page := range p.Pages {
		when := anyStatus(page.Statuses)
		if !page.Backends {
			when = every(when, single("envoy.matching.inputs.local_reply", &matcherv3.HttpResponseLocalReplyMatchInput{}, "true"))
		}
		list.Matchers = append(list.Matchers, &matcherxds.Matcher_MatcherList_FieldMatcher{
			Predicate: when,
			OnMatch: &matcherxds.Matcher_OnMatch{OnMatch: &matcherxds.Matcher_OnMatch_Action{Action: &corecncf.TypedExtensionConfig{
				Name: "page", TypedConfig: pack(&pagev3.LocalResponsePolicy{
					Body:                 inline(page.Body),
					BodyFormat:           bodyAsIs(page.ContentType),
					ResponseHeadersToAdd: []*corev3.HeaderValueOption{headerOption("content-type", literal(page.ContentType), corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)},
				}),
			}}},
		})
	}
	return &pagesv3.CustomResponse{CustomResponseMatcher: &matcherxds.Matcher{MatcherType: &matcherxds.Matcher_MatcherList_{MatcherList: list}}}
}

// clientPages are the pages of a listener, for the proxy's own answers that no route has a page for.
func clientPages(pages []model.ErrorPage) []*hcmv3.ResponseMapper {
	var out []*hcmv3.ResponseMapper
	for _, page := range pages {
		out = append(out, &hcmv3.ResponseMapper{
			Filter:             allOf(expression(statusExpression(page.Statuses)), noGRPC()),
			Body:               inline(page.Body),
			BodyFormatOverride: bodyAsIs(page.ContentType),
		})
	}
	return out
}

func statusExpression(statuses []string) string {
	terms := make([]string, len(statuses))
	for i, s := range statuses {
		switch s {
		case "4xx":
			terms[i] = "(response.code >= 400 && response.code < 500)"
		case "5xx":
			terms[i] = "response.code >= 500"
		default:
			terms[i] = "response.code == " + s
		}
	}
	return "(" + strings.Join(terms, " || ") + ")"
}

func anyStatus(statuses []string) *matcherxds.Matcher_MatcherList_Predicate {
	list := make([]*matcherxds.Matcher_MatcherList_Predicate, len(statuses))
	for i, s := range statuses {
		if strings.HasSuffix(s, "xx") {
			list[i] = single("envoy.matching.inputs.status_code_class_input", &matcherv3.HttpResponseStatusCodeClassMatchInput{}, s)
		} else {
			list[i] = single("envoy.matching.inputs.status_code_input", &matcherv3.HttpResponseStatusCodeMatchInput{}, s)
		}
	}
	if len(list) == 1 {
		return list[0]
	}
	return &matcherxds.Matcher_MatcherList_Predicate{MatchType: &matcherxds.Matcher_MatcherList_Predicate_OrMatcher{
		OrMatcher: &matcherxds.Matcher_MatcherList_Predicate_PredicateList{Predicate: list},
	}}
}

func every(list ...*matcherxds.Matcher_MatcherList_Predicate) *matcherxds.Matcher_MatcherList_Predicate {
	return &matcherxds.Matcher_MatcherList_Predicate{MatchType: &matcherxds.Matcher_MatcherList_Predicate_AndMatcher{
		AndMatcher: &matcherxds.Matcher_MatcherList_Predicate_PredicateList{Predicate: list},
	}}
}

// single compares an input with a text.
func single(name string, input proto.Message, exact string) *matcherxds.Matcher_MatcherList_Predicate {
	return &matcherxds.Matcher_MatcherList_Predicate{MatchType: &matcherxds.Matcher_MatcherList_Predicate_SinglePredicate_{
		SinglePredicate: &matcherxds.Matcher_MatcherList_Predicate_SinglePredicate{
			Input: &corecncf.TypedExtensionConfig{Name: name, TypedConfig: pack(input)},
			Matcher: &matcherxds.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: &matcherxds.StringMatcher{
				MatchPattern: &matcherxds.StringMatcher_Exact{Exact: exact},
			}},
		},
	}}
}

package xds

import (
	"strconv"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"fairlead.dev/internal/model"
)

// othersWords says of an answer that somebody else has said what is in it: a service that refuses a request, or a page
// of a route's policy, which has no details.
const othersWords = `response.code_details in ["", "ext_authz_denied"]`

// reason is why the proxy itself answers: by Envoy's details of the answer, or by its flags.
type reason struct {
	when  string // of the details
	flags []string
	text  string
}

// reasons are in the words of those who see them: what a client, or somebody who looks after a site, can make of it.
// The first one holds. A program asks the status, and the access log has Envoy's own words. They are few and short, since
// each chain of each listener has them.
var reasons = []reason{
	{when: `response.code_details.startsWith("rbac_")`, text: "clients from this address are not allowed"},
	{when: `response.code_details == "request_payload_too_large"`, text: "the request is too large"},
	{when: `response.code_details.endsWith("_rate_limited")`, text: "too many requests"},
	{when: `response.code_details in ["ext_authz_error", "rate_limiter_error"]`, text: "the authorization or rate limit service did not answer"},
	{when: `response.code_details == "missing_host_header"`, text: "the request has no host"},
	{when: `response.code_details == "path_normalization_failed" && response.code == 400`, text: "the path is malformed"},
	{when: `response.code_details == "query_missing_content_type"`, text: "a QUERY request needs a Content-Type"},
	{flags: []string{"NR"}, text: "nothing is served here"},
	{flags: []string{"UH"}, text: "no backend is available"},
	{flags: []string{"UO"}, text: "too many requests wait for the backends"},
	{flags: []string{"UT"}, text: "the backend did not answer in time"},
	{flags: []string{"UPE"}, text: "the backend's response is malformed"},
	{flags: []string{"UF"}, text: "the backend cannot be reached"},
	{flags: []string{"UC", "UR", "LR"}, text: "the backend ended the connection"},
	{flags: []string{"NC"}, text: "the backends are not known yet"},
	{flags: []string{"OM"}, text: "the edge is overloaded"},
}

// localReplies says in one short line why the proxy itself answered, or shows a page. Fixed responses of routes keep
// their own body.
func localReplies(pages []model.ErrorPage) *hcmv3.LocalReplyConfig {
	c := &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{loopReply(), {Filter: expression(othersWords)}}}
	c.Mappers = append(c.Mappers, clientPages(pages)...)
	for _, r := range reasons {
		c.Mappers = append(c.Mappers, &hcmv3.ResponseMapper{Filter: r.filter(), BodyFormatOverride: format("%RESPONSE_CODE% " + r.text + "\n")})
	}
	return c
}

func (r reason) filter() *accesslogv3.AccessLogFilter {
	if len(r.flags) == 0 {
		return expression(r.when)
	}
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: r.flags},
	}}
}

// fixedReasons are why a route answers a status itself without saying more.
var fixedReasons = map[uint32]string{
	404: "nothing is served here",
	500: "the route refers to an object that does not exist or that it may not use",
	503: "the route has no valid backend",
}

// fixedReason is the body of a fixed response that has none of its own; empty where no error is answered.
func fixedReason(status uint32) string {
	text := fixedReasons[status]
	if text == "" {
		return ""
	}
	return strconv.Itoa(int(status)) + " " + text + "\n"
}

func directResponse(status uint32, body string) *routev3.Route_DirectResponse {
	d := &routev3.DirectResponseAction{Status: status}
	if body == "" {
		body = fixedReason(status)
	}
	if body != "" {
		d.Body = inline(body)
	}
	return &routev3.Route_DirectResponse{DirectResponse: d}
}

// expression is a condition in CEL.
func expression(text string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{ExtensionFilter: &accesslogv3.ExtensionFilter{
		Name:       "cel",
		ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: pack(&celv3.ExpressionFilter{Expression: text})},
	}}}
}

// noGRPC says that a request is no call of gRPC: in the answers to these a body is a message of one line.
func noGRPC() *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_HeaderFilter{HeaderFilter: &accesslogv3.HeaderFilter{
		Header: &routev3.HeaderMatcher{
			Name: "content-type", InvertMatch: true, TreatMissingHeaderAsEmpty: true,
			HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "application/grpc"},
			}},
		},
	}}}
}

func inline(text string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}}
}

func format(text string) *corev3.SubstitutionFormatString {
	return &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: inline(text)}}
}

// bodyAsIs leaves a reply's body, and says what it is.
func bodyAsIs(contentType string) *corev3.SubstitutionFormatString {
	f := format("%LOCAL_REPLY_BODY%")
	f.ContentType = contentType
	return f
}

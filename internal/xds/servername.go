package xds

import (
	corecncf "github.com/cncf/xds/go/xds/core/v3"
	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	networkinputsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// serverNames lead from server names to the chains that serve them. Which names a chain has is no part of
// the chain: its connections outlive that it has one more.
type serverNames struct {
	of   []*matcherv3.ServerNameMatcher_DomainMatcher
	rest *matcherv3.Matcher_OnMatch // every other name
}

// add has a chain serve its names.
func (s *serverNames) add(c chain) {
	on := &matcherv3.Matcher_OnMatch{OnMatch: &matcherv3.Matcher_OnMatch_Action{Action: &corecncf.TypedExtensionConfig{
		Name: c.name(), TypedConfig: pack(wrapperspb.String(c.name())),
	}}}
	if len(c.names) == 0 {
		s.rest = on
		return
	}
	s.of = append(s.of, &matcherv3.ServerNameMatcher_DomainMatcher{Domains: c.names, OnMatch: on})
}

// matcher prefers a name to a wildcard, and longer wildcards to shorter ones.
func (s *serverNames) matcher() *matcherv3.Matcher {
	m := &matcherv3.Matcher{OnNoMatch: s.rest}
	if len(s.of) == 0 {
		return m
	}
	m.MatcherType = &matcherv3.Matcher_MatcherTree_{MatcherTree: &matcherv3.Matcher_MatcherTree{
		Input: &corecncf.TypedExtensionConfig{Name: "envoy.matching.inputs.server_name", TypedConfig: pack(&networkinputsv3.ServerNameInput{})},
		TreeType: &matcherv3.Matcher_MatcherTree_CustomMatch{CustomMatch: &corecncf.TypedExtensionConfig{
			Name: "envoy.matching.custom_matchers.domain_matcher", TypedConfig: pack(&matcherv3.ServerNameMatcher{DomainMatchers: s.of}),
		}},
	}}
	return m
}

package xds

import (
	"cmp"
	"slices"
	"strings"

	corecncf "github.com/cncf/xds/go/xds/core/v3"
	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	networkinputsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// serverNames lead from server names to the chains that serve them. Which names a chain has is no part of
// the chain: its connections outlive that it has one more.
type serverNames struct {
	exact map[string]*matcherv3.Matcher_OnMatch
	wild  []wildChain
	rest  *matcherv3.Matcher_OnMatch // every other name
}

// wildChain serves all names with a suffix, as in ".example.com".
type wildChain struct {
	suffix string
	on     *matcherv3.Matcher_OnMatch
}

// closedChain is the name of no chain: who is led there is closed.
const closedChain = "closed"

// add has a chain serve its names.
func (s *serverNames) add(c chain) { s.lead(c, c.name()) }

// close has nobody serve a chain's names: a wildcard that they are below would, with its own certificate.
func (s *serverNames) close(c chain) { s.lead(c, closedChain) }

func (s *serverNames) lead(c chain, to string) {
	on := onMatch(to)
	if len(c.names) == 0 {
		s.rest = on
	}
	for _, name := range c.names {
		if suffix, is := strings.CutPrefix(name, "*"); is {
			s.wild = append(s.wild, wildChain{suffix, on})
			continue
		}
		if s.exact == nil {
			s.exact = map[string]*matcherv3.Matcher_OnMatch{}
		}
		s.exact[name] = on
	}
}

func onMatch(chain string) *matcherv3.Matcher_OnMatch {
	return &matcherv3.Matcher_OnMatch{OnMatch: &matcherv3.Matcher_OnMatch_Action{Action: &corecncf.TypedExtensionConfig{
		Name: chain, TypedConfig: pack(wrapperspb.String(chain)),
	}}}
}

// overTLS is matcher for connections that begin with TLS: in others nobody named a server, and a chain that hands
// on bytes would take them.
func (s *serverNames) overTLS() *matcherv3.Matcher {
	return &matcherv3.Matcher{MatcherType: &matcherv3.Matcher_MatcherTree_{MatcherTree: &matcherv3.Matcher_MatcherTree{
		Input: &corecncf.TypedExtensionConfig{Name: "envoy.matching.inputs.transport_protocol", TypedConfig: pack(&networkinputsv3.TransportProtocolInput{})},
		TreeType: &matcherv3.Matcher_MatcherTree_ExactMatchMap{ExactMatchMap: &matcherv3.Matcher_MatcherTree_MatchMap{
			Map: map[string]*matcherv3.Matcher_OnMatch{"tls": {OnMatch: &matcherv3.Matcher_OnMatch_Matcher{Matcher: s.matcher()}}},
		}},
	}}}
}

// matcher prefers a name to a wildcard, and longer wildcards to shorter ones. (Envoy 1.40 has a matcher of
// domains too, and warns of it: work in progress.)
func (s *serverNames) matcher() *matcherv3.Matcher {
	input := &corecncf.TypedExtensionConfig{Name: "envoy.matching.inputs.server_name", TypedConfig: pack(&networkinputsv3.ServerNameInput{})}
	m := &matcherv3.Matcher{OnNoMatch: s.rest}
	if len(s.wild) > 0 {
		slices.SortFunc(s.wild, func(a, b wildChain) int {
			return cmp.Or(cmp.Compare(len(b.suffix), len(a.suffix)), strings.Compare(a.suffix, b.suffix))
		})
		list := &matcherv3.Matcher_MatcherList{}
		for _, w := range s.wild {
			list.Matchers = append(list.Matchers, &matcherv3.Matcher_MatcherList_FieldMatcher{
				Predicate: &matcherv3.Matcher_MatcherList_Predicate{MatchType: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{
					SinglePredicate: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
						Input: input,
						Matcher: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: &matcherv3.StringMatcher{
							MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: w.suffix},
						}},
					},
				}},
				OnMatch: w.on,
			})
		}
		m.MatcherType = &matcherv3.Matcher_MatcherList_{MatcherList: list}
	}
	if len(s.exact) == 0 {
		return m
	}
	tree := &matcherv3.Matcher{OnNoMatch: s.rest, MatcherType: &matcherv3.Matcher_MatcherTree_{MatcherTree: &matcherv3.Matcher_MatcherTree{
		Input:    input,
		TreeType: &matcherv3.Matcher_MatcherTree_ExactMatchMap{ExactMatchMap: &matcherv3.Matcher_MatcherTree_MatchMap{Map: s.exact}},
	}}}
	if len(s.wild) > 0 {
		tree.OnNoMatch = &matcherv3.Matcher_OnMatch{OnMatch: &matcherv3.Matcher_OnMatch_Matcher{Matcher: m}}
	}
	return tree
}

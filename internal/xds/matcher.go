package xds

import (
	"maps"
	"regexp/syntax"
	"slices"
	"strings"

	corecncf "github.com/cncf/xds/go/xds/core/v3"
	matcherxds "github.com/cncf/xds/go/xds/type/matcher/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/model"
)

// treeFrom is the number of routes from which a virtual host gets a tree. Envoy tries a list
// in order, 35 ns a route; the tree takes as long as ten of them, whatever its size, but has
// some routes twice.
const treeFrom = 32

// tree finds the routes of a request by the prefixes of its path, for virtual hosts with
// more routes than are quickly tried one by one.
//
// Each route has a key, with which every path begins that it can take. The leaf of a key holds,
// in the order of the host, all routes that can take a path whose longest key it is: so the
// first one of the leaf that matches is the first one of the host that matches. Envoy does not
// go on to a shorter key when the routes of a leaf do not match, hence they are all there; what
// stands behind a route that takes every path of the leaf is left out.
type tree struct {
	routes []keyed
	on     bool
}

// keyed is a route with what is known of the paths that it takes.
type keyed struct {
	route *routev3.Route
	key   string // empty: nothing is known
	kind  model.PathMatchKind
	// single: each copy of the route would have a token bucket of its own.
	single bool
}

func newTree(routes int) *tree { return &tree{on: routes >= treeFrom} }

func (t *tree) add(of model.Route, built *routev3.Route) {
	if !t.on {
		return
	}
	path := of.Match.Path
	k := keyed{route: built, key: path.Value, kind: path.Kind, single: of.Policy != nil && of.Policy.RateLimit != nil}
	switch path.Kind {
	case model.PathExact, model.PathPrefix:
	case model.PathRegex:
		k.key = literalPrefix(path.Value)
	case model.PathSegments:
		k.key = strings.TrimRight(path.Value, "/")
	default:
		k.key = ""
	}
	if k.key == "" && k.kind != model.PathRegex {
		k.key, k.kind = "/", model.PathPrefix
	}
	// A path is compared without its query, which a longer key could take for more of it.
	if i := strings.IndexAny(k.key, "?#"); i >= 0 {
		k.key, k.kind = k.key[:i], model.PathRegex
	}
	t.routes = append(t.routes, k)
}

// matcher is the tree; nil where a list does as well.
func (t *tree) matcher() *matcherxds.Matcher {
	if !t.on {
		return nil
	}
	byKey := map[string][]int{}
	for i, k := range t.routes {
		byKey[k.key] = append(byKey[k.key], i)
	}
	keys := slices.Sorted(maps.Keys(byKey))
	leaves := map[string]*matcherxds.Matcher_OnMatch{}
	size := 0
	used := map[int]bool{}
	for _, key := range keys {
		if key == "" {
			continue
		}
		var list []*routev3.Route
		for _, i := range t.leaf(key, byKey) {
			if t.routes[i].single && used[i] {
				return nil
			}
			used[i] = true
			list = append(list, t.routes[i].route)
		}
		if size += len(list); size > maxLeaves*len(t.routes) {
			return nil // expressions everywhere: the tree would be mostly copies
		}
		leaves[key] = routeList(list)
	}
	if len(leaves) == 0 {
		return nil
	}
	m := &matcherxds.Matcher{MatcherType: &matcherxds.Matcher_MatcherTree_{MatcherTree: &matcherxds.Matcher_MatcherTree{
		Input: &corecncf.TypedExtensionConfig{
			Name: "envoy.matching.inputs.request_headers", TypedConfig: pack(&matcherv3.HttpRequestHeaderMatchInput{HeaderName: ":path"}),
		},
		TreeType: &matcherxds.Matcher_MatcherTree_PrefixMatchMap{PrefixMatchMap: &matcherxds.Matcher_MatcherTree_MatchMap{Map: leaves}},
	}}}
	if rest := byKey[""]; len(rest) > 0 {
		var list []*routev3.Route
		for _, i := range rest {
			if t.routes[i].single && used[i] {
				return nil
			}
			list = append(list, t.routes[i].route)
		}
		m.OnNoMatch = routeList(list)
	}
	return m
}

// maxLeaves bounds the routes in all leaves, as a multiple of the host's.
const maxLeaves = 8

// leaf is the positions of the routes for paths whose longest key is key, in order.
func (t *tree) leaf(key string, byKey map[string][]int) []int {
	var all []int
	for n := range len(key) + 1 {
		for _, i := range byKey[key[:n]] {
			if t.routes[i].reaches(key) {
				all = append(all, i)
			}
		}
	}
	slices.Sort(all)
	for n, i := range all {
		if t.routes[i].covers(key) {
			return all[:n+1]
		}
	}
	return all
}

// reaches reports whether the route can take a path whose longest key is key, which begins
// with the route's own.
func (k keyed) reaches(key string) bool {
	switch {
	case len(key) == len(k.key):
		return true
	case k.kind == model.PathExact:
		return false
	case k.kind == model.PathSegments:
		return key[len(k.key)] == '/'
	}
	return true
}

// covers reports whether the route takes every path that begins with key.
func (k keyed) covers(key string) bool {
	m := k.route.GetMatch()
	if len(m.GetHeaders())+len(m.GetQueryParameters())+len(m.GetCookies()) > 0 || m.GetRuntimeFraction() != nil {
		return false
	}
	return k.kind == model.PathPrefix || k.kind == model.PathSegments && len(key) > len(k.key)
}

// literalPrefix is a text with which every path begins that the expression takes.
func literalPrefix(expression string) string {
	re, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return ""
	}
	var b strings.Builder
	for parts := flatten(re.Simplify()); len(parts) > 0; parts = parts[1:] {
		switch p := parts[0]; {
		case p.Op == syntax.OpBeginText, p.Op == syntax.OpEmptyMatch:
		case p.Op == syntax.OpLiteral && p.Flags&syntax.FoldCase == 0:
			b.WriteString(string(p.Rune))
		default:
			return b.String()
		}
	}
	return b.String()
}

func flatten(re *syntax.Regexp) []*syntax.Regexp {
	switch re.Op {
	case syntax.OpConcat:
		var parts []*syntax.Regexp
		for _, s := range re.Sub {
			parts = append(parts, flatten(s)...)
		}
		return parts
	case syntax.OpCapture:
		return flatten(re.Sub[0])
	default:
		return []*syntax.Regexp{re}
	}
}

func routeList(list []*routev3.Route) *matcherxds.Matcher_OnMatch {
	var action proto.Message = &routev3.RouteList{Routes: list}
	if len(list) == 1 {
		action = list[0]
	}
	return &matcherxds.Matcher_OnMatch{OnMatch: &matcherxds.Matcher_OnMatch_Action{
		Action: &corecncf.TypedExtensionConfig{Name: "route", TypedConfig: pack(action)},
	}}
}

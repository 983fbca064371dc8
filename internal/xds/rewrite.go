package xds

import (
	"regexp"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"fairlead.dev/internal/model"
)

// newPath is how a path is replaced. At most one of the fields is set.
type newPath struct {
	prefix string // replaces what the route's match took
	full   string // replaces the whole path
	regex  *matcherv3.RegexMatchAndSubstitute
}

// rewritten replaces the matched prefix without doubling or swallowing the slash after it:
// "/a" to "/" makes "/b" of "/a/b"; "/" to "/x" makes "/x/b" of "/b".
func rewritten(path model.PathMatch, r *model.PathRewrite) newPath {
	if r == nil {
		return newPath{}
	}
	from, to := path.Value, r.Value
	switch {
	case r.Kind == model.RewriteFull, path.Kind == model.PathExact, path.Kind == model.PathRegex:
		if to == "" {
			to = "/"
		}
		return newPath{full: to}
	case path.Kind != model.PathPrefix: // by segments
		from, to = strings.TrimRight(from, "/"), strings.TrimRight(to, "/")
		if to == "" {
			to = "/"
		}
		if from == "" {
			from, to = "/", strings.TrimRight(to, "/")+"/"
		}
	case to == "":
		return newPath{}
	}
	if strings.HasSuffix(to, "/") && !strings.HasSuffix(from, "/") {
		return newPath{regex: substitute("^"+regexp.QuoteMeta(from)+"/?", to)}
	}
	if from == to {
		return newPath{}
	}
	return newPath{prefix: to}
}

func substitute(pattern, to string) *matcherv3.RegexMatchAndSubstitute {
	return &matcherv3.RegexMatchAndSubstitute{Pattern: regexMatch(pattern), Substitution: strings.ReplaceAll(to, `\`, `\\`)}
}

func rewriteForward(a *routev3.RouteAction, path model.PathMatch, r *model.PathRewrite) {
	switch n := rewritten(path, r); {
	case n.full != "":
		a.RegexRewrite = substitute("^.+$", n.full)
	case n.prefix != "":
		a.PrefixRewrite = n.prefix
	default:
		a.RegexRewrite = n.regex
	}
}

func rewriteRedirect(a *routev3.RedirectAction, path model.PathMatch, r *model.PathRewrite) {
	switch n := rewritten(path, r); {
	case n.full != "":
		a.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: n.full}
	case n.prefix != "":
		a.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: n.prefix}
	case n.regex != nil:
		a.PathRewriteSpecifier = &routev3.RedirectAction_RegexRewrite{RegexRewrite: n.regex}
	}
}

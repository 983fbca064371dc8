package host

import (
	"cmp"
	"unicode/utf8"

	"fairlead.dev/internal/model"
)

// Entry is a route of a virtual host with what is needed to put it in its place.
// Entries are never changed.
type Entry struct {
	Route   model.Route
	Groups  []model.BackendGroup // those that the route names
	Created int64                // of the owner, Unix seconds
	Order   int                  // within the owner
	// Service and method are how many characters a GRPCRoute's match has of each; 0 of others.
	Service, Method int
}

// Compare orders entries as requests try them: HTTPRouteRule.matches of the
// Gateway API, which is also IngressRoute's longest prefix first. Regular
// expressions, whose place is left open there, stand between exact paths and
// prefixes, longer ones first. Those of a GRPCRoute go by GRPCRouteRule.matches.
func (e *Entry) Compare(f *Entry) int {
	a, b := &e.Route.Match, &f.Route.Match
	// In steps: most are told apart by their paths, and characters are slow to count.
	if c := cmp.Or(
		-cmp.Compare(e.Service, f.Service),
		-cmp.Compare(e.Method, f.Method),
		cmp.Compare(pathRank(a.Path.Kind), pathRank(b.Path.Kind)),
	); c != 0 {
		return c
	}
	if c := -cmp.Compare(utf8.RuneCountInString(a.Path.Value), utf8.RuneCountInString(b.Path.Value)); c != 0 {
		return c
	}
	if c := cmp.Or(
		-cmp.Compare(min(len(a.Method), 1), min(len(b.Method), 1)),
		-cmp.Compare(len(a.Headers), len(b.Headers)),
		-cmp.Compare(len(a.Query), len(b.Query)),
		cmp.Compare(e.Created, f.Created),
	); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(e.Route.Owner.Namespace, f.Route.Owner.Namespace),
		cmp.Compare(e.Route.Owner.Name, f.Route.Owner.Name),
		cmp.Compare(e.Order, f.Order),
		cmp.Compare(e.Route.Name, f.Route.Name),
	)
}

func pathRank(k model.PathMatchKind) int {
	switch k {
	case model.PathExact:
		return 0
	case model.PathRegex:
		return 1
	default:
		return 2
	}
}

// Candidate is what one resource wants of a virtual host: an HTTPRoute its rules, a
// root IngressRoute its tree, a Gateway that the host exists.
type Candidate struct {
	Owner   model.Object
	Created int64
	Entries []*Entry // sorted
}

// Older reports whether c came before d; of two of one second, the one whose name
// comes first in the alphabet.
func (c *Candidate) Older(d *Candidate) bool {
	return cmp.Or(
		cmp.Compare(c.Created, d.Created),
		cmp.Compare(c.Owner.Namespace, d.Owner.Namespace),
		cmp.Compare(c.Owner.Name, d.Owner.Name),
		cmp.Compare(c.Owner.Kind, d.Owner.Kind),
	) < 0
}

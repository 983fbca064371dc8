package contour

import (
	"cmp"
	"slices"
	"strconv"

	"fairlead.dev/internal/snapshot"
)

// maxTreeRoutes bounds the routes of one tree: they are put in order at each change of any,
// and Envoy tries those of a host one after another.
const maxTreeRoutes = 1 << 16

// branch is what one of the root's delegations leads to.
type branch struct {
	step   int // of the root, index in spec.routes
	routes int
}

// treeSize is what a walk counts, and who must stay out of a tree with too many routes.
type treeSize struct {
	routes   int // visited, those of the root among them
	branches []branch
	// out are the root's steps that stay out, where there is not room for all; nil while there is.
	out map[int]struct{}
}

// enter counts the routes of an IngressRoute that enters the tree.
func (size *treeSize) enter(route *IngressRoute, root bool) {
	size.routes += len(route.steps)
	if !root {
		size.branches[len(size.branches)-1].routes += len(route.steps)
	}
}

// exceeds chooses who stays out, and reports whether anybody has to: the largest branches. So one that
// has no more than an equal part of what the root leaves stays in, whatever the others bring.
func (size *treeSize) exceeds() bool {
	room := maxTreeRoutes - size.routes
	if room >= 0 {
		return false
	}
	size.out = map[int]struct{}{}
	slices.SortStableFunc(size.branches, func(a, b branch) int { return cmp.Compare(b.routes, a.routes) })
	for _, b := range size.branches {
		if room >= 0 {
			break
		}
		size.out[b.step] = struct{}{}
		room += b.routes
	}
	return true
}

// excludes reports whether there is no room for an IngressRoute to which the last of a path
// delegates, by a step.
func (size *treeSize) excludes(s step, next *IngressRoute, path []delegator) bool {
	if size.out == nil {
		return false
	}
	_, out := size.out[s.index]
	return len(path) == 1 && out || size.routes+len(next.steps) > maxTreeRoutes
}

func tooManyText(target snapshot.Name) string {
	return "too many routes for one host: with those of IngressRoute " + target.String() + " and of all to which it delegates there would be more than " +
		strconv.Itoa(maxTreeRoutes) + " (the smallest of the root's delegations come first)"
}

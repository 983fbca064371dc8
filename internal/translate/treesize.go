package translate

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
	out      map[int]bool // steps of the root for which there is no room; nil while there is
}

// enter counts the routes of an IngressRoute that is visited.
func (size *treeSize) enter(f *ingressFact, root bool) {
	size.routes += len(f.steps)
	if !root {
		size.branches[len(size.branches)-1].routes += len(f.steps)
	}
}

// exceeds chooses who stays out, and reports whether anybody has to: the largest branches. So
// one that has no more than an equal part stays in, whatever the others bring.
func (size *treeSize) exceeds() bool {
	room := maxTreeRoutes - size.routes
	if room >= 0 {
		return false
	}
	size.out = map[int]bool{}
	slices.SortStableFunc(size.branches, func(a, b branch) int { return cmp.Compare(b.routes, a.routes) })
	for _, b := range size.branches {
		if room >= 0 {
			break
		}
		size.out[b.step] = true
		room += b.routes
	}
	return true
}

// excludes reports whether there is no room for an IngressRoute to which the last of a path
// delegates. One that was counted elsewhere in the tree may come to another place when its
// first one stays out, so that the sum is looked at, too.
func (size *treeSize) excludes(s step, next *ingressFact, path []delegator) bool {
	return size.out != nil && (len(path) == 1 && size.out[s.index] || size.routes+len(next.steps) > maxTreeRoutes)
}

func tooManyText(target snapshot.Name) string {
	return "too many routes for one host: with those of IngressRoute " + target.String() + " and of all to which it delegates there would be more than " +
		strconv.Itoa(maxTreeRoutes) + " (the smallest of the root's delegations come first)"
}

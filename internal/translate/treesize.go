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
	// room is how many routes each of the root's steps may lead to, where there is not room for all;
	// nil while there is.
	room map[int]int
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
	size.room = map[int]int{}
	even := maxTreeRoutes / len(size.branches)
	for _, b := range size.branches {
		size.room[b.step] = max(b.routes, even)
	}
	slices.SortStableFunc(size.branches, func(a, b branch) int { return cmp.Compare(b.routes, a.routes) })
	for _, b := range size.branches {
		if room >= 0 {
			break
		}
		delete(size.room, b.step)
		room += b.routes
	}
	return true
}

// excludes reports whether there is no room for an IngressRoute to which the last of a path
// delegates. One that was found under a branch that stays out may come to another one, which leads to
// no more than it was counted with, or an equal part.
func (size *treeSize) excludes(s step, next *ingressFact, path []delegator) bool {
	if size.room == nil {
		return false
	}
	led := 0
	if len(path) > 1 {
		b := size.branches[len(size.branches)-1]
		s.index, led = b.step, b.routes
	}
	return led+len(next.steps) > size.room[s.index]
}

func tooManyText(target snapshot.Name) string {
	return "too many routes for one host: with those of IngressRoute " + target.String() + " and of all to which it delegates there would be more than " +
		strconv.Itoa(maxTreeRoutes) + " (the smallest of the root's delegations come first)"
}

package contour

import (
	"slices"
	"strings"
)

// prefixes are path prefixes in order, so that the longest one that a path begins with is
// found without a try at each of its lengths, in O(length + log n).
type prefixes struct {
	sorted []string
	// above and jump lead from each to shorter ones that it begins with: to the next, or -1,
	// and to one further up, so that there are O(log n) steps to any of them (Myers, An
	// applicative random-access stack, 1983).
	above, jump []int32
}

// newPrefixes takes different prefixes in any order.
func newPrefixes(list []string) prefixes {
	p := prefixes{sorted: list, above: make([]int32, len(list)), jump: make([]int32, len(list))}
	slices.Sort(p.sorted)
	depth := make([]int, len(list))
	// What a prefix begins with stands before it, and what stands between the two begins
	// with the same.
	for i, s := range p.sorted {
		a := int32(i) - 1
		for a >= 0 && !strings.HasPrefix(s, p.sorted[a]) {
			a = p.above[a]
		}
		p.above[i], p.jump[i] = a, a
		if a < 0 {
			continue
		}
		depth[i] = depth[a] + 1
		if j := p.jump[a]; j >= 0 && p.jump[j] >= 0 && depth[a]-depth[j] == depth[j]-depth[p.jump[j]] {
			p.jump[i] = p.jump[j]
		}
	}
	return p
}

// longest returns the longest that path begins with.
func (p prefixes) longest(path string) (string, bool) {
	i, found := slices.BinarySearch(p.sorted, path)
	if found {
		return path, true
	}
	if i == 0 {
		return "", false
	}
	at := int32(i - 1)
	for same := common(p.sorted[at], path); at >= 0 && len(p.sorted[at]) > same; {
		if j := p.jump[at]; j >= 0 && len(p.sorted[j]) > same {
			at = j
		} else {
			at = p.above[at]
		}
	}
	if at < 0 {
		return "", false
	}
	return p.sorted[at], true
}

// common is how many bytes a and b begin with alike.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// segment is a path prefix that ends with a slash: what goes on by segments begins with it.
func segment(prefix string) string {
	if strings.HasSuffix(prefix, "/") {
		return prefix
	}
	return prefix + "/"
}

// segmented are prefixes that end with a slash, each once.
func segmented(list []string) []string {
	for i := range list {
		list[i] = segment(list[i])
	}
	slices.Sort(list)
	return slices.Compact(list)
}

package quota

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Level is how many claims each namespace is granted.
type Level struct {
	// Each is for every namespace.
	Each int
	// Last is the last one, by name, of the namespaces that are granted one more than Each, if they have another; empty: there are none.
	Last string
}

// unlimited grants all claims.
var unlimited = Level{Each: math.MaxInt}

// levelOf divides a bound among namespaces with so many claims.
func levelOf(bound int, claims map[string]int) Level {
	all := 0
	for _, n := range claims {
		all += n
	}
	if all <= bound {
		return unlimited
	}
	left, each := bound, 0
	for i, n := range slices.Sorted(maps.Values(claims)) {
		if each = left / (len(claims) - i); n > each {
			break // so have those that follow
		}
		left -= n
	}
	wanting := slices.SortedFunc(maps.Keys(claims), cmp.Compare)
	wanting = slices.DeleteFunc(wanting, func(namespace string) bool { return claims[namespace] <= each })
	if rest := left - each*len(wanting); rest > 0 {
		return Level{Each: each, Last: wanting[rest-1]}
	}
	return Level{Each: each}
}

// of is how many claims a namespace is granted, if it has as many.
func (l Level) of(namespace string) int {
	if namespace <= l.Last {
		return l.Each + 1
	}
	return l.Each
}

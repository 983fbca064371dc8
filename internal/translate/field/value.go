package field

import (
	"cmp"
	"slices"
	"time"
)

// Distinct are the elements of a list, each once, in its order.
func Distinct[T comparable](list []T) []T {
	var out []T
	for _, v := range list {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// SortedKeys returns the keys of a map in order.
func SortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Longest is what a longer duration of a route counts as: nobody waits for so long, and Envoy refuses a host with
// durations that it cannot count, also for others.
const Longest = 365 * 24 * time.Hour

// Deref returns the value behind a pointer, or the zero value for nil.
func Deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// NonEmpty returns the texts that are not empty.
func NonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}

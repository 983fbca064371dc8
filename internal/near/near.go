// Package near finds the names that may have been meant by a text that is none of them.
//
// It changes nothing and decides nothing: people choose. Equal inputs give equal names.
package near

import (
	"cmp"
	"slices"
	"strings"
)

// Names are those that may have been meant by a text that is none of them, the nearest
// first: those that differ in a few letters, or have the text in them.
func Names(text string, names []string) []string {
	const most = 3
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	limit := max(1, min(3, len(text)/4))
	lower := strings.ToLower(text)
	for _, name := range names {
		has := len(text) > 2 && strings.Contains(strings.ToLower(name), lower)
		d := limit + 1
		if has {
			d = 1
		}
		// So many letters are to be added or left out at least.
		if less := len(name) - len(text); -limit <= less && less <= limit {
			d = min(d, distance(lower, strings.ToLower(name)))
		}
		if d <= limit {
			found = append(found, candidate{name, d})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	found = slices.Compact(found)
	var out []string
	for _, f := range found[:min(most, len(found))] {
		out = append(out, f.name)
	}
	return out
}

// DidYouMean is Names as the end of a message; empty where nothing is near.
func DidYouMean(text string, names []string) string {
	if found := Names(text, names); len(found) > 0 {
		return "; did you mean " + strings.Join(found, " or ") + "?"
	}
	return ""
}

// distance is how many letters are to be changed, added or left out (Levenshtein, 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}

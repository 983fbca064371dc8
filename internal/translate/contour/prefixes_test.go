package contour

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestLongestPrefix compares with a look at every prefix.
func TestLongestPrefix(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	word := func(letters, most int) string {
		b := make([]byte, r.IntN(most))
		for i := range b {
			b[i] = byte('a' + r.IntN(letters))
		}
		return "/" + string(b)
	}
	found, nested := 0, 0
	for range 2000 {
		letters, most := 1+r.IntN(3), 2+r.IntN(20)
		set := map[string]bool{}
		for range r.IntN(60) {
			set[word(letters, most)] = true
		}
		p := newPrefixes(slices.Collect(maps.Keys(set)))
		for range 50 {
			path := word(letters, most+2)
			want, any := "", false
			for s := range set {
				if strings.HasPrefix(path, s) && len(s) >= len(want) {
					want, any = s, true
				}
			}
			if got, ok := p.longest(path); got != want || ok != any {
				t.Fatalf("of %q, %q begins with %q %t, want %q %t", p.sorted, path, got, ok, want, any)
			}
			if any {
				found++
			}
			if any && want != path {
				nested++
			}
		}
	}
	if found < 10000 || nested < 1000 {
		t.Errorf("%d paths began with a prefix, %d of them with a shorter one: too few to say anything", found, nested)
	}
}

package listing

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

type row struct {
	namespace string
	n         int
}

func newList() *List[row] { return New(func(r row) string { return r.namespace }) }

// TestFollowers plays any changes to followers of one namespace or of all, who look now and then: what they know is what
// the list has, and they are told of nothing in which their namespace has no part.
func TestFollowers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	l := newList()
	type follower struct {
		namespace string
		at        uint64
		known     map[string][]row
	}
	var followers []*follower
	for _, namespace := range []string{"", "a", "b", "none"} {
		for range 3 {
			followers = append(followers, &follower{namespace: namespace, known: map[string][]row{}})
		}
	}
	had := map[string]map[string]bool{} // namespaces that have ever had a part in a block
	for step := range 30_000 {
		key := fmt.Sprint("k", random.IntN(40))
		var rows []row
		for range random.IntN(3) {
			rows = append(rows, row{[]string{"a", "b", "c"}[random.IntN(3)], random.IntN(3)})
		}
		l.Put(key, rows)
		for _, r := range rows {
			if had[key] == nil {
				had[key] = map[string]bool{}
			}
			had[key][r.namespace] = true
		}
		f := followers[random.IntN(len(followers))]
		if step < 20_000 && random.IntN(4) > 0 || step >= 20_000 && random.IntN(9_000) > 0 {
			continue // the last ones look seldom: the list does not remember all that they missed
		}
		c := l.Since(f.at, f.namespace)
		if c.Reset {
			clear(f.known)
		}
		for _, b := range c.Blocks {
			if f.namespace != "" && !had[b.Key][f.namespace] {
				t.Fatalf("step %d: %q is told of %s, in which it never had a part", step, f.namespace, b.Key)
			}
			if len(b.Rows) == 0 {
				delete(f.known, b.Key)
			} else {
				f.known[b.Key] = b.Rows
			}
		}
		f.at = c.At
		want := map[string][]row{}
		for _, b := range l.All(f.namespace).Blocks {
			want[b.Key] = b.Rows
		}
		if !reflect.DeepEqual(f.known, want) {
			t.Fatalf("step %d: a follower of %q knows %v, and the list has %v", step, f.namespace, f.known, want)
		}
	}
	if l.forgot == 0 {
		t.Error("the list remembers everything")
	}
	if keys := l.Keys(); !slices.Equal(keys, slices.Sorted(maps.Keys(l.blocks))) {
		t.Errorf("the keys are %v", keys)
	}
}

// TestPut: what is the same is no change.
func TestPut(t *testing.T) {
	l := newList()
	if l.Put("k", nil) || !l.Put("k", []row{{"a", 1}}) || l.Put("k", []row{{"a", 1}}) {
		t.Error("a change is none, or none is a change")
	}
	if got := l.Rows(); len(got) != 1 || l.At() != 1 {
		t.Errorf("the list has %v at %d", got, l.At())
	}
	if !l.Put("k", nil) || len(l.Rows()) != 0 || len(l.Keys()) != 0 {
		t.Error("a block stays")
	}
	if c := l.Since(9, ""); !c.Reset {
		t.Error("a follower of another list is told changes")
	}
}

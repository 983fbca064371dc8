package quota

import (
	"cmp"
	"slices"

	"fairlead.dev/internal/memo"
)

// Quota is a bound that namespaces share. K tells the claims of a namespace apart.
type Quota[K comparable] struct {
	bound  int
	before func(a, b K) int

	claims *memo.Sum[string, K, int64, memo.Parts[K, int64]]          // when they were made, in Unix time, by namespace
	counts *memo.Sum[memo.Unit, string, int, memo.Parts[string, int]] // of claims, by namespace
	level  *memo.Table[memo.Unit, Level]
	newest *memo.Table[string, cutoff[K]]
}

// cutoff is the newest claim of a namespace that is granted; those that are not newer are granted, too.
type cutoff[K comparable] struct {
	all  bool // that there are
	some bool
	made int64
	of   K
}

// New adds a bound to a graph. The order of claims that were made at the same time is that of before.
func New[K comparable](g *memo.Graph, name string, bound int, before func(a, b K) int) *Quota[K] {
	q := &Quota[K]{bound: bound, before: before}
	q.claims = memo.NewSum[string, K, int64](g, "claims for "+name)
	q.counts = memo.NewSum[memo.Unit, string, int](g, "numbers of claims for "+name)
	memo.For(memo.NewTable(g, "claims of a namespace for "+name, func(c *memo.Context, namespace string) (int, bool) {
		n := q.claims.Get(c, namespace).Len()
		if n > 0 {
			q.counts.Put(c, memo.Unit{}, namespace, n)
		}
		return n, n > 0
	}, memo.Reads(q.claims), memo.Puts(q.counts)), q.claims)
	q.level = memo.NewTable(g, "level of "+name, func(c *memo.Context, _ memo.Unit) (Level, bool) {
		claims := map[string]int{}
		for namespace, n := range q.counts.Get(c, memo.Unit{}).All() {
			claims[namespace] = n
		}
		return levelOf(q.bound, claims), true
	}, memo.Reads(q.counts))
	q.newest = memo.NewTable(g, "newest of a namespace with "+name, func(c *memo.Context, namespace string) (cutoff[K], bool) {
		return q.cutoffOf(c, namespace), true
	}, memo.Reads(q.claims, q.level))
	return q
}

// Puts declares that a function makes claims.
func (q *Quota[K]) Puts() memo.Option { return memo.Puts(q.claims) }

// Reads declares that a function asks whether claims are granted.
func (q *Quota[K]) Reads() memo.Option { return memo.Reads(q.newest) }

// Claim makes a claim for a namespace, of an object that was created at a time.
func (q *Quota[K]) Claim(c *memo.Context, namespace string, k K, created int64) {
	q.claims.Put(c, namespace, k, created)
}

// Granted says whether a claim that was made is granted.
func (q *Quota[K]) Granted(c *memo.Context, namespace string, k K, created int64) bool {
	e := q.newest.Get(c, namespace)
	return e.all || e.some && cmp.Or(cmp.Compare(created, e.made), q.before(k, e.of)) <= 0
}

func (q *Quota[K]) cutoffOf(c *memo.Context, namespace string) cutoff[K] {
	claims, most := q.claims.Get(c, namespace), q.level.Get(c, memo.Unit{}).of(namespace)
	switch {
	case claims.Len() <= most:
		return cutoff[K]{all: true}
	case most == 0:
		return cutoff[K]{}
	}
	list := make([]cutoff[K], 0, claims.Len())
	for k, made := range claims.All() {
		list = append(list, cutoff[K]{some: true, made: made, of: k})
	}
	slices.SortFunc(list, func(a, b cutoff[K]) int { return cmp.Or(cmp.Compare(a.made, b.made), q.before(a.of, b.of)) })
	return list[most-1]
}

package listing

import (
	"maps"
	"reflect"
	"slices"
)

// maxChanges is how many changes are remembered. Who has missed more begins anew.
const maxChanges = 4096

// List is a list of rows, in the order of the keys of their blocks. Nobody may change rows that were put into it or read from it.
type List[R any] struct {
	namespace func(R) string
	blocks    map[string][]R
	keys      []string // of blocks, sorted
	rows      []R      // of all blocks; nil: not made since the last change
	at        uint64   // number of the last change
	changes   []change // the last ones, oldest first
	forgot    uint64   // number of the last change that is not remembered
}

// change says that a block became another one. Whoever may see rows of one of the namespaces is concerned.
type change struct {
	at         uint64
	key        string
	namespaces []string
}

// New returns an empty list. namespace says to which namespace a row belongs.
func New[R any](namespace func(R) string) *List[R] {
	return &List[R]{namespace: namespace, blocks: map[string][]R{}}
}

// Put sets the rows of a block; without rows the block is gone. It reports whether that changes the list.
func (l *List[R]) Put(key string, rows []R) bool {
	was := l.blocks[key]
	if len(was) == 0 && len(rows) == 0 || reflect.DeepEqual(was, rows) {
		return false
	}
	at, known := slices.BinarySearch(l.keys, key)
	switch {
	case len(rows) == 0:
		delete(l.blocks, key)
		l.keys = slices.Delete(l.keys, at, at+1)
	case !known:
		l.keys = slices.Insert(l.keys, at, key)
		fallthrough
	default:
		l.blocks[key] = rows
	}
	l.rows = nil
	l.at++
	l.changes = append(l.changes, change{l.at, key, l.concerned(was, rows)})
	if len(l.changes) > 2*maxChanges { // seldom: the rest is copied
		drop := len(l.changes) - maxChanges
		l.forgot = l.changes[drop-1].at
		l.changes = slices.Clone(l.changes[drop:])
	}
	return true
}

func (l *List[R]) concerned(lists ...[]R) []string {
	names := map[string]bool{}
	for _, rows := range lists {
		for _, r := range rows {
			names[l.namespace(r)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Keys are those of all blocks, sorted.
func (l *List[R]) Keys() []string { return slices.Clone(l.keys) }

// Rows are all rows.
func (l *List[R]) Rows() []R {
	if l.rows == nil {
		l.rows = make([]R, 0, len(l.keys))
		for _, key := range l.keys {
			l.rows = append(l.rows, l.blocks[key]...)
		}
	}
	return l.rows
}

// Block is a block of rows as somebody may see it. Without rows it is gone.
type Block[R any] struct {
	Key  string
	Rows []R
}

// Changes lead from one state of a list to another.
type Changes[R any] struct {
	// At is the number of the last change that is in it.
	At uint64
	// Reset says that Blocks are the whole list: what was known before does not count.
	Reset  bool
	Blocks []Block[R]
}

// At is the number of the last change.
func (l *List[R]) At() uint64 { return l.at }

// All are the changes from nothing for who may see rows of a namespace; empty: of all.
func (l *List[R]) All(namespace string) Changes[R] {
	c := Changes[R]{At: l.at, Reset: true}
	for _, key := range l.keys {
		if rows := l.seen(key, namespace); len(rows) > 0 {
			c.Blocks = append(c.Blocks, Block[R]{key, rows})
		}
	}
	return c
}

// Since are the changes after the one of that number, or All where the list does not remember them.
func (l *List[R]) Since(at uint64, namespace string) Changes[R] {
	if at > l.at || at < l.forgot {
		return l.All(namespace)
	}
	first, _ := slices.BinarySearchFunc(l.changes, at, func(c change, at uint64) int {
		if c.at <= at {
			return -1
		}
		return 1
	})
	changed := map[string]bool{}
	for _, c := range l.changes[first:] {
		if namespace == "" || slices.Contains(c.namespaces, namespace) {
			changed[c.key] = true
		}
	}
	c := Changes[R]{At: l.at}
	for _, key := range slices.Sorted(maps.Keys(changed)) {
		c.Blocks = append(c.Blocks, Block[R]{key, l.seen(key, namespace)})
	}
	return c
}

// seen are the rows of a block that belong to a namespace; empty: all.
func (l *List[R]) seen(key, namespace string) []R {
	rows := l.blocks[key]
	if namespace == "" || !slices.ContainsFunc(rows, func(r R) bool { return l.namespace(r) != namespace }) {
		return rows
	}
	return slices.DeleteFunc(slices.Clone(rows), func(r R) bool { return l.namespace(r) != namespace })
}

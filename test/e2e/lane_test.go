package e2e

import (
	"strconv"
	"sync"
	"testing"
)

// The tests wait more than they compute, so those of different labs run side by side: one in
// each lab that is shared, and ownLabs with a lab of their own.
var (
	sharedLane, routedLane lane
	ownLane                = make(chan struct{}, ownLabs)
)

const (
	ownLabs = 2
	// parallelTests is how many tests may be between their beginning and their end: all, as
	// each waits for its lane.
	parallelTests = "1000"
)

// lane has the tests of one lab run one after the other, in the order in which they stand in
// the files.
type lane struct {
	mu   sync.Mutex
	last <-chan struct{} // closed when the last test that entered has ended
}

// enter makes the test a parallel one and returns when those before it have ended. Go starts
// the tests in their order, each up to here.
func (l *lane) enter(t *testing.T) {
	t.Helper()
	mine := make(chan struct{})
	l.mu.Lock()
	before := l.last
	l.last = mine
	l.mu.Unlock()
	t.Cleanup(func() { close(mine) })
	t.Parallel()
	if before != nil {
		<-before
	}
}

// enterOwn makes the test a parallel one and returns when it may have a lab of its own, one in
// all its time.
func enterOwn(t *testing.T) {
	t.Helper()
	t.Parallel()
	ownLane <- struct{}{}
	t.Cleanup(func() { <-ownLane })
}

// labNames are names of labs that were given out: tests that make the same lab run side by side.
var labNames names

type names struct {
	mu   sync.Mutex
	used map[string]int
}

// next is a name for another lab.
func (n *names) next(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.used == nil {
		n.used = map[string]int{}
	}
	if n.used[name]++; n.used[name] > 1 {
		name += "-" + strconv.Itoa(n.used[name])
	}
	return name
}

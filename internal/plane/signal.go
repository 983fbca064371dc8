package plane

import (
	"maps"
	"sync"
)

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changed are keys that changed since the loop last received them.
type changed[K comparable] struct {
	some chan struct{} // gets a token with each key

	mu   *sync.Mutex
	keys map[K]bool
}

func newChanged[K comparable]() changed[K] {
	return changed[K]{some: make(chan struct{}, 1), mu: &sync.Mutex{}, keys: map[K]bool{}}
}

// note notes a key, and signals the loop.
func (c changed[K]) note(key K) {
	c.mu.Lock()
	c.keys[key] = true
	c.mu.Unlock()
	signal(c.some)
}

// receive returns the keys that were noted, and forgets them.
func (c changed[K]) receive() map[K]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := maps.Clone(c.keys)
	clear(c.keys)
	return keys
}

package share

import (
	"context"
	"sync"
)

// Limit says which bound was reached.
type Limit int

// The limits of a Bound.
const (
	None   Limit = iota
	OfUser       // the user has as many slots as one user may have
	OfAll        // all slots are taken
)

// Bound is a number of slots, of which each user may have a part. It is safe for concurrent use.
type Bound struct {
	each int
	all  chan struct{}

	mu    sync.Mutex
	users map[string]*user // who has a slot, or waits for one
}

type user struct {
	slots   chan struct{}
	present int // calls that have a slot, or wait for one
}

// New returns a bound of so many slots, of which each user may have so many.
func New(all, each int) *Bound {
	return &Bound{each: each, all: make(chan struct{}, all), users: map[string]*user{}}
}

// All is how many slots there are.
func (b *Bound) All() int { return cap(b.all) }

// Each is how many slots one user may have.
func (b *Bound) Each() int { return b.each }

// Held is how many slots are taken.
func (b *Bound) Held() int { return len(b.all) }

// Try takes a slot for a user, whose name is empty where only the number of all slots counts. The caller calls release once. It is
// nil where a limit was reached.
func (b *Bound) Try(name string) (release func(), reached Limit) {
	gone, end := context.WithCancel(context.Background())
	end()
	return b.Wait(gone, name)
}

// Wait is Try, but waits for a slot until ctx is done. Who waits for one of all slots has one of the user's, so that a user who waits
// often is in nobody's way.
func (b *Bound) Wait(ctx context.Context, name string) (release func(), reached Limit) {
	if name == "" {
		if !enter(ctx, b.all) {
			return nil, OfAll
		}
		return func() { <-b.all }, None
	}
	u := b.come(name)
	if !enter(ctx, u.slots) {
		b.leave(name, u)
		return nil, OfUser
	}
	if !enter(ctx, b.all) {
		<-u.slots
		b.leave(name, u)
		return nil, OfAll
	}
	return func() {
		<-b.all
		<-u.slots
		b.leave(name, u)
	}, None
}

// enter takes a slot that is free, also when ctx is done, and else waits.
func enter(ctx context.Context, slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
	}
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (b *Bound) come(name string) *user {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.users[name]
	if u == nil {
		u = &user{slots: make(chan struct{}, b.each)}
		b.users[name] = u
	}
	u.present++
	return u
}

func (b *Bound) leave(name string, u *user) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u.present--; u.present == 0 {
		delete(b.users, name)
	}
}

package discovery

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

const (
	// maxRouters bounds how many of a link are remembered: one is wanted.
	maxRouters = 8
	// Whoever is to be found is asked for so many times, at least an interval apart (RFC 4861, 6.3.7 and 10).
	solicitations = 3
	askInterval   = 4 * time.Second
	// askPause is until it is asked again, while there is no session.
	askPause = time.Minute
)

// table is who is heard on a link, and when to ask. It does no I/O and reads no clock.
//
// A router is forgotten only when it was asked three times and has not spoken since. One that speaks seldom, and
// unasked, is not lost for that.
type table struct {
	heard   map[netip.Addr]int // how often each was asked since it spoke
	settled bool
	left    int       // how often to ask
	next    time.Time // not before
}

func newTable() *table { return &table{heard: map[netip.Addr]int{}} }

// hear takes an advertisement in, and reports whether its router was not known. Another one than before is a reason
// to ask who is still there.
func (t *table) hear(from netip.Addr) (fresh bool) {
	_, known := t.heard[from]
	if !known && len(t.heard) >= maxRouters {
		return false
	}
	t.heard[from] = 0
	if !known && len(t.heard) > 1 {
		t.ask()
	}
	return !known
}

// ask has everybody asked.
func (t *table) ask() { t.left = solicitations }

// settle says whether there is a session, so that nobody needs to be asked.
func (t *table) settle(settled bool) {
	if t.settled && !settled {
		t.ask()
	}
	t.settled = settled
}

// step goes on with the time, and reports whether to ask now.
func (t *table) step(now time.Time) (ask bool) {
	if now.Before(t.next) {
		return false
	}
	maps.DeleteFunc(t.heard, func(_ netip.Addr, asked int) bool { return asked >= solicitations })
	if t.left == 0 {
		if t.settled || now.Before(t.next.Add(askPause)) {
			return false
		}
		t.ask()
	}
	t.left--
	t.next = now.Add(askInterval)
	for a := range t.heard {
		t.heard[a]++
	}
	return true
}

// routers are those that are there, sorted.
func (t *table) routers() []netip.Addr {
	out := make([]netip.Addr, 0, len(t.heard))
	for a := range t.heard {
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

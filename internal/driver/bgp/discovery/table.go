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
// unasked, is not lost for that. The router of the session is not forgotten while it is up, whether it speaks or not,
// and has all three times to answer after it: nobody who makes us ask, and speaks in its place, gets the session.
type table struct {
	heard   map[netip.Addr]int // how often each was asked since it spoke, or since its session
	session Session
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

// settle says how the session stands. While it is up, nobody needs to be asked. Its router counts as heard then, and
// when it is lost.
func (t *table) settle(s Session) {
	if s == t.session {
		return
	}
	t.session = s
	if s.Router.IsValid() {
		t.heard[s.Router] = 0
	}
	if !s.Up {
		t.ask()
	}
}

// step goes on with the time, and reports whether to ask now.
func (t *table) step(now time.Time) (ask bool) {
	if now.Before(t.next) {
		return false
	}
	maps.DeleteFunc(t.heard, func(a netip.Addr, asked int) bool {
		return asked >= solicitations && !(t.session.Up && a == t.session.Router)
	})
	if t.left == 0 {
		if t.session.Up || now.Before(t.next.Add(askPause)) {
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

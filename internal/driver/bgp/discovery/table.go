package discovery

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

const (
	// maxRouters bounds how many of a link are remembered: one is wanted. When as many are, a new one takes the place of
	// another, but only once in an interval, so that a flood changes little.
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
	heard    map[netip.Addr]router
	session  Session
	left     int       // how often to ask
	next     time.Time // not before
	replaced time.Time // when one took the place of another
}

// router is one that is remembered.
type router struct {
	asked    int       // how often, since it spoke or since its session
	since    time.Time // when it was first heard
	answered time.Time // when it last spoke after it was asked; zero is never
	had      bool      // there was a session with it
}

func newTable() *table { return &table{heard: map[netip.Addr]router{}} }

// hear takes an advertisement in, and reports whether its router was not known. Another one than before is a reason
// to ask who is still there.
func (t *table) hear(from netip.Addr, now time.Time) (fresh bool) {
	r, known := t.heard[from]
	if !known && from != t.session.Router && len(t.heard) >= maxRouters {
		if now.Before(t.replaced.Add(askInterval)) {
			return false
		}
		t.replaced = now
	}
	if !known {
		r.since = now
	}
	if r.asked > 0 {
		r.asked, r.answered = 0, now
	}
	t.put(from, r)
	if !known && len(t.heard) > 1 {
		t.ask()
	}
	return !known
}

// put remembers a router as r says. If there is no place for it, it takes that of the one that is least proven: without
// a session before those that had one, then the one whose last answer is the oldest, or that never answered for the
// longest time. The router of the session keeps its place.
func (t *table) put(a netip.Addr, r router) {
	if _, known := t.heard[a]; !known && len(t.heard) >= maxRouters {
		others := slices.DeleteFunc(t.routers(), func(a netip.Addr) bool { return a == t.session.Router })
		delete(t.heard, slices.MinFunc(others, func(a, b netip.Addr) int {
			x, y := t.heard[a], t.heard[b]
			switch {
			case y.had && !x.had:
				return -1
			case x.had && !y.had:
				return 1
			}
			return cmp.Or(x.answered.Compare(y.answered), x.since.Compare(y.since))
		}))
	}
	t.heard[a] = r
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
		r := t.heard[s.Router]
		r.asked, r.had = 0, true
		t.put(s.Router, r)
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
	maps.DeleteFunc(t.heard, func(a netip.Addr, r router) bool {
		return r.asked >= solicitations && (!t.session.Up || a != t.session.Router)
	})
	if t.left == 0 {
		if t.session.Up || now.Before(t.next.Add(askPause)) {
			return false
		}
		t.ask()
	}
	t.left--
	t.next = now.Add(askInterval)
	for a, r := range t.heard {
		r.asked++
		t.heard[a] = r
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

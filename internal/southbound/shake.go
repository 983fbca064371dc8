package southbound

import (
	"container/list"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// Handshakes at one time; each costs a signature.
	maxHandshakes = 256
	// Those of networks that no machine calls from: the others are the machines'.
	maxStrangeHandshakes = maxHandshakes / 2
	// Those of one address (of one /64 with IPv6): behind a translator there are many machines.
	maxHandshakesOfOne = 32
	// Those that wait. When there are more the oldest goes, of networks that no machine calls from while there is one.
	maxInLine = 1024
	// shakeWait is how long a handshake waits for others to end.
	shakeWait = 2 * time.Second
	// shakeGrace is after how long a handshake makes room for another: a client's answer comes within a round trip.
	shakeGrace = 500 * time.Millisecond
	// shakeTick is how often those that wait look whether one has had its time.
	shakeTick = shakeGrace / 10
)

// shakes are the handshakes under way, and those that wait. Who sends a first message and no more keeps nobody out:
// when there is no room, the oldest goes. Of those that wait, the networks with the fewest under way come first, and of
// these who came last: the first ones of a crowd may have given up.
type shakes struct {
	now func() time.Time // of a clock that nobody sets

	mu      sync.Mutex
	running *list.List           // of *shake, the oldest first
	strange int                  // of them
	one     map[netip.Prefix]int // of them, by network
	waiting []*shake             // in the order in which they came
	ticking bool
}

// shake is a handshake.
type shake struct {
	*greeting
	turn  chan struct{} // closed when it may begin
	out   chan struct{} // closed when it makes room among those that wait
	began time.Time
	at    *list.Element // among the running; nil: it waits, or has ended
}

func newShakes() *shakes {
	return &shakes{now: time.Now, running: list.New(), one: map[netip.Prefix]int{}}
}

// enter waits for a turn; leave ends it.
func (s *shakes) enter(from *greeting) (leave func(), err error) {
	it := &shake{greeting: from, turn: make(chan struct{}), out: make(chan struct{})}
	s.mu.Lock()
	s.stand(it)
	s.advance()
	s.mu.Unlock()
	timer := time.NewTimer(shakeWait)
	defer timer.Stop()
	select {
	case <-it.turn:
	case <-from.gone:
		err = errManyGreetings
	case <-it.out:
		err = errManyHandshakes
	case <-timer.C:
		err = errManyHandshakes
	}
	leave = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end(it)
		s.advance()
	}
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// stand has one wait, in another's place where there are too many. The lock is held.
func (s *shakes) stand(it *shake) {
	if len(s.waiting) >= maxInLine {
		oldest := max(0, slices.IndexFunc(s.waiting, func(w *shake) bool { return !w.known }))
		close(s.waiting[oldest].out)
		s.waiting = slices.Delete(s.waiting, oldest, oldest+1)
	}
	s.waiting = append(s.waiting, it)
}

// advance lets in who can begin. The lock is held.
func (s *shakes) advance() {
	for {
		next, victim := s.next()
		if next == nil {
			break
		}
		if victim != nil {
			s.end(victim)
			_ = victim.conn.Close()
		}
		s.begin(next)
	}
	if len(s.waiting) == 0 || s.ticking {
		return
	}
	s.ticking = true
	time.AfterFunc(shakeTick, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ticking = false
		s.advance()
	})
}

// next is who begins next, and who makes room for it, if somebody has to. It is nil when nobody can.
func (s *shakes) next() (next, victim *shake) {
	for i := len(s.waiting) - 1; i >= 0; i-- {
		it := s.waiting[i]
		if next != nil && s.one[it.network] >= s.one[next.network] {
			continue
		}
		if v, can := s.room(it); can {
			next, victim = it, v
		}
		if next != nil && s.one[next.network] == 0 {
			break
		}
	}
	return next, victim
}

// room says whether one can begin, and who goes for it.
func (s *shakes) room(it *shake) (victim *shake, can bool) {
	switch {
	case s.one[it.network] >= maxHandshakesOfOne:
		return s.oldest(func(v *shake) bool { return v.network == it.network })
	case !it.known && s.strange >= maxStrangeHandshakes:
		return s.oldest(func(v *shake) bool { return !v.known })
	case s.running.Len() >= maxHandshakes:
		return s.oldest(func(v *shake) bool { return it.known || !v.known })
	}
	return nil, true
}

// oldest is the first of the running that may go, and has had its time.
func (s *shakes) oldest(may func(*shake) bool) (*shake, bool) {
	for e := s.running.Front(); e != nil; e = e.Next() {
		v := e.Value.(*shake)
		if s.now().Sub(v.began) < shakeGrace {
			break
		}
		if may(v) {
			return v, true
		}
	}
	return nil, false
}

func (s *shakes) begin(it *shake) {
	s.leaveLine(it)
	it.began = s.now()
	it.at = s.running.PushBack(it)
	s.one[it.network]++
	if !it.known {
		s.strange++
	}
	close(it.turn)
}

// end takes one out of those that run or wait, if it is there.
func (s *shakes) end(it *shake) {
	if it.at == nil {
		s.leaveLine(it)
		return
	}
	s.running.Remove(it.at)
	it.at = nil
	decrease(s.one, it.network)
	if !it.known {
		s.strange--
	}
}

func (s *shakes) leaveLine(it *shake) {
	if i := slices.Index(s.waiting, it); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
}

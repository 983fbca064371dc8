package southbound

import (
	"container/list"
	"net/netip"
	"sync"
)

// strangers are the connections without a good certificate. They are few, and no network keeps the others out: when
// there is no room, the oldest of the network that has the most goes.
type strangers struct {
	most int

	mu  sync.Mutex
	n   int
	one map[netip.Prefix]*list.List // of *guardedConn, the oldest first
	at  map[*guardedConn]*list.Element
}

func newStrangers(most int) *strangers {
	return &strangers{most: most, one: map[netip.Prefix]*list.List{}, at: map[*guardedConn]*list.Element{}}
}

// enter counts a connection in, in the place of another one where need be.
func (s *strangers) enter(g *guardedConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= s.most {
		var largest *list.List
		for _, one := range s.one {
			if largest == nil || one.Len() > largest.Len() {
				largest = one
			}
		}
		if own := s.one[g.network]; largest == nil || own != nil && own.Len() >= largest.Len() {
			return errManyStrangers
		}
		oldest := largest.Front().Value.(*guardedConn)
		s.remove(oldest)
		go func() { _ = oldest.Close() }() // which may take as long as its client likes
	}
	if s.one[g.network] == nil {
		s.one[g.network] = list.New()
	}
	s.at[g] = s.one[g.network].PushBack(g)
	s.n++
	return nil
}

func (s *strangers) leave(g *guardedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(g)
}

func (s *strangers) remove(g *guardedConn) {
	it := s.at[g]
	if it == nil {
		return
	}
	delete(s.at, g)
	one := s.one[g.network]
	if one.Remove(it); one.Len() == 0 {
		delete(s.one, g.network)
	}
	s.n--
}

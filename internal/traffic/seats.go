package traffic

// quietTurns is after how many turns without counting anything a name makes room for another one: four hours where Prometheus asks each
// 15 s, and 25 minutes while viewers of top have samples taken each 1.5 s.
const quietTurns = 1000

// seats say which names have a series of their own: so many, those that come first. A name that counts something and has no seat
// takes that of a name that has been quiet for long, or else of a namespace that has more than one seat more than its own: the one that
// was given last. So all seats are used, and no namespace has them all.
type seats[K comparable] struct {
	most  int
	quiet int // turns; 0: quiet names keep their seats
	given map[K]*seat
	of    map[string]int // seats by namespace

	turns, count int
	settled      bool // nobody is quiet in this turn
	largest      int  // number of seats of one namespace; 0: to be found
}

type seat struct {
	namespace string
	number    int // in the order in which seats were given
	counted   int // turn
}

func newSeats[K comparable](most, quiet int) *seats[K] {
	return &seats[K]{most: most, quiet: quiet, given: map[K]*seat{}, of: map[string]int{}}
}

// turn says that all names come once more.
func (s *seats[K]) turn() { s.turns, s.settled = s.turns+1, false }

// has says whether a name has a seat, which it may be given now; counts says whether it has counted something since the last turn. Another
// name may have to go for it.
func (s *seats[K]) has(k K, namespace string, counts bool) (has bool, gone *K) {
	if at := s.given[k]; at != nil {
		if counts {
			at.counted = s.turns
		}
		return true, nil
	}
	if len(s.given) >= s.most {
		if counts {
			gone = s.yields(namespace)
		}
		if gone == nil {
			return false, nil
		}
		s.free(*gone)
	}
	s.count++
	s.given[k] = &seat{namespace: namespace, number: s.count, counted: s.turns}
	s.of[namespace]++
	s.largest = 0
	return true, gone
}

// free takes a seat back.
func (s *seats[K]) free(k K) {
	at := s.given[k]
	if at == nil {
		return
	}
	delete(s.given, k)
	if s.of[at.namespace]--; s.of[at.namespace] == 0 {
		delete(s.of, at.namespace)
	}
	s.largest = 0
}

// yields finds the name that makes room for one of a namespace; nil: none.
func (s *seats[K]) yields(namespace string) *K {
	if s.quiet > 0 && !s.settled {
		if k := s.find(func(a, b *seat) bool { return a.counted < b.counted || a.counted == b.counted && a.number < b.number }, nil); k != nil && s.turns-s.given[*k].counted >= s.quiet {
			return k
		}
		s.settled = true
	}
	if s.largest == 0 {
		for _, n := range s.of {
			s.largest = max(s.largest, n)
		}
	}
	if s.largest <= s.of[namespace]+1 {
		return nil
	}
	return s.find(func(a, b *seat) bool { return a.number > b.number }, func(at *seat) bool { return s.of[at.namespace] == s.largest })
}

// find is the first by an order, of those that are fit.
func (s *seats[K]) find(before func(a, b *seat) bool, fit func(*seat) bool) (first *K) {
	for k, at := range s.given {
		if (fit == nil || fit(at)) && (first == nil || before(at, s.given[*first])) {
			first = &k
		}
	}
	return first
}

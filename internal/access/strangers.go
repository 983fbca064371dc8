package access

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// strangersOfAll is how many tokens a second the API is asked about that nobody known has shown, and burstOfAll how many at once;
	// strangersOfOne and burstOfOne are those from one address.
	strangersOfAll, burstOfAll = 50, 200
	strangersOfOne, burstOfOne = 10, 50
	// maxAddresses is how many addresses are counted by themselves. Others count only among all.
	maxAddresses = 1024
	// retryAfter is after how many seconds it is worth to ask again.
	retryAfter = 2
	// knownFor is how long a token counts as known after the API has last said whose it is.
	knownFor = time.Hour
	// nobody is the name by which slots are counted of those whose name is not known. It is no name of a user.
	nobody = "\x00nobody"
)

// strangers bound how often the API is asked about tokens that were nobody's so far: a guess costs its sender nothing.
type strangers struct {
	mu  sync.Mutex
	all *rate.Limiter
	one map[netip.Prefix]*rate.Limiter
}

func newStrangers() *strangers {
	return &strangers{all: rate.NewLimiter(strangersOfAll, burstOfAll), one: map[netip.Prefix]*rate.Limiter{}}
}

// admit says whether the API may be asked for whoever is at an address; it is invalid for a plane, which has many callers.
func (s *strangers) admit(from netip.Addr, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.of(from, now); l != nil && !l.AllowN(now, 1) {
		return false // and takes nothing from others
	}
	return s.all.AllowN(now, 1)
}

// of is the limiter of an address, or of the network that one host of IPv6 has.
func (s *strangers) of(from netip.Addr, now time.Time) *rate.Limiter {
	bits := 32
	if from.Is6() {
		bits = 64
	}
	network, err := from.Prefix(bits)
	if err != nil || !network.IsValid() {
		return nil
	}
	l := s.one[network]
	if l != nil {
		return l
	}
	if len(s.one) >= maxAddresses {
		maps.DeleteFunc(s.one, func(_ netip.Prefix, l *rate.Limiter) bool { return l.TokensAt(now) >= burstOfOne })
	}
	if len(s.one) >= maxAddresses {
		return nil
	}
	l = rate.NewLimiter(strangersOfOne, burstOfOne)
	s.one[network] = l
	return l
}

// known are the tokens whose users the API has told. Strangers cannot fill it: nothing of theirs is in it.
type known struct {
	mu     sync.Mutex
	tokens map[key]knownToken
}

type knownToken struct {
	user string
	at   time.Time
}

func newKnown() *known { return &known{tokens: map[key]knownToken{}} }

// note keeps what the API says of a token.
func (n *known) note(k key, user string, known bool, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !known {
		delete(n.tokens, k)
		return
	}
	if _, is := n.tokens[k]; !is && len(n.tokens) >= maxKept {
		oldest := k
		for other, t := range n.tokens {
			if oldest == k || t.at.Before(n.tokens[oldest].at) {
				oldest = other
			}
		}
		delete(n.tokens, oldest)
	}
	n.tokens[k] = knownToken{user, now}
}

// user says whose a token was when the API was asked last.
func (n *known) user(k key, now time.Time) (name string, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, is := n.tokens[k]
	if !is || now.Sub(t.at) >= knownFor {
		return "", false
	}
	return t.user, true
}

package agent

import (
	"time"
)

// An Envoy that outlived the agent before may run a newer state than is remembered:
// the agent may have been killed before its last writes, or the disk may have been
// full. That Envoy lacks nothing while it waits, so what is remembered is kept from it
// until a plane has sent a whole state. If nobody knows that the memory is older, it
// waits at most withholdTime, so that an unfinished change ends without a plane too;
// otherwise for as long as it takes. A new Envoy has nothing, and is given what is
// remembered at once.
const withholdTime = 10 * time.Second

// withhold says whether an Envoy must wait for what is remembered; lives says that it
// brings clusters. The wait is over when the channel is closed, and at the time; zero:
// no time. granted must be called after it.
func (r *relay) withhold(lives bool) (over <-chan struct{}, until time.Time, wait bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.heard:
		return nil, time.Time{}, false
	default:
	}
	if !lives || !r.feed.Remembered() || !r.older && !r.now().Before(r.recalledAt.Add(r.withholdTime)) {
		return nil, time.Time{}, false
	}
	r.withheld++
	if !r.older {
		until = r.recalledAt.Add(r.withholdTime)
	}
	return r.heard, until, true
}

// hear notes that a plane has sent a whole state.
func (r *relay) hear() {
	select {
	case <-r.heard:
	default:
		close(r.heard)
	}
}

// granted ends a wait.
func (r *relay) granted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.withheld--
}

// withholds says why Envoy waits for what is remembered, empty if it does not.
func (r *relay) withholds() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.whole && !r.offers():
		return "the proxy serves nothing until a plane answers: the previous agent ran without a proxy and stored no configuration for one"
	case r.withheld == 0:
		return ""
	case r.older:
		return "the proxy keeps its configuration until a plane answers: the stored one is older"
	default:
		return "the proxy keeps its configuration until a plane answers, for " + r.withholdTime.String() + " at most: the stored one may be older"
	}
}

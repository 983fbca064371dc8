package agent

import (
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// renewAgain is how long a renewal that went wrong waits for the next try.
const renewAgain = time.Minute

// offeredAgain is how long an agent waits with the next try when a renewal did not bring what the
// plane says that it brings.
const offeredAgain = 10 * time.Minute

// membership is who the machine is to planes, as its certificate is renewed. Its methods may be called
// from any goroutine.
type membership struct {
	path    string // of the file
	now     func() time.Time
	random  *rand.Rand // planeLink waits while renewAt draws from it
	offers  signal     // the plane gives something else with a certificate now
	changed event      // the certificate is another one

	mu       sync.Mutex
	identity *identity
	renewal  time.Time      // before which no other renewal is tried
	offered  *agentv1.Trust // what the plane gives with a certificate now; nil: it does not say
	asked    time.Time      // when the certificate is renewed for that; zero: not drawn yet
}

func newMembership(c Config) *membership {
	return &membership{path: filepath.Join(c.DataDir, "identity", "identity.json"), now: c.Now, random: c.Rand, offers: newSignal()}
}

// current is the identity; nil while there is none.
func (c *membership) current() *identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.identity
}

// replace sets the identity of a machine that has joined.
func (c *membership) replace(id *identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.identity, c.renewal = id, time.Time{}
}

// forgetOffer notes that another plane is there, which has not said yet what it gives.
func (c *membership) forgetOffer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offered, c.asked = nil, time.Time{}
}

// issuer is who has signed the certificate that is kept; nil while there is none.
func (c *membership) issuer() []byte {
	if id := c.current(); id != nil {
		return id.trust.GetIssuer()
	}
	return nil
}

// offer notes what the plane gives with a certificate now.
func (c *membership) offer(t *agentv1.Trust) {
	c.mu.Lock()
	changed := c.offered == nil || !sameTrust(c.offered, t)
	if changed {
		// A renewal that did not bring what was offered before says nothing of this.
		c.offered, c.asked, c.renewal = t, time.Time{}, time.Time{}
	}
	c.mu.Unlock()
	if changed {
		c.offers.raise()
	}
}

// renewAt is when the certificate is renewed next: when two thirds of its life are over, or soon
// where the plane gives something else now; a while later after a renewal that went wrong.
func (c *membership) renewAt(id *identity) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := id.renewAt()
	if c.offered != nil && !sameTrust(c.offered, id.trust) {
		if c.asked.IsZero() {
			c.asked = c.now()
			if within := c.offered.GetWithin().AsDuration(); within > 0 {
				c.asked = c.asked.Add(time.Duration(c.random.Int64N(int64(within))))
			}
		}
		if c.asked.Before(at) {
			at = c.asked
		}
	}
	if c.renewal.After(at) {
		at = c.renewal
	}
	return at
}

// renewed notes what a renewal came to.
func (c *membership) renewed(fresh *identity, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.renewal = c.now().Add(renewAgain)
		return
	}
	c.identity, c.renewal = fresh, time.Time{}
	if c.offered != nil && !sameTrust(c.offered, fresh.trust) {
		c.renewal = c.now().Add(offeredAgain)
	}
	c.changed.raise()
}

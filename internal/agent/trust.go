package agent

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"slices"
	"time"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// offeredAgain is how long an agent waits with the next try when a renewal did not bring what the
// plane says that it brings.
const offeredAgain = 10 * time.Minute

// trustOf says who has signed a certificate, and which authorities came with it, in the form in
// which planes say it.
func trustOf(leaf *x509.Certificate, authorities []*x509.Certificate) *agentv1.Trust {
	t := &agentv1.Trust{}
	for _, c := range authorities {
		pin := pinOf(c)
		t.Authorities = append(t.Authorities, pin)
		if t.Issuer == nil && leaf.CheckSignatureFrom(c) == nil {
			t.Issuer = pin
		}
	}
	slices.SortFunc(t.GetAuthorities(), bytes.Compare)
	return t
}

// pinOf names an authority as tokens and planes do.
func pinOf(authority *x509.Certificate) []byte {
	sum := sha256.Sum256(authority.RawSubjectPublicKeyInfo)
	return sum[:]
}

// sameTrust says whether two certificates are of the same authority and come with the same ones.
func sameTrust(a, b *agentv1.Trust) bool {
	return bytes.Equal(a.GetIssuer(), b.GetIssuer()) && slices.EqualFunc(a.GetAuthorities(), b.GetAuthorities(), bytes.Equal)
}

// issuer is who has signed the certificate that is kept; nil while there is none.
func (u *upstream) issuer() []byte {
	if id := u.who(); id != nil {
		return id.trust.GetIssuer()
	}
	return nil
}

// offer notes what the plane gives with a certificate now.
func (u *upstream) offer(t *agentv1.Trust) {
	u.mu.Lock()
	changed := u.offered == nil || !sameTrust(u.offered, t)
	if changed {
		// A renewal that did not bring what was offered before says nothing of this.
		u.offered, u.asked, u.renewal = t, time.Time{}, time.Time{}
	}
	u.mu.Unlock()
	if changed {
		poke(u.news)
	}
}

// renewAt is when the certificate is renewed next: when two thirds of its life are over, or soon
// where the plane gives something else now; a while later after a renewal that went wrong.
func (u *upstream) renewAt(id *Identity) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := id.renewAt()
	if u.offered != nil && !sameTrust(u.offered, id.trust) {
		if u.asked.IsZero() {
			u.asked = u.now()
			if within := u.offered.GetWithin().AsDuration(); within > 0 {
				u.asked = u.asked.Add(time.Duration(u.random.Int64N(int64(within))))
			}
		}
		if u.asked.Before(at) {
			at = u.asked
		}
	}
	if u.renewal.After(at) {
		at = u.renewal
	}
	return at
}

// renewed notes what a renewal came to.
func (u *upstream) renewed(fresh *Identity, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		u.renewal = u.now().Add(renewAgain)
		return
	}
	u.identity, u.renewal = fresh, time.Time{}
	if u.offered != nil && !sameTrust(u.offered, fresh.trust) {
		u.renewal = u.now().Add(offeredAgain)
	}
	poke(u.report.changed)
}

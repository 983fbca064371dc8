package agent

import (
	"crypto/x509"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/gate/gatetest"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// rotate has a plane begin a rotation, and tell machines of it.
func (p *plane) rotate() *authority {
	next := newAuthority(p.t)
	next.clock = p.authority.clock
	trust := trustOf(next.cert, []*x509.Certificate{p.authority.cert, next.cert})
	p.with(func() { p.next, p.instruct = next, &agentv1.Instruction{Trust: trust} })
	return next
}

// TestRenewsForAnotherTrust: a machine renews its certificate as soon as the plane gives another one,
// with the same key, keeps the authorities that come with it, and renews no further.
func TestRenewsForAnotherTrust(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	path := filepath.Join(m.config.DataDir, "identity", "identity.json")
	a, stop := m.start()
	c, _ := p.call()
	c.must(t, whole(t, at(1, 1), 1)...)
	old, err := loadIdentity(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(a.planeLink.report.report().GetIssuer()) != string(old.trust.GetIssuer()) || len(old.trust.GetAuthorities()) != 1 {
		t.Errorf("before, it reports %x, and has %v", a.planeLink.report.report().GetIssuer(), old.trust)
	}

	next := p.rotate()
	c.end <- nil // the next stream tells it
	c, _ = p.call()
	c.must(t, responseOf(t, at(1, 2), gatetest.Cluster(t, "c1", "s1", 2)))
	eventually(t, "it is renewed", func() bool { return m.renewals("renewed") == 1 })
	fresh, err := loadIdentity(path)
	if err != nil {
		t.Fatal(err)
	}
	if fresh.Certificate.Leaf.CheckSignatureFrom(next.cert) != nil || len(fresh.authorities) != 2 || fresh.record.Key != old.record.Key {
		t.Errorf("it keeps %v, with the same key: %v", fresh.trust, fresh.record.Key == old.record.Key)
	}
	eventually(t, "it reports that", func() bool {
		return string(a.planeLink.report.report().GetIssuer()) == string(fresh.trust.GetIssuer())
	})

	// A plane that shows the first authority is known to it as before, also to an agent that starts.
	stop()
	a, _ = m.start()
	c, _ = p.call()
	c.must(t, responseOf(t, at(1, 3), gatetest.Cluster(t, "c1", "s1", 3)))
	eventually(t, "it is told again", func() bool {
		a.membership.mu.Lock()
		defer a.membership.mu.Unlock()
		return a.membership.offered != nil
	})
	if due := a.membership.renewAt(a.membership.current()); !due.Equal(fresh.renewAt()) || m.renewals("renewed") != 0 {
		t.Errorf("it is renewed again at %s, want %s", due, fresh.renewAt())
	}
}

// TestRenewalsAreSpread: machines that are told at once do not renew at once, and one that did not get
// what it was told of does not go on asking.
func TestRenewalsAreSpread(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	a, stop := m.start()
	c, _ := p.call()
	c.must(t, whole(t, at(1, 1), 1)...)
	stop()
	u, now := a.membership, p.authority.clock.Now()
	id := u.current()
	offer := &agentv1.Trust{Issuer: []byte("another"), Within: durationpb.New(time.Minute)}
	u.offer(offer)
	due := u.renewAt(id)
	if due.Before(now) || !due.Before(now.Add(time.Minute)) {
		t.Errorf("it renews %s from now, want within a minute", due.Sub(now))
	}
	u.offer(offer) // with every question of the plane's
	if again := u.renewAt(id); !again.Equal(due) {
		t.Errorf("told again, it renews at %s instead of %s", again, due)
	}
	u.renewed(id, nil)
	if due = u.renewAt(id); !due.Equal(now.Add(offeredAgain)) {
		t.Errorf("after a renewal that did not bring it, it renews %s from now", due.Sub(now))
	}
	u.offer(&agentv1.Trust{Issuer: []byte("a third"), Within: durationpb.New(time.Minute)})
	if due = u.renewAt(id); due.Before(now) || !due.Before(now.Add(time.Minute)) {
		t.Errorf("told of something else then, it renews %s from now, want within a minute", due.Sub(now))
	}
	u.offer(id.trust)
	u.renewed(id, nil)
	if due = u.renewAt(id); !due.Equal(id.renewAt()) {
		t.Errorf("with what it should have, it renews at %s, want %s", due, id.renewAt())
	}
}

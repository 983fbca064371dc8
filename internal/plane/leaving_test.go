package plane

import (
	"errors"
	"fmt"
	"testing"
	"time"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestLeavingIsNoticed tells a machine that leaves that all others have noticed when their
// kernels follow, and not when their agents have heard.
func TestLeavingIsNoticed(t *testing.T) {
	r := newRig(t)
	r.world()
	r.create(pool())
	p := r.plane("one").awaitReady()
	address := p.AgentAddress().String()
	var agents []*fakeAgent
	for i := range 3 {
		a := r.joined(p, fmt.Sprint("edge-", i+1))
		a.connect(address)
		agents = append(agents, a)
	}
	one, two := agents[0], agents[1]
	two.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=100/100 ready")
	two.with(func() { two.lags = true })
	one.with(func() { one.proxy, one.leaving = agentv1.Proxy_STATE_DRAINING, 7 })
	for _, a := range agents {
		a.awaitBackends(edge4, "edge-1=0/100 draining, edge-2=100/100 ready, edge-3=100/100 ready")
	}
	// Once the plane knows that the third one follows, it has heard of it after the second.
	eventually(t, "the third one follows", func() error {
		if s, _ := p.server.Machine("edge-3"); s.Carried.Number == 0 || s.Carried != s.Wanted {
			return fmt.Errorf("it carries %v of %v", s.Carried, s.Wanted)
		}
		return nil
	})
	eventually(t, "the second one has heard", func() error {
		if s, _ := p.server.Machine("edge-2"); s.Delivered != s.Wanted || s.Carried == s.Wanted {
			return fmt.Errorf("it holds %v and carries %v of %v", s.Delivered, s.Carried, s.Wanted)
		}
		return nil
	})
	one.with(func() {
		if one.left != 0 {
			t.Error("it was told too early: a kernel still sends it new flows")
		}
	})
	two.with(func() { two.lags = false })
	left := func(number uint64) {
		t.Helper()
		eventually(t, "the machine that leaves is told", func() (err error) {
			one.with(func() {
				if one.left != number {
					err = fmt.Errorf("it was told of %d", one.left)
				}
			})
			return err
		})
	}
	left(7)

	one.with(func() { one.proxy, one.leaving = agentv1.Proxy_STATE_READY, 0 })
	two.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=100/100 ready")
	one.with(func() { one.proxy, one.leaving = agentv1.Proxy_STATE_DRAINING, 8 })
	left(8)
}

// TestLeavingIsToldAfterReconnect tells a machine that leaves what came about while its
// stream was down.
func TestLeavingIsToldAfterReconnect(t *testing.T) {
	r := newRig(t)
	r.world()
	r.create(pool())
	p := r.plane("one").awaitReady()
	address := p.AgentAddress().String()
	one, two := r.joined(p, "edge-1"), r.joined(p, "edge-2")
	hangUp := one.connect(address)
	two.connect(address)
	two.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready")
	eventually(t, "the plane knows what the other one carries out", func() error {
		if s, _ := p.server.Machine("edge-2"); s.Carried.Number == 0 || s.Carried != s.Wanted {
			return fmt.Errorf("it carries %v of %v", s.Carried, s.Wanted)
		}
		return nil
	})
	two.with(func() { two.lags = true })
	one.with(func() { one.proxy, one.leaving = agentv1.Proxy_STATE_DRAINING, 7 })
	two.awaitBackends(edge4, "edge-1=0/100 draining, edge-2=100/100 ready")
	hangUp()
	eventually(t, "its streams end", func() error {
		if s, _ := p.server.Machine("edge-1"); s.Connected {
			return errors.New("they have not")
		}
		return nil
	})
	two.with(func() { two.lags = false })
	eventually(t, "the plane knows that the other one follows", func() error {
		if s, _ := p.server.Machine("edge-1"); s.Left != 7 {
			return fmt.Errorf("it says %d", s.Left)
		}
		return nil
	})
	one.connect(address)
	eventually(t, "the machine that leaves is told", func() (err error) {
		one.with(func() {
			if one.left != 7 {
				err = fmt.Errorf("it was told of %d", one.left)
			}
		})
		return err
	})
}

// TestMachineThatIsLostHasNotNoticed says nothing while nobody knows what a machine's kernel
// does: its agent may be away.
func TestMachineThatIsLostHasNotNoticed(t *testing.T) {
	r := newRig(t)
	r.world()
	r.create(pool())
	now := &clock{}
	p := r.plane("one", func(c *Config) { c.Now, c.TTL = now.Now, 20*time.Second }).awaitReady()
	address := p.AgentAddress().String()
	one, two, three := r.joined(p, "edge-1"), r.joined(p, "edge-2"), r.joined(p, "edge-3")
	one.connect(address)
	hangUp := two.connect(address)
	three.connect(address)
	three.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=100/100 ready")
	hangUp()
	eventually(t, "it is gone", func() error {
		if s, _ := p.server.Machine("edge-2"); s.Connected {
			return errors.New("it is not")
		}
		return nil
	})
	one.with(func() { one.proxy, one.leaving = agentv1.Proxy_STATE_DRAINING, 7 })
	three.awaitBackends(edge4, "edge-1=0/100 draining, edge-2=100/100 ready, edge-3=100/100 ready")
	eventually(t, "the others follow", func() error {
		for _, name := range []string{"edge-1", "edge-3"} {
			if s, _ := p.server.Machine(name); s.Carried.Number == 0 || s.Carried != s.Wanted {
				return fmt.Errorf("%s carries %v of %v", name, s.Carried, s.Wanted)
			}
		}
		return nil
	})
	one.with(func() {
		if one.left != 0 {
			t.Error("it was told, though nobody knows what edge-2 does")
		}
	})
	two.connect(address)
	eventually(t, "it is told once the last is back", func() (err error) {
		one.with(func() {
			if one.left != 7 {
				err = errors.New("not yet")
			}
		})
		return err
	})
}

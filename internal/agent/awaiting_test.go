package agent

import (
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
)

// awaitingVIP is one that is new at the machine, edge-1.
func awaitingVIP(machines ...string) model.VIP {
	v := bgpVIP(one, "http-80")
	v.Awaited = machines
	return v
}

const (
	awaitsOthers = "the VIP is new on this machine, and these machines are not ready for the flows that this machine forwards: edge-2, edge-3"
	awaitsItself = "the VIP is new on this machine, whose kernel is not ready for it yet"
)

func TestNewVIPAwaitsOthers(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, starts uint32, machines ...string) *announcing {
		a := newAnnouncing(t)
		a.becomes(proxyReady, starts)
		a.gives(vipChange(t, awaitingVIP(machines...)))
		a.whole()
		a.listens("http-80")
		return a
	}
	t.Run("until the plane says so", func(t *testing.T) {
		t.Parallel()
		a := begin(t, 1, "edge-1", "edge-2", "edge-3")
		a.says()
		a.told(one, model.VIPWithheld, awaitsOthers)
		a.gives(vipChange(t, awaitingVIP("edge-1")))
		a.says()
		a.told(one, model.VIPWithheld, awaitsItself)
		a.gives(vipChange(t, awaitingVIP()))
		a.says(one.String())
		a.gives(vipChange(t, awaitingVIP("edge-2"))) // of a plane that does not know it
		a.says(one.String())
		a.gives(delta.Change{Type: typeVIP, Name: wire.VIPName(one)}, vipChange(t, awaitingVIP("edge-1")))
		a.says() // it left, and is new again
	})
	t.Run("not for ever", func(t *testing.T) {
		t.Parallel()
		a := begin(t, 1, "edge-2", "edge-3")
		a.says()
		a.after(awaitTime - time.Second)
		if again := a.says(); again <= 0 || again > time.Second {
			t.Errorf("it looks again after %s, want a second", again)
		}
		a.after(time.Second)
		a.says(one.String())
		a.says(one.String())
	})
	t.Run("what peers may have kept is not withdrawn", func(t *testing.T) {
		t.Parallel()
		a := begin(t, 0, "edge-2", "edge-3") // the proxy of the agent before
		a.begin()
		a.says("-")
		a.after(beginGrace)
		a.says(one.String())
	})
	t.Run("a machine that takes long to join waits all the same", func(t *testing.T) {
		t.Parallel()
		a := newAnnouncing(t)
		a.becomes("starting", 0)
		a.begin()
		a.apply()
		a.after(beginGrace + time.Second)
		a.apply()
		a.becomes(proxyReady, 0)
		a.gives(vipChange(t, awaitingVIP("edge-2", "edge-3")))
		a.whole()
		a.listens("http-80")
		a.says()
		a.told(one, model.VIPWithheld, awaitsOthers)
		a.gives(vipChange(t, awaitingVIP()))
		a.says(one.String())
	})
}

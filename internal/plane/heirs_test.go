package plane

import (
	"fmt"
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/translate"
)

// TestLateHeirHasItsTime: where another machine than at first is to announce, it has as long as the
// first had, once.
func TestLateHeirHasItsTime(t *testing.T) {
	l, clock := bareLoop(), &clock{}
	l.plane.config.Now = clock.Now
	d := &deferral{since: clock.Now()}
	for i, step := range []struct {
		after time.Duration
		heirs []string
		over  bool
	}{
		{0, []string{"edge-2"}, false},
		{handoverTime - time.Second, []string{"edge-3"}, false},
		{handoverTime - time.Second, []string{"edge-2", "edge-3"}, false},
		{time.Second, []string{"edge-2"}, true},
	} {
		clock.jump(step.after)
		if got := l.isOver(d, step.heirs); got != step.over {
			t.Errorf("step %d: it is over: %v", i, got)
		}
	}
}

// TestHeirsWithoutEnd: machines that come one after another, and do not announce, hold up nothing for ever.
func TestHeirsWithoutEnd(t *testing.T) {
	l, clock := bareLoop(), &clock{}
	l.plane.config.Now = clock.Now
	d := &deferral{since: clock.Now()}
	began := clock.Now()
	for i := 0; !l.isOver(d, []string{fmt.Sprint("edge-", i)}); i++ {
		clock.jump(handoverTime - 5*time.Second)
		if clock.Now().Sub(began) > handoverMost+handoverTime {
			t.Fatal("it is never over")
		}
	}
	if took := clock.Now().Sub(began); took < handoverMost {
		t.Errorf("it is over after %s", took)
	}
}

// TestCordonWaitsForNobodyLostBefore: a machine that was lost when another was cordoned is not waited for,
// one that is lost since then is.
func TestCordonWaitsForNobodyLostBefore(t *testing.T) {
	for _, before := range []bool{true, false} {
		l := bareLoop()
		l.snapshot = snapshot.New()
		l.plane.serving.Store(1)
		l.has("edge-1", true, true)
		l.has("edge-2", false, false)
		l.network.assignments[vip4] = &model.Assignment{Address: vip4, Machines: []string{"edge-1", "edge-2"}}
		c := &cordon{deferral{since: time.Now()}, []model.VIPKey{{Machine: "edge-1", Address: vip4}}}
		l.handover.cordons["edge-1"] = c
		lose := func() {
			state := l.peeked["edge-2"]
			state.Lost = true
			l.peeked["edge-2"] = state
		}
		if before {
			lose()
		}
		update := southbound.Update{Machine: map[string][]delta.Change{}}
		l.releaseVIPs(&update)
		lose()
		l.releaseVIPs(&update)
		if waits := c.relieved.IsZero(); waits == before {
			t.Errorf("lost before: %v, it is waited for: %v", before, waits)
		}
	}
}

// TestLocalHeirs: where backends are to be on the machine, a cordon waits for no machine without one.
func TestLocalHeirs(t *testing.T) {
	l := bareLoop()
	l.has("edge-1", false, true)
	l.has("edge-2", false, false)
	l.network.assignments[vip4] = &model.Assignment{Address: vip4, Machines: []string{"edge-1", "edge-2"}}
	web := model.FrontendKey{VIP: vip4, Transport: model.TCP, Port: 80}
	l.frontends.note(translate.Changes{Frontends: map[model.FrontendKey]*model.Frontend{web: {FrontendKey: web, LocalOnly: true, Machines: []string{"edge-1", "edge-2"}}}})
	v := &model.VIP{Address: vip4, Mode: model.AnnounceBGP, Frontends: []model.FrontendKey{web}}
	for _, c := range []struct {
		machine string
		weight  uint32
		wait    heirs
		heir    bool
	}{
		{"edge-1", 100, forHeard, false},
		{"edge-2", 100, forHeard, true},
		{"edge-2", 0, forKnown, true},
		{"edge-1", 100, forAll, true},
	} {
		l.frontends.entries[web].backends = []model.FrontendBackend{{Machine: c.machine, Weight: c.weight}}
		if got := l.isLast(model.VIPKey{Machine: "edge-1", Address: vip4}, v, nil, c.wait); got != c.heir {
			t.Errorf("%+v: edge-1 waits for edge-2: %v", c, got)
		}
	}
}

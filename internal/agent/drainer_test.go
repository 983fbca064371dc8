package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// busyProxy is a proxy with connections.
type busyProxy struct {
	mu          sync.Mutex
	connections uint64
	taken       uint64
	draining    bool
	drained     int // how often it was told to
	asked       int
	broken      error
}

func (p *busyProxy) Drain(_ context.Context, on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return p.broken
	}
	if p.draining = on; on {
		p.drained++
	}
	return nil
}

func (p *busyProxy) Connections(context.Context) (open, taken uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return p.connections, p.taken, nil
}

func (p *busyProxy) has(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connections = n
}

func (p *busyProxy) breaks() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = errors.New("it does not answer")
}

func (p *busyProxy) is(draining bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draining == draining
}

func (p *busyProxy) mends() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = nil
}

// waited says that the drainer has looked at connections n times.
func (p *busyProxy) waited(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked >= n
}

// draining is an announcer at work with one VIP, and its drainer.
type draining struct {
	*announcing
	drainer *drainer
	busy    *busyProxy
	done    chan struct{} // closed when the drainer's run has returned
}

// newDraining starts both with a machine that is cordoned or not.
func newDraining(t *testing.T, cordoned bool, limit time.Duration, planes ...*fakePlane) *draining {
	t.Helper()
	d := &draining{announcing: newBalancing(t, planes...), busy: &busyProxy{connections: 3}, done: make(chan struct{})}
	d.drainer = d.agent.drainer
	d.drainer.proxy, d.drainer.log = d.busy, slog.New(slog.DiscardHandler)
	d.gives(vipChange(t, bgpVIP(one, "http-80")))
	d.cordon(cordoned, limit)
	d.whole()
	d.listens("http-80")
	ctx, cancel := context.WithCancel(context.Background())
	d.drainer.begin()
	var announcing sync.WaitGroup
	announcing.Go(func() { _ = d.run(ctx) })
	announcing.Go(func() { _ = d.balancer.run(ctx) })
	go func() {
		defer close(d.done)
		_ = d.drainer.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-d.done
		announcing.Wait()
	})
	return d
}

func (d *draining) cordon(on bool, limit time.Duration) {
	d.gives(delta.Change{Type: typeMachine, Name: "edge-1", Resource: gatetest.Pack(d.t, "edge-1",
		&agentv1.MachineConfig{Cordoned: on, DrainTime: durationpb.New(limit)})})
}

// prefixes are how many the speaker was last told, -1 for nothing at all.
func (d *draining) prefixes() (n int) {
	d.with(func() {
		if n = -1; len(d.spoken) > 0 {
			n = len(d.spoken[len(d.spoken)-1].Prefixes)
		}
	})
	return n
}

func (d *draining) withdrawn() bool {
	n := 0
	d.with(func() { n = d.withdrew })
	return n > 0 && d.prefixes() == 0
}

// Where the other machines pass flows on to here, nothing breaks by withdrawing, and no
// new flow comes while it waits.
func TestCordonWithdrawsFirstWhereFlowsArePassedOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode     model.ForwardMode
		machines []string
		decaps   bool
		first    bool
	}{
		"passed on":            {model.ModeDSRGeneve, []string{"edge-1", "edge-2"}, true, true},
		"by a machine too old": {model.ModeDSRGeneve, []string{"edge-1", "edge-2"}, false, false},
		"rewritten":            {model.ModeNAT, []string{"edge-1", "edge-2"}, true, false},
		"nobody else is there": {model.ModeDSRGeneve, []string{"edge-1"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDraining(t, false, time.Hour, &fakePlane{kind: model.DataPlaneXDP, mode: c.mode})
			vip := bgpVIP(one, "http-80")
			vip.Frontends = []model.FrontendKey{web}
			f := frontendOn(web, c.machines...)
			f.Listener = "http-80"
			f.NewFlows = 1000 // so that a machine alone has a data plane too
			d.gives(append(frontendChanges(t, f, proxies(web, c.machines...)...), nodeChange(t, model.Node{Name: "edge-2", Decaps: c.decaps}), vipChange(t, vip))...)
			eventually(t, "it announces", func() bool { return d.prefixes() == 1 })
			d.cordon(true, time.Hour)
			if c.first {
				eventually(t, "it withdraws and waits", func() bool { return d.withdrawn() && d.busy.is(true) && d.busy.waited(2) })
			} else {
				eventually(t, "it waits for the connections", func() bool { return d.busy.is(true) && d.busy.waited(2) })
				if d.prefixes() != 1 {
					t.Error("it withdrew while there were connections")
				}
			}
			d.cordon(false, time.Hour) // before the end
			eventually(t, "it announces again", func() bool { return d.prefixes() == 1 && d.busy.is(false) })
			d.cordon(true, time.Hour)
			d.busy.has(0)
			eventually(t, "it is out", func() bool { return d.withdrawn() })
		})
	}
}

func TestCordonDrainsBeforeItWithdraws(t *testing.T) {
	t.Parallel()
	d := newDraining(t, false, time.Hour)
	eventually(t, "it announces", func() bool { return d.prefixes() == 1 })
	d.cordon(true, time.Hour)
	eventually(t, "it waits for the connections", func() bool { return d.busy.is(true) && d.busy.waited(2) })
	if d.prefixes() != 1 {
		t.Error("it withdrew while there were connections")
	}
	d.busy.has(0)
	eventually(t, "it withdraws", d.withdrawn)
	eventually(t, "the VIP says why", func() bool { return d.observed()[0].Message == "the machine is drained" })

	d.cordon(false, time.Hour)
	eventually(t, "it announces again", func() bool { return d.prefixes() == 1 && d.busy.is(false) })
}

func TestDrainTimeIsTheLimit(t *testing.T) {
	t.Parallel()
	d := newDraining(t, false, time.Nanosecond)
	eventually(t, "it announces", func() bool { return d.prefixes() == 1 })
	d.cordon(true, time.Nanosecond)
	eventually(t, "it withdraws though there are connections", d.withdrawn)
	if !d.busy.is(true) {
		t.Error("connections were not told to end")
	}
}

func TestUncordonWhileItDrains(t *testing.T) {
	t.Parallel()
	d := newDraining(t, false, time.Hour)
	eventually(t, "it announces", func() bool { return d.prefixes() == 1 })
	d.cordon(true, time.Hour)
	eventually(t, "it drains", func() bool { return d.busy.waited(1) })
	d.cordon(false, time.Hour)
	eventually(t, "it does not drain any more", func() bool { return d.busy.is(false) })
	if d.withdrawn() || d.prefixes() != 1 {
		t.Error("it withdrew")
	}
	d.cordon(true, time.Hour) // and it can be done again
	d.busy.has(0)
	eventually(t, "it withdraws", d.withdrawn)
}

func TestProxyThatCannotBeToldToDrain(t *testing.T) {
	t.Parallel()
	d := newDraining(t, false, time.Hour)
	d.busy.breaks()
	eventually(t, "it announces", func() bool { return d.prefixes() == 1 })
	d.cordon(true, time.Hour)
	eventually(t, "it withdraws at once", d.withdrawn)
}

// TestProxyThatWasLeftDraining by an agent that was killed takes traffic again, as soon as it answers.
func TestProxyThatWasLeftDraining(t *testing.T) {
	t.Parallel()
	d, busy := newAnnouncing(t).agent.drainer, &busyProxy{draining: true}
	d.proxy = busy
	busy.breaks()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = d.run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	busy.mends()
	eventually(t, "it takes traffic again", func() bool { return busy.is(false) })
}

// TestStartOfACordonedMachine announces nothing, not for a moment.
func TestStartOfACordonedMachine(t *testing.T) {
	t.Parallel()
	d := newDraining(t, true, time.Hour)
	eventually(t, "it speaks with its peers", func() bool { return d.prefixes() == 0 })
	d.with(func() {
		for _, s := range d.spoken {
			if len(s.Prefixes) > 0 {
				t.Errorf("it announced %v", s.Prefixes)
			}
		}
	})
	d.cordon(false, time.Hour)
	eventually(t, "it announces", func() bool { return d.prefixes() == 1 && d.busy.is(false) })
}

// TestStopWhileItDrains leaves the routes to who stops the agent.
func TestStopWhileItDrains(t *testing.T) {
	t.Parallel()
	d := newDraining(t, false, time.Hour)
	eventually(t, "it announces", func() bool { return d.prefixes() == 1 })
	d.cordon(true, time.Hour)
	eventually(t, "it drains", func() bool { return d.busy.waited(1) })
	d.drainer.halt()
	if d.withdrawn() || d.prefixes() != 1 {
		t.Error("it withdrew while there were connections")
	}
	d.busy.has(0)
	if !d.drainer.leave(t.Context(), func() bool { return false }) || !d.withdrawn() {
		t.Error("it does not leave in order")
	}
}

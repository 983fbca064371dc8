package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// quietEvery is how often a draining proxy is asked for its connections: for each answer
	// it looks at all its statistics.
	quietEvery = 100 * time.Millisecond
	// quietLooks is how often in a row it must have none: between two of many short ones
	// there is none either.
	quietLooks = 4
	// undoEvery is how often a proxy that does not answer is told again to take traffic.
	undoEvery = time.Second
)

// drainer takes a machine out of the traffic and back in: kept-alive connections end,
// what is under way finishes within the drain time, and only then the routers are told
// to send nothing more. The other way round would break what is under way: a router that
// loses a path moves its flows to machines that do not know them.
//
// Where those machines pass the flows on to here, the routers are told first: it breaks
// nothing, and the machine gets no new flow while it waits.
type drainer struct {
	proxy     Drainer // nil: connections are left to end by themselves
	announcer *announcer
	balancer  *balancer
	log       *slog.Logger
	news      signal        // the machine may be cordoned or not
	halting   chan struct{} // closed by halt
	ended     chan struct{} // closed when run has ended
	out       bool          // it is out of the traffic; begin and run use it

	mu     sync.Mutex
	config *agentv1.MachineConfig
}

func newDrainer(c Config, b *balancer, a *announcer) *drainer {
	return &drainer{
		proxy: c.Drainer, announcer: a, balancer: b, log: c.Log,
		news: newSignal(), halting: make(chan struct{}), ended: make(chan struct{}), config: &agentv1.MachineConfig{},
	}
}

// receive implements part. All that is drained by is the machine's config.
func (d *drainer) receive(delta.Change) error { return nil }

// commit implements part.
func (d *drainer) commit(got received) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config = got.config
	d.news.raise()
}

// report implements part. A machine that leaves says that its proxy drains before that does.
func (d *drainer) report(to *agentv1.Report) {
	to.Leaving = d.balancer.leavesAs()
	if to.Leaving > 0 && to.GetProxy().GetState() == agentv1.Proxy_STATE_READY {
		to.Proxy.State = agentv1.Proxy_STATE_DRAINING
	}
}

// settings are the machine's.
func (d *drainer) settings() *agentv1.MachineConfig {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.config
}

// begin notes whether the machine was cordoned before this agent. Call it before the
// announcer and the drainer run: one that is must not announce for a moment.
func (d *drainer) begin() {
	if d.out = d.settings().GetCordoned(); d.out {
		d.announcer.quit() // the agent before this one has seen to the connections
		d.balancer.leave(true)
	}
}

// halt ends run, and returns when it has ended: nothing is taken back from then on.
func (d *drainer) halt() {
	close(d.halting)
	<-d.ended
}

// run implements part: it follows what the plane says until halt, or until ctx is done.
func (d *drainer) run(ctx context.Context) error {
	defer close(d.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-d.halting:
			cancel()
		case <-ctx.Done():
		}
	}()
	// An agent that was killed while it drained left the proxy closing connections.
	undo := time.After(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-undo:
			if undo = nil; !d.out && d.proxy != nil && d.proxy.Drain(ctx, false) != nil {
				undo = time.After(undoEvery)
			}
			continue
		case <-d.news:
		}
		switch cordoned := d.settings().GetCordoned(); {
		case cordoned == d.out:
		case cordoned:
			if d.out = d.leave(ctx, func() bool { return !d.settings().GetCordoned() }); !d.out {
				undo = time.After(0)
			}
		default:
			undo, d.out = time.After(0), false
			d.balancer.leave(false)
			d.announcer.resume()
			d.log.Info("the machine accepts traffic again")
		}
	}
}

// leave takes the machine out of the traffic. When recalled says so before the end it
// returns false, and the proxy is to be told to take traffic again.
func (d *drainer) leave(ctx context.Context, recalled func() bool) bool {
	limit := d.limit()
	d.balancer.leave(true)
	// Before a router moves a flow, this machine's kernel lets no new one begin here.
	if !until(ctx, releaseTime, lookEvery, recalled, d.balancer.isCarried) && ctx.Err() == nil && !recalled() {
		d.log.Warn("new flows may still reach this machine's proxy: its data planes have not applied the drain yet")
	}
	breaks := d.announcer.survives()
	if breaks == "" {
		d.log.Info("draining: announced VIPs, if any, are withdrawn, and other machines forward the remaining flows to this machine", "limit", limit)
		d.withdraw(ctx)
	} else {
		d.log.Info("draining: each connection closes after its current response", "limit", limit, "announced", breaks)
	}
	if d.quieten(ctx) {
		d.wait(ctx, limit, recalled)
	}
	if ctx.Err() != nil {
		return false // who stops the agent decides what becomes of the routes
	}
	if recalled() {
		d.balancer.leave(false)
		d.announcer.resume()
		return false
	}
	if breaks != "" {
		d.withdraw(ctx)
	}
	d.log.Info("drained: no VIP is announced")
	return true
}

// limit is how long connections may take to end.
func (d *drainer) limit() time.Duration {
	if t := d.settings().GetDrainTime(); t != nil {
		return t.AsDuration()
	}
	return defaultDrain
}

func (d *drainer) quieten(ctx context.Context) bool {
	if d.proxy == nil {
		return false
	}
	err := d.proxy.Drain(ctx, true)
	if err != nil && ctx.Err() == nil {
		d.log.Warn("cannot drain the proxy's connections", "error", err)
	}
	return err == nil
}

// withdraw takes everything back, and returns when routers have followed: when nothing comes
// any more that no other machine has passed on.
func (d *drainer) withdraw(ctx context.Context) {
	if !d.announcer.withdraw(ctx) {
		return
	}
	if !silence(ctx, afterWithdraw, followTime, func() (uint64, bool) { return d.coming(ctx) }) && ctx.Err() == nil {
		d.log.Warn("packets still arrive for withdrawn VIPs: a router has not applied the withdrawal, or a host has its own route to this machine", "waited", followTime)
	}
}

// coming is how much came so far: packets where a data plane counts them, else connections.
func (d *drainer) coming(ctx context.Context) (uint64, bool) {
	if n, known := d.balancer.arrived(ctx); known {
		return n, true
	}
	if d.proxy == nil {
		return 0, false
	}
	_, taken, err := d.proxy.Connections(ctx)
	return taken, err == nil
}

// awaitOthers waits, after leave, until the machine's kernel may let go of everything: no other
// machine sends new flows here, and those that were here have ended. It says whether that
// is so of the others. hears says that a plane is there to tell them.
func (d *drainer) awaitOthers(ctx context.Context, hears func() bool) (noticed bool) {
	noticed = until(ctx, noticeTime, lookEvery, func() bool { return !hears() }, d.balancer.isNoticed)
	// What began before they had noticed.
	d.wait(ctx, d.limit(), func() bool { return false })
	return noticed
}

// vacate waits until other machines send no flow through a tunnel to backends on this one, and
// says whether that is so. The plane lists a backend until its drain time is over, by its own
// clock. One that takes new flows is not waited for: it may for ever.
func (d *drainer) vacate(ctx context.Context) bool {
	return until(ctx, d.limit()+noticeTime, quietEvery, func() bool { return d.balancer.houses() == housesNew }, func() bool { return d.balancer.houses() == housesNone })
}

// connections that clients have: of the proxy, and in the kernel, which has those that the
// proxy has not taken yet, and those of which the last bytes are on their way.
func (d *drainer) connections(ctx context.Context) (n uint64, err error) {
	if d.proxy != nil {
		if n, _, err = d.proxy.Connections(ctx); err != nil || n > 0 {
			return n, err
		}
	}
	open, err := d.balancer.open()
	return uint64(open), err
}

// wait returns when there is no connection, or the limit is over.
func (d *drainer) wait(ctx context.Context, limit time.Duration, recalled func() bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for seen := 0; !recalled(); {
		if n, err := d.connections(ctx); err != nil || n > 0 {
			seen = 0
		} else if seen++; seen == quietLooks {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(quietEvery):
		}
	}
}

// silence returns once nothing has come for a time, at most after limit. count is what came
// so far; false if that is not known now.
func silence(ctx context.Context, quiet, limit time.Duration, count func() (uint64, bool)) (silent bool) {
	last, known := count()
	since := time.Now()
	return until(ctx, limit, quietEvery, nil, func() bool {
		n, is := count()
		if n != last || is != known {
			last, known, since = n, is, time.Now()
		}
		return time.Since(since) >= quiet
	})
}

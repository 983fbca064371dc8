package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/internal/agent/health"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// releaseTime is what data planes get to take everything out of the kernel, after they
// have done for the first time what they are to do.
const releaseTime = 10 * time.Second

// balancer has the machine's data planes balance what the plane says. It never holds up
// the plane's stream, and none of its troubles ends the agent.
//
// Only run's goroutine changes data planes and asks for tunnels and interfaces. Figures, flows
// and arrivals are asked for by whoever needs them. What reports and announcements say is noted
// under mu. Nobody holds mu while a data plane is asked: a slow kernel does not make a machine
// lost.
type balancer struct {
	machine string
	drivers Balancing
	relay   *relay
	log     *slog.Logger
	now     func() time.Time
	changed event         // what a report or an announcement says may differ
	news    signal        // something is to be done
	checked signal        // the machine found something else about backends
	asks    signal        // the data planes are to be asked anew about the machine
	known   chan struct{} // closed once they were asked
	emptied signal        // release has been carried out
	// proxyDrain is how long the proxy takes to end connections gently.
	proxyDrain time.Duration
	partings   partings // of run's goroutine
	cut        atomic.Uint64
	endTime    time.Duration // what data planes get to end

	mu        sync.Mutex
	whole     bool           // there is a whole state to balance by
	point     delta.Revision // the last checkpoint that was received
	rows      *health.Rows   // which know health where the plane does not
	frontends map[model.FrontendKey]*model.Frontend
	backends  map[model.FrontendKey][]model.FrontendBackend
	nodes     map[string]*model.Node
	vips      map[string]model.VIP           // that the machine has
	stale     map[model.FrontendKey]struct{} // to be joined anew
	nodesNew  bool                           // nodes differ from shared
	shared    map[string]*model.Node         // what data planes have been handed; never changed
	joined    map[model.FrontendKey]*entry
	proxy     string // why this machine's proxy serves nothing; "" when it serves
	leaving   bool   // this machine's proxy is to get no new flow
	progress  progress
	released  bool                        // nothing is balanced any more
	began     bool                        // joined is what the plane has said
	busy      map[model.DataPlaneKind]int // calls that data planes have not returned from
	hung      []string                    // data planes that the agent ended without
	moved     bool                        // what is observed may differ
	drives    []drive
}

func newBalancer(c Config, own func(check string) health.Finding, relay *relay) *balancer {
	b := &balancer{
		machine: c.Name, drivers: c.Balancing, relay: relay, log: c.Log, now: c.Now, rows: health.NewRows(own),
		news: newSignal(), checked: newSignal(), asks: newSignal(), known: make(chan struct{}), emptied: newSignal(), proxyDrain: cmp.Or(c.ProxyDrain, defaultDrain), partings: partings{},
		frontends: map[model.FrontendKey]*model.Frontend{}, backends: map[model.FrontendKey][]model.FrontendBackend{},
		nodes: map[string]*model.Node{}, vips: map[string]model.VIP{}, shared: map[string]*model.Node{}, stale: map[model.FrontendKey]struct{}{},
		progress: progress{parting: map[model.FrontendKey]uint32{}},
		endTime:  endTime, busy: map[model.DataPlaneKind]int{},
		joined: map[model.FrontendKey]*entry{}, drives: make([]drive, len(c.Balancing.Planes)),
	}
	if b.drivers.Changed == nil {
		b.drivers.Changed = make(chan struct{}, 1)
	}
	return b
}

// receive implements part.
func (b *balancer) receive(c delta.Change) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch c.Type {
	case typeVIP:
		return b.receiveVIP(c)
	case typeNode:
		return b.receiveNode(c)
	}
	key, err := model.ParseFrontend(c.Name)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if c.Type == typeFrontend {
		return b.receiveFrontend(key, c)
	}
	return b.receiveBackends(key, c)
}

// reassess has the data planes follow what this machine itself finds of backends, where the
// plane does not know it or is away. It is not remembered.
func (b *balancer) reassess() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, list := range b.rows.Again() {
		b.backends[key] = list
		b.stale[key] = struct{}{}
		b.progress.told++
	}
}

// commit implements part.
func (b *balancer) commit(got received) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.whole, b.point = got.whole, got.checkpoint
	b.news.raise()
}

// receiveFrontend notes what the plane wants of a frontend.
func (b *balancer) receiveFrontend(key model.FrontendKey, c delta.Change) error {
	var f *model.Frontend
	if c.Resource == nil {
		delete(b.frontends, key)
	} else {
		var m agentv1.Frontend
		err := unmarshal(c.Resource, &m)
		if err != nil {
			return err
		}
		if f, err = wire.FrontendOf(c.Name, &m); err != nil {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		b.frontends[key] = f
	}
	if list, changed := b.rows.SetFrontend(key, f); changed {
		b.backends[key] = list
	}
	b.stale[key] = struct{}{}
	b.progress.told++
	return nil
}

// receiveBackends notes what the plane wants of the backends of a frontend.
func (b *balancer) receiveBackends(key model.FrontendKey, c delta.Change) error {
	if c.Resource == nil {
		b.rows.SetBackends(key, nil)
		delete(b.backends, key)
	} else {
		var m agentv1.FrontendBackends
		if err := unmarshal(c.Resource, &m); err != nil {
			return err
		}
		list, err := wire.FrontendBackendsOf(c.Name, &m)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		b.backends[key] = b.rows.SetBackends(key, list)
	}
	b.stale[key] = struct{}{}
	b.progress.told++
	return nil
}

func (b *balancer) receiveNode(c delta.Change) error {
	if c.Resource == nil {
		delete(b.nodes, c.Name)
	} else {
		var m agentv1.Node
		if err := unmarshal(c.Resource, &m); err != nil {
			return err
		}
		b.nodes[c.Name] = wire.NodeOf(c.Name, &m)
	}
	b.nodesNew = true
	b.progress.told++
	return nil
}

// run implements part: it balances until ctx is done. Data planes that do not return then are given up.
func (b *balancer) run(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.work(ctx)
	}()
	<-ctx.Done()
	select {
	case <-ended:
	case <-time.After(b.endTime):
		b.giveUp()
	}
	return nil
}

// work has the data planes balance until ctx is done and all of them have returned.
func (b *balancer) work(ctx context.Context) {
	var planes sync.WaitGroup
	defer planes.Wait()
	for _, p := range b.drivers.Planes {
		planes.Go(func() {
			defer b.enter(p.Kind)()
			if err := p.Run(ctx); err != nil && ctx.Err() == nil {
				b.log.Error("a data plane has stopped; its load balancing in the kernel stays as it is", "data_plane", p.Kind, "error", err)
			}
		})
	}
	b.ask()
	close(b.known)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-b.news:
		case <-b.checked:
			b.reassess()
		case <-b.drivers.Changed:
			b.look()
		case <-b.asks:
			if b.ask() {
				b.changed.raise()
			}
			continue
		}
		if again := b.apply(); again > 0 {
			timer.Reset(again)
		}
	}
}

// apply has the data planes do what is wanted now, and returns when to look again; 0: not
// before something happens.
func (b *balancer) apply() (again time.Duration) {
	listening := b.relay.listening(b.listeners())
	moved := b.ask()
	b.mu.Lock()
	b.moved = b.moved || moved
	released, told, whole := b.released, b.progress.told, b.whole
	b.mu.Unlock()
	if !whole && !released {
		return 0 // it is not known yet what of an earlier agent's is to go
	}
	// Each round moves what a data plane could not carry out to the next one.
	for range len(b.drivers.Planes) + 1 {
		now := b.now()
		answers := b.inquire(now)
		b.mu.Lock()
		var whole bool
		if again, whole = b.join(now, answers); !whole && !b.began {
			b.mu.Unlock()
			return again // a data plane takes out of the kernel what it is not told of
		}
		wants := b.wanted(listening)
		b.mu.Unlock()
		if left := b.drive(wants, now); left > 0 && (again == 0 || left < again) {
			again = left
		}
		if !b.decline() {
			break
		}
	}
	if left := b.part(b.now()); left > 0 && (again == 0 || left < again) {
		again = left
	}
	if released {
		b.emptied.raise()
	}
	b.mu.Lock()
	if b.progress.carried != told && !slices.ContainsFunc(b.drives, func(d drive) bool { return d.behind }) {
		b.progress.carried, b.moved = told, true
	}
	moved = b.moved || !b.began
	b.moved, b.began = false, true
	b.mu.Unlock()
	if moved {
		b.changed.raise()
	}
	return again
}

// listeners are those that frontends lead to.
func (b *balancer) listeners() map[string]struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := map[string]struct{}{}
	for _, f := range b.frontends {
		if f.Listener != "" {
			names[string(f.Listener)] = struct{}{}
		}
	}
	return names
}

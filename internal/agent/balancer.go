package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// driveAgain is how long the first try of a data plane that failed waits for the
	// second; it doubles up to driveMost.
	driveAgain = time.Second
	driveMost  = 30 * time.Second
	// releaseTime is what data planes get to take everything out of the kernel, after they
	// have done for the first time what they are to do.
	releaseTime = 10 * time.Second
	// askAgain is when a data plane that could not carry a frontend out is asked again:
	// an interface, a module or a right may have come.
	askAgain = time.Minute
)

// balancer has the machine's data planes balance what the plane says. It never holds up
// the plane's stream, and none of its troubles ends the agent.
//
// Only run's goroutine changes data planes and asks for tunnels and interfaces. Figures, flows
// and arrivals are asked for by whoever needs them. What reports and announcements say is noted
// under mu. Nobody holds mu while a data plane is asked: a slow kernel does not make a machine
// lost.
type balancer struct {
	machine string
	parts   Balancing
	state   *state
	log     *slog.Logger
	now     func() time.Time
	changed func() // what a report or an announcement says may differ
	news    chan struct{}
	asks    chan struct{} // the data planes are to be asked anew about the machine
	known   chan struct{} // closed once they were asked
	drained chan struct{} // gets a token when release has been carried out
	// proxyDrain is how long the proxy takes to end connections gently.
	proxyDrain time.Duration
	partings   partings // of run's goroutine
	cut        atomic.Uint64
	endTime    time.Duration // what data planes get to end

	mu        sync.Mutex
	frontends map[model.FrontendKey]*model.Frontend
	backends  map[model.FrontendKey][]model.FrontendBackend
	nodes     map[string]*model.Node
	vips      map[string]model.VIP           // that the machine has
	stale     map[model.FrontendKey]struct{} // to be joined anew
	nodesNew  bool                           // nodes differ from shared
	shared    map[string]*model.Node         // what data planes have been handed; never changed
	joined    map[model.FrontendKey]*place
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

// place is a frontend with its backends and the data plane that it is for.
type place struct {
	*model.Balanced
	here      bool // the VIP is: otherwise the machine has backends of it only
	available uint32
	// alone says that this machine's proxy is the only one, which needs no data plane.
	alone bool
	// plane is the data plane's place in Balancing.Planes, -1 for none.
	plane    int
	why      string         // what speaks against the data planes before it, or against all
	cannot   []error        // what the data planes say that they lack, by their place
	declined map[int]string // by data planes that were tried
	asked    time.Time      // when it was last asked whether they can
	// until is when what is no longer wanted ends; zero while it is wanted.
	until time.Time
}

// drive is what one data plane was told.
type drive struct {
	last   model.Balancing // that it took; its maps are never changed
	tried  bool
	err    error
	again  time.Time
	wait   time.Duration
	seen   map[model.FrontendKey]model.FrontendObserved
	behind bool // the kernel may lack something of what is wanted
	// tunnel and interfaces are what it said when it was last asked.
	tunnel     tunnelEnd
	interfaces []model.InterfaceObserved
}

func newBalancer(c Config, s *state, changed func()) *balancer {
	b := &balancer{
		machine: c.Name, parts: c.Balancing, state: s, log: c.Log, now: c.Now, changed: changed,
		news: make(chan struct{}, 1), asks: make(chan struct{}, 1), known: make(chan struct{}), drained: make(chan struct{}, 1), proxyDrain: cmp.Or(c.ProxyDrain, defaultDrain), partings: partings{},
		frontends: map[model.FrontendKey]*model.Frontend{}, backends: map[model.FrontendKey][]model.FrontendBackend{},
		nodes: map[string]*model.Node{}, vips: map[string]model.VIP{}, shared: map[string]*model.Node{}, stale: map[model.FrontendKey]struct{}{},
		progress: progress{parting: map[model.FrontendKey]uint32{}},
		endTime:  endTime, busy: map[model.DataPlaneKind]int{},
		joined: map[model.FrontendKey]*place{}, drives: make([]drive, len(c.Balancing.Planes)),
	}
	if b.parts.Changed == nil {
		b.parts.Changed = make(chan struct{}, 1)
	}
	return b
}

// take notes what the plane wants. An error is one to refuse the change with.
func (b *balancer) take(c delta.Change) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.progress.told++
	if c.Type == typeNode {
		return b.takeNode(c)
	}
	key, err := model.ParseFrontend(c.Name)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	switch {
	case c.Type == typeFrontend && c.Resource == nil:
		delete(b.frontends, key)
	case c.Type == typeFrontendBackends && c.Resource == nil:
		delete(b.backends, key)
	case c.Type == typeFrontend:
		var m agentv1.Frontend
		if err := unmarshal(c.Resource, &m); err != nil {
			return err
		}
		f, err := wire.FrontendOf(c.Name, &m)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		b.frontends[key] = f
	case c.Type == typeFrontendBackends:
		var m agentv1.FrontendBackends
		if err := unmarshal(c.Resource, &m); err != nil {
			return err
		}
		list, err := wire.FrontendBackendsOf(c.Name, &m)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		b.backends[key] = list
	}
	b.stale[key] = struct{}{}
	poke(b.news)
	return nil
}

func (b *balancer) takeNode(c delta.Change) error {
	defer poke(b.news)
	b.nodesNew = true
	if c.Resource == nil {
		delete(b.nodes, c.Name)
		return nil
	}
	var m agentv1.Node
	if err := unmarshal(c.Resource, &m); err != nil {
		return err
	}
	b.nodes[c.Name] = wire.NodeOf(c.Name, &m)
	return nil
}

// run balances until ctx is done. Data planes that do not return then are given up.
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
	for _, p := range b.parts.Planes {
		planes.Go(func() {
			defer b.enter(p.Kind)()
			if err := p.Run(ctx); err != nil && ctx.Err() == nil {
				b.log.Error("a data plane has ended; what it put into the kernel stays as it is", "data_plane", p.Kind, "error", err)
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
		case <-b.parts.Changed:
			b.look()
		case <-b.asks:
			if b.ask() {
				b.changed()
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
	// Asked before the lock is taken: the state calls take under its own.
	listening, serving := b.state.listening(b.listeners()), b.state.isServing()
	moved := b.ask()
	b.mu.Lock()
	b.moved = b.moved || moved
	released, told := b.released, b.progress.told
	b.mu.Unlock()
	if !serving && !released {
		return 0 // it is not known yet what of an earlier agent's is to go
	}
	// Each round moves what a data plane could not carry out to the next one.
	for range len(b.parts.Planes) + 1 {
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
		poke(b.drained)
	}
	b.mu.Lock()
	if b.progress.carried != told && !slices.ContainsFunc(b.drives, func(d drive) bool { return d.behind }) {
		b.progress.carried, b.moved = told, true
	}
	moved = b.moved || !b.began
	b.moved, b.began = false, true
	b.mu.Unlock()
	if moved {
		b.changed()
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

// join brings joined up to date and returns when the next of what lingers is over. Places
// of which the data planes were asked something else are left for the next time, at once; it is
// not whole then.
func (b *balancer) join(now time.Time, answers answers) (again time.Duration, whole bool) {
	b.moved, whole = b.moved || len(b.stale) > 0, true
	for key := range b.stale {
		was := b.joined[key]
		is := b.place(key)
		if is != nil && !answers.give(is) {
			again, whole = time.Millisecond, false
			continue
		}
		switch {
		case was != nil && was.here && (is == nil || !is.here):
			// Routers take a moment to follow, and so does what is on its way.
			if was.until.IsZero() {
				was.until = now.Add(linger)
			}
			if left := was.until.Sub(now); left > 0 && !b.released {
				if is != nil && !slices.Equal(was.Backends, is.Backends) { // its backends change meanwhile, and it sends new flows to none that leaves
					was.Balanced = &model.Balanced{Frontend: was.Frontend, Backends: is.Backends}
				}
				if again == 0 || left < again {
					again = left
				}
				continue // and stays stale
			}
			fallthrough
		case is == nil:
			if delete(b.joined, key); is != nil {
				b.joined[key] = is
			}
		default:
			if was != nil && was.Frontend == is.Frontend {
				is.declined = was.declined
			}
			b.joined[key] = is
		}
		delete(b.stale, key)
	}
	if b.nodesNew {
		b.shared, b.nodesNew = maps.Clone(b.nodes), false
	}
	for _, p := range b.joined {
		switch anew := p.due(now); {
		case anew && !answers.give(p):
			again = time.Millisecond
			continue
		case anew || p.asked.IsZero():
			if anew {
				p.declined = nil
			}
			p.asked, b.moved = now, true
			b.choose(p)
		}
		if p.refused() {
			if left := p.asked.Add(askAgain).Sub(now); again == 0 || left < again {
				again = max(left, time.Millisecond)
			}
		}
	}
	return again, whole
}

// place is what the plane has said of a frontend, nil while it is not all there.
func (b *balancer) place(key model.FrontendKey) *place {
	f, known := b.frontends[key]
	list, told := b.backends[key]
	if !known || !told || b.released {
		return nil
	}
	p := &place{Balanced: &model.Balanced{Frontend: f, Backends: list}, here: slices.Contains(f.Machines, b.machine), plane: -1}
	if f.LocalOnly && p.here {
		p.Backends = localOnly(list, b.machine)
	}
	p.alone = p.here && f.Listener != ""
	for _, x := range p.Backends {
		if x.Weight > 0 && x.State != model.BackendUnready {
			p.available++
		}
		p.alone = p.alone && x.Machine == b.machine
	}
	return p
}

// localOnly are the backends where those of other machines take no new flow. Flows that
// they have still find them.
func localOnly(list []model.FrontendBackend, machine string) []model.FrontendBackend {
	list = slices.Clone(list)
	for i := range list {
		if list[i].Machine != machine {
			list[i].Weight = 0
		}
	}
	return list
}

// wanted is what each data plane should do.
func (b *balancer) wanted(listening map[string]struct{}) []model.Balancing {
	wants := make([]model.Balancing, len(b.parts.Planes))
	for i := range wants {
		wants[i] = model.Balancing{
			Machine: b.machine, Frontends: map[model.FrontendKey]*model.Balanced{}, Nodes: b.shared, Unready: map[model.FrontendKey]bool{},
			Guarded: map[netip.Addr][]model.FrontendKey{},
		}
	}
	for key, p := range b.joined {
		if p.plane < 0 {
			continue
		}
		w := wants[p.plane]
		w.Frontends[key] = p.Balanced
		if f := p.Frontend; f.Listener != "" {
			// What the machine has no longer gets no new flow before the plane's word of it is carried out.
			_, serves := listening[string(f.Listener)]
			if !serves || b.proxy != "" || b.leaving || !p.here || !p.until.IsZero() {
				w.Unready[key] = true
			}
		}
	}
	b.guard(wants)
	return wants
}

// drive tells each data plane what differs from what it was told, and returns when to try
// again. A frontend that moves is taken by the next data plane before the one before lets
// it go.
func (b *balancer) drive(wants []model.Balancing, now time.Time) (again time.Duration) {
	for i := range wants {
		both := wants[i]
		for key, f := range b.drives[i].last.Frontends {
			if _, stays := wants[i].Frontends[key]; stays || !slices.ContainsFunc(wants, func(w model.Balancing) bool { return w.Frontends[key] != nil }) {
				continue
			}
			if len(both.Frontends) == len(wants[i].Frontends) {
				both.Frontends = maps.Clone(both.Frontends)
			}
			both.Frontends[key] = f
		}
		b.set(i, both, now)
	}
	for i := range wants {
		left := wants[i]
		for key, f := range b.drives[i].last.Frontends {
			if wants[i].Frontends[key] != nil {
				continue
			}
			for j := range wants {
				if wants[j].Frontends[key] != nil && b.drives[j].last.Frontends[key] == nil { // it could not take it
					if len(left.Frontends) == len(wants[i].Frontends) {
						left.Frontends = maps.Clone(left.Frontends)
					}
					left.Frontends[key] = f
				}
			}
		}
		b.set(i, left, now)
		if d := &b.drives[i]; d.behind {
			if wait := max(d.again.Sub(now), time.Millisecond); again == 0 || wait < again {
				again = wait
			}
		}
	}
	return again
}

// set tells one data plane what to do, unless it knows. Only run's goroutine calls it.
func (b *balancer) set(i int, w model.Balancing, now time.Time) {
	d, plane := &b.drives[i], b.parts.Planes[i]
	same := d.tried && sameBalancing(d.last, w)
	if same && !d.behind || d.behind && now.Before(d.again) && d.tried {
		if !same {
			d.behind = true
		}
		return
	}
	leave := b.enter(plane.Kind)
	err := plane.Set(w)
	leave()
	seen := map[model.FrontendKey]model.FrontendObserved{}
	for _, o := range plane.Observed() {
		seen[o.FrontendKey] = o
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		if d.err != nil {
			b.log.Info("the data plane works again", "data_plane", plane.Kind)
		}
		d.last, d.wait, d.behind = w, 0, false
	} else {
		if d.err == nil || d.err.Error() != err.Error() {
			b.log.Error("the data plane does not balance as it should; what it did before stays", "data_plane", plane.Kind, "error", err)
		}
		d.wait = min(max(2*d.wait, driveAgain), driveMost)
		d.again, d.behind = now.Add(d.wait), true
	}
	d.tried, d.err, d.seen, b.moved = true, err, seen, true
}

func sameBalancing(a, b model.Balancing) bool {
	return maps.Equal(a.Frontends, b.Frontends) && maps.Equal(a.Nodes, b.Nodes) && maps.Equal(a.Unready, b.Unready) &&
		maps.EqualFunc(a.Guarded, b.Guarded, slices.Equal[[]model.FrontendKey])
}

// look notes what the data planes see now.
func (b *balancer) look() {
	for i, plane := range b.parts.Planes {
		seen := map[model.FrontendKey]model.FrontendObserved{}
		for _, o := range plane.Observed() {
			seen[o.FrontendKey] = o
		}
		b.mu.Lock()
		b.moved = b.moved || !maps.Equal(b.drives[i].seen, seen)
		b.drives[i].seen = seen
		b.mu.Unlock()
	}
}

// proxyIs takes why this machine's proxy serves nothing, "" when it serves.
func (b *balancer) proxyIs(why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if (b.proxy == "") != (why == "") {
		poke(b.news)
	}
	b.proxy = why
}

// leave has new flows go past this machine's proxy, as far as there is another one; false
// takes it back.
func (b *balancer) leave(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leaving == on {
		return
	}
	b.leaving, b.progress.as = on, 0
	if on {
		// Never one that was noticed before, though the clock is set back.
		b.progress.as = max(uint64(max(b.now().UnixNano(), 1)), b.progress.last+1)
		b.progress.last = b.progress.as
	}
	b.progress.told++
	poke(b.news)
	b.changed()
}

// hasNeighbours says that other machines may send this one what it balances or has backends
// of.
func (b *balancer) hasNeighbours() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.nodes {
		if name != b.machine && len(b.joined) > 0 && len(b.parts.Planes) > 0 {
			return true
		}
	}
	return false
}

// hasBegun says that the data planes were told of what the machine knows: what it balances, and
// who its neighbours are, is known from then on.
func (b *balancer) hasBegun() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.began
}

// release takes everything out of the kernel, and returns when that was tried, or at the limit
// or when ctx is done.
func (b *balancer) release(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b.mu.Lock()
	b.released = true
	for key := range b.joined {
		b.stale[key] = struct{}{}
	}
	b.mu.Unlock()
	select { // of an earlier apply
	case <-b.drained:
	default:
	}
	poke(b.news)
	select {
	case <-b.drained:
	case <-ctx.Done():
		b.log.Warn("data planes may have left something in the kernel")
	}
}

package l2

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.dev/internal/model"
)

// Config configures an Announcer. Machine, Hold, Release and Log are required.
type Config struct {
	// Machine is this machine's name, as candidates are named.
	Machine string
	// Hold makes the machine take packets to a VIP, without the kernel answering ARP or
	// neighbour discovery for it; Release undoes that, or the state of an earlier agent.
	// Both may be called again, and must not call the announcer.
	Hold, Release func(netip.Addr) error
	Log           *slog.Logger
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Changed is called after Status has changed. It may call the announcer.
	Changed func()
	// Leave is asked when Run ends. True: the agent restarts; VIPs that are owned stay
	// held, and the others keep them for this machine for ten seconds. False, or nil:
	// they are handed over.
	Leave func() bool
}

// Candidacy is a VIP that this machine may own.
type Candidacy = model.Candidacy

// Announcer owns VIPs on the segments of one machine. Its methods may be called
// concurrently.
type Announcer struct {
	c    Config
	kick chan struct{} // something is to be done before the timer

	mu          sync.Mutex
	running     bool
	candidacies []Candidacy
	why         map[netip.Addr][]error // interfaces that cannot be used
	ports       map[string]*port       // by name of the interface
	dirty       bool                   // candidacies or interfaces may have changed
	synced      time.Time
	wake        time.Time // when the loop looks again
	holding     map[netip.Addr]bool
	seen        map[netip.Addr]model.VIPObserved
	readers     sync.WaitGroup
}

// resync is how often interfaces are looked at though the kernel reported no change,
// and resyncPause how seldom if it reports many.
const (
	resync      = 10 * time.Second
	resyncPause = 100 * time.Millisecond
)

// New returns an announcer that does nothing until Run.
func New(c Config) *Announcer {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.Leave == nil {
		c.Leave = func() bool { return false }
	}
	return &Announcer{
		c: c, kick: make(chan struct{}, 1), dirty: true,
		why: map[netip.Addr][]error{}, ports: map[string]*port{},
		holding: map[netip.Addr]bool{}, seen: map[netip.Addr]model.VIPObserved{},
	}
}

// Set replaces the candidacies. It may be called again with the same ones.
func (a *Announcer) Set(candidacies []Candidacy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if reflect.DeepEqual(a.candidacies, candidacies) {
		return
	}
	a.candidacies = nil
	for _, c := range candidacies {
		c.Candidates, c.Interfaces = slices.Clone(c.Candidates), slices.Clone(c.Interfaces)
		a.candidacies = append(a.candidacies, c)
	}
	a.dirty, a.synced = true, time.Time{}
	a.poke()
}

// Status returns this machine's state of each VIP of the claims, sorted by address. It is
// empty before Run.
func (a *Announcer) Status() []model.VIPObserved {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(maps.Values(a.seen), func(x, y model.VIPObserved) int { return x.Address.Compare(y.Address) })
}

func (a *Announcer) poke() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// Run announces until ctx ends. It may be called once.
func (a *Announcer) Run(ctx context.Context) error {
	a.mu.Lock()
	if a.running {
		a.mu.Unlock()
		return errors.New("announce VIPs: Run was called before")
	}
	a.running = true
	a.mu.Unlock()

	stop := watch(ctx, a.c.Log, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.dirty = true
		a.poke()
	})
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			a.end(a.c.Leave())
			a.readers.Wait()
			return nil
		case <-timer.C:
		case <-a.kick:
		}
		timer.Reset(max(a.step(), time.Millisecond))
	}
}

// step does what is due and returns when the next is.
func (a *Announcer) step() time.Duration {
	a.mu.Lock()
	now := a.c.Now()
	if now.Sub(a.synced) >= resync || a.dirty && now.Sub(a.synced) >= resyncPause {
		a.sync(now)
	}
	a.wake = a.synced.Add(resync)
	if a.dirty {
		a.wake = a.synced.Add(resyncPause)
	}
	for _, p := range a.ports {
		a.late(now, p)
		next := p.election.decideAll(now)
		a.apply(now, p)
		if !now.Before(p.beatAt) {
			a.beat(now, p)
		}
		for _, t := range []time.Time{next, p.election.wake, p.beatAt} {
			if !t.IsZero() && t.Before(a.wake) {
				a.wake = t
			}
		}
	}
	changed := a.observe(now)
	wait := a.wake.Sub(now)
	a.mu.Unlock()
	if changed {
		a.c.Changed()
	}
	return wait
}

// event runs f, which something that arrived at p has caused, and does what follows.
func (a *Announcer) event(p *port, f func(now time.Time)) {
	a.mu.Lock()
	if a.ports[p.name] != p {
		a.mu.Unlock()
		return
	}
	now := a.c.Now()
	a.late(now, p)
	f(now)
	changed := false
	if !p.election.fx.empty() {
		a.apply(now, p)
		changed = a.observe(now)
	}
	if w := p.election.wake; !w.IsZero() && w.Before(a.wake) {
		a.poke()
	}
	a.mu.Unlock()
	if changed {
		a.c.Changed()
	}
}

// late tells the election when this process could not send for so long that others
// may have taken what it owns.
func (a *Announcer) late(now time.Time, p *port) {
	if now.Sub(p.alive) < silence {
		return
	}
	a.c.Log.Warn("sent no heartbeat for too long; listening before owning again",
		"interface", p.name, "silent", now.Sub(p.alive).Round(time.Millisecond))
	p.alive = now
	p.election.stalled(now)
}

func (a *Announcer) beat(now time.Time, p *port) {
	if err := p.beat(now, p.election.entries(now)); err != nil {
		a.c.Log.Warn("cannot send a heartbeat", "error", err)
	}
}

// overdue sends the heartbeats that became due while something else was done.
func (a *Announcer) overdue() {
	now := a.c.Now()
	for _, p := range a.ports {
		if !now.Before(p.beatAt) {
			a.beat(now, p)
		}
	}
}

// apply does what the election of p wants done.
func (a *Announcer) apply(now time.Time, p *port) {
	for fx := p.election.flush(); !fx.empty(); fx = p.election.flush() {
		for _, vip := range fx.drop {
			a.c.Log.Info("gave up a VIP", "vip", vip, "interface", p.name)
			a.release(vip)
		}
		for _, vip := range fx.take {
			if err := a.c.Hold(vip); err != nil {
				p.election.refuse(now, vip, err.Error())
				continue
			}
			a.holding[vip] = true
			a.c.Log.Info("took VIP", "vip", vip, "interface", p.name)
			a.overdue() // to hold very many takes longer than a round
		}
		// The heartbeat goes first: it tells who sends the announcements.
		if fx.beat {
			a.beat(now, p)
		}
		var errs []error
		for _, vip := range fx.probe {
			errs = append(errs, p.probe(vip))
		}
		for _, vip := range fx.announce {
			if c := p.election.contests[vip]; c != nil && c.own {
				errs = append(errs, p.announce(vip))
			}
		}
		if err := errors.Join(errs...); err != nil {
			a.c.Log.Warn("cannot send ARP or neighbour discovery", "interface", p.name, "error", err)
		}
	}
}

// release lets a VIP go that no port owns any more.
func (a *Announcer) release(vip netip.Addr) {
	for _, p := range a.ports {
		if c := p.election.contests[vip]; c != nil && c.own {
			return
		}
	}
	a.holding[vip] = false
	if err := a.c.Release(vip); err != nil {
		a.c.Log.Warn("cannot release a VIP; it is withdrawn anyway", "vip", vip, "error", err)
	}
}

// end stops everything. With leave the others are told to keep what is owned.
func (a *Announcer) end(leave bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.c.Now()
	var owned []netip.Addr
	for _, p := range a.ports {
		entries := p.election.entries(now)
		for i := range entries {
			switch {
			case leave && entries[i].role == owner:
				entries[i].role = paused
			default:
				entries[i].role = idle
			}
		}
		for range 3 { // nobody sends it again
			if err := p.beat(now, entries); err != nil {
				a.c.Log.Warn("cannot tell the other machines that this agent stops", "error", err)
			}
		}
		p.close()
	}
	for vip, held := range a.holding {
		if held {
			owned = append(owned, vip)
		}
	}
	clear(a.ports)
	for _, vip := range owned {
		if !leave {
			a.release(vip)
		}
	}
	clear(a.seen)
}

// observe brings Status up to date and reports whether it changed. A VIP that turns
// out to be owned by another is released, in case an earlier agent left it.
func (a *Announcer) observe(now time.Time) bool {
	changed := false
	claimed := map[netip.Addr]bool{}
	for _, candidacy := range a.candidacies {
		vip := candidacy.VIP
		claimed[vip] = true
		o, elsewhere := a.view(now, vip)
		if _, known := a.holding[vip]; !known && elsewhere && o.State != model.VIPAnnounced {
			a.release(vip)
		}
		before, known := a.seen[vip]
		o.Since = now
		if known && before.State == o.State {
			o.Since = before.Since
		}
		if !known || before.State != o.State || before.Message != o.Message {
			a.seen[vip], changed = o, true
		}
	}
	for vip := range a.seen {
		if !claimed[vip] {
			delete(a.seen, vip)
			a.release(vip)
			delete(a.holding, vip)
			changed = true
		}
	}
	return changed
}

// view is what this machine does about a VIP, and whether another machine owns it.
func (a *Announcer) view(now time.Time, vip netip.Addr) (o model.VIPObserved, elsewhere bool) {
	o = model.VIPObserved{Address: vip, State: model.VIPWithheld}
	var messages []string
	for _, err := range a.why[vip] {
		messages = append(messages, err.Error())
	}
	for _, p := range a.ports {
		c := p.election.contests[vip]
		if c == nil {
			continue
		}
		_, other := c.owner(now)
		elsewhere = elsewhere || other != nil
		message := c.blocked(now)
		switch {
		case c.own:
			o.State, message = model.VIPAnnounced, c.trouble
		case message == "" && o.State == model.VIPWithheld:
			o.State = model.VIPStandby
			if now.Before(c.listen) {
				message = "listening to the segment before it may own it"
			}
		}
		if message != "" && !slices.Contains(messages, message) {
			messages = append(messages, message)
		}
	}
	slices.Sort(messages)
	o.Message = strings.Join(messages, "; ")
	return o, elsewhere
}

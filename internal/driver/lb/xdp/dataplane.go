package xdp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

// Config configures a DataPlane. Dir, Addresses or Interfaces, and Log are required.
type Config struct {
	// Dir is the directory of pins. Where it is on no bpffs, one is mounted.
	Dir string
	// Interfaces that programs are attached to. Empty: those that hold Addresses or the
	// machine's tunnel endpoints and lead out of the machine.
	Interfaces []string
	// Addresses of the machine that others reach it by; with an error, those known last.
	Addresses func() ([]netip.Addr, error)
	Sizes     Sizes
	// Sysctls is where the kernel's settings can be read and changed; default /proc/sys.
	Sysctls string
	Log     *slog.Logger
	// Changed is called when Observed may differ though Set was not called. It must not
	// call the data plane.
	Changed func()
}

// DataPlane balances frontends by XDP. Make it with New.
type DataPlane struct {
	c     Config
	why   error // the kernel cannot
	sizes Sizes
	list  func() ([]bpf.Port, error)
	kick  chan struct{} // what is due next may have changed
	stir  chan struct{} // something is to be done
	probe *prober
	alive *liveness

	ports [2]portRange // of which flows in mode NAT get one each

	loading sync.Mutex // taken before mu

	mu     sync.Mutex
	loaded // its k is nil until something is to be balanced

	want     model.Balancing
	wanted   bool // Set was called
	problems []string
	found    []bpf.Device              // that programs belong to
	left     []model.InterfaceObserved // others that hold an address
	lost     map[string]time.Time      // machines that just ceased to take packets out of tunnels
	tunnel   tunnel
	captures int         // that run
	watching atomic.Bool // somebody watches flows
	changes  uint64      // of what else plans depend on
	closed   bool

	localPorts portRange // that sockets get, as of portsAt
	portsAt    time.Time

	counting sync.Mutex
	counts   *flowCounts
}

const (
	// resync is how often everything outside the maps is looked at though nobody said that
	// it changed.
	resync = 15 * time.Second
	// gather is how long changes of the network are gathered.
	gather = 50 * time.Millisecond
	// grace is how long a machine that no longer says that it takes packets out of tunnels
	// counts as if it did: its programs work on while its agent starts anew.
	grace = 30 * time.Second
)

// New returns a data plane, and adopts the pinned objects of an earlier agent, which stay
// in effect until the first Set. If the kernel lacks support, Supports says so and Set
// fails.
func New(c Config) (*DataPlane, error) {
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.Addresses == nil {
		c.Addresses = func() ([]netip.Addr, error) { return nil, nil }
	}
	if c.Sysctls == "" {
		c.Sysctls = "/proc/sys"
	}
	d := &DataPlane{c: c, list: bpf.Ports, kick: make(chan struct{}, 1), stir: make(chan struct{}, 1), sizes: c.Sizes.or(DefaultSizes(bpf.Memory()))}
	d.probe = newProber(c.Log, func() { poke(d.stir) })
	d.alive = newLiveness(c.Log, func() { poke(d.stir) })
	d.choosePorts()
	d.why = probeKernel(needed())
	if d.why != nil {
		return d, nil
	}
	there, err := bpf.Left(c.Dir, bpfMapFrontends)
	if err == nil && there {
		err = d.ensure()
	}
	if err != nil {
		return nil, fmt.Errorf("XDP data plane: %w", err)
	}
	return d, nil
}

// loaded is what there is once programs are in the kernel.
type loaded struct {
	k        *kernel
	pins     *bpf.Pins
	attached *bpf.Attacher
	hops     *bpf.NextHops
	state    *state
}

// ensure has maps and programs in the kernel. To verify the programs takes it about a second
// of processor time, and ten on a busy machine, so that mu is not held meanwhile: who asks what
// is observed does not wait.
func (d *DataPlane) ensure() error {
	d.loading.Lock()
	defer d.loading.Unlock()
	d.mu.Lock()
	there := d.k != nil || d.closed
	d.mu.Unlock()
	if there {
		return nil
	}
	if d.why != nil {
		return d.why
	}
	x, err := d.load()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		x.k.close()
		return errors.Join(errClosed, x.pins.Close())
	}
	d.loaded = x
	return nil
}

// load makes or adopts maps and programs.
func (d *DataPlane) load() (loaded, error) {
	pins, err := bpf.OpenPins(d.c.Dir, d.c.Log)
	if err != nil {
		return loaded{}, err
	}
	x, err := d.adopt(pins)
	if err != nil && bpf.Unreadable(err) {
		d.c.Log.Error("the load balancing of an earlier agent cannot be taken over; it keeps working until this agent has replaced it", "pins", pins.Path(), "error", err)
		if aside := pins.SetAside(); aside != nil {
			err = errors.Join(err, aside)
		} else {
			x, err = d.adopt(pins)
		}
	}
	if err != nil {
		_ = pins.Close()
		return loaded{}, err
	}
	return x, nil
}

// adopt loads the programs and reads what is pinned.
func (d *DataPlane) adopt(pins *bpf.Pins) (x loaded, err error) {
	x.pins = pins
	if x.k, err = loadKernel(pins, d.sizes, d.c.Log); err != nil {
		return loaded{}, err
	}
	x.hops = bpf.NewNextHops(x.k.maps.NextHops, d.c.Log)
	if x.state, err = readState(x.k, x.hops, d.c.Log); err == nil {
		x.attached, err = bpf.NewAttacher(x.k.object, hooked, d.c.Log)
	}
	if err != nil {
		x.k.close()
		return loaded{}, err
	}
	return x, nil
}

// errClosed is that of a data plane that is not to be used any more.
var errClosed = errors.New("XDP data plane: it is closed")

// Set is described by the interface that the agent states.
func (d *DataPlane) Set(b model.Balancing) error {
	if len(b.Frontends) > 0 {
		if err := d.ensure(); err != nil {
			return fmt.Errorf("XDP data plane: %w", err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	if err := d.set(b); err != nil {
		return fmt.Errorf("XDP data plane: %w", err)
	}
	return nil
}

func (d *DataPlane) set(b model.Balancing) error {
	if d.k == nil {
		d.want, d.wanted = b, true
		return d.forsake()
	}
	now := time.Now()
	d.miss(b.Nodes, now)
	d.want, d.wanted = b, true
	d.probe.set(targets(b))
	d.alive.set(peersOf(b, d.decaps(now)))
	poke(d.kick)
	return d.apply(now)
}

// forsake removes what earlier agents left where nothing is to be balanced.
func (d *DataPlane) forsake() error {
	if d.why != nil {
		return nil
	}
	return bpf.Forsake(d.c.Dir, bpfMapFrontends, d.c.Log)
}

// miss notes machines that took packets out of tunnels a moment ago.
func (d *DataPlane) miss(nodes map[string]*model.Node, now time.Time) {
	for name, was := range d.want.Nodes {
		if is := nodes[name]; was.Decaps && is != nil && !is.Decaps {
			if d.lost == nil {
				d.lost = map[string]time.Time{}
			}
			d.lost[name] = now.Add(grace)
		}
	}
	for name := range d.lost {
		if n := nodes[name]; n == nil || n.Decaps {
			delete(d.lost, name)
		}
	}
}

// decaps says whether a machine is to count as one that takes packets out of tunnels.
func (d *DataPlane) decaps(now time.Time) func(*model.Node) bool {
	return func(n *model.Node) bool { return n.Decaps || now.Before(d.lost[n.Name]) }
}

// apply brings maps and hooks up to date with what is wanted.
func (d *DataPlane) apply(now time.Time) error {
	if d.k == nil {
		return nil
	}
	defer d.hops.EndBatch()
	s := environment{
		machine: d.want.Machine, nodes: d.want.Nodes, closed: d.probe.closed, silent: d.alive.silent(), path: d.hops.Path,
		epoch: d.probe.age() + d.alive.age() + d.hops.Changes() + d.changes, decaps: d.decaps(now), guarded: d.guarded(),
	}
	for name, until := range d.lost {
		if !now.Before(until) {
			delete(d.lost, name)
			d.changes++
			s.epoch++
		}
	}
	balanced, decaps := d.state.plan(d.want, s)
	if err := d.settings(s.self()); err != nil {
		return err
	}
	if err := d.hops.SetEndpoints(s.self(), d.want.Nodes); err != nil {
		return err
	}
	// Hooks before entries: a frontend is balanced once its entry is there. Those that are
	// to go, go after them; and so do those that programs with other tables are at.
	later := d.attached.TakesOver()
	var unknown error // where programs belong
	if (balanced || decaps) && !later {
		unknown = d.attach(balanced, decaps)
	}
	err := errors.Join(unknown, d.state.apply(now))
	if !balanced || !decaps || later {
		err = errors.Join(err, d.attach(balanced, decaps))
	}
	if err == nil {
		d.attached.DropOthers()
	}
	return err
}

// settings writes what programs need to know of this machine.
func (d *DataPlane) settings(self *model.Node) error {
	var now, v bpfSettings
	if err := d.k.maps.Settings.Lookup(uint32(0), &now); err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	// Without ports no packet is looked at as an answer. Once there was a flow, there may be
	// one.
	if now.NatPorts != [2][2]uint16{} || d.state.translates() {
		v.NatPorts = [2][2]uint16{d.ports[0], d.ports[1]}
	}
	if self != nil {
		v.Tunnel4, v.Tunnel6 = wireAddress(self.Tunnel4), wireAddress(self.Tunnel6)
	}
	if d.captures > 0 {
		v.Capture = 1
	}
	if now == v {
		return nil
	}
	if err := d.k.maps.Settings.Put(uint32(0), v); err != nil {
		return fmt.Errorf("write the settings: %w", err)
	}
	return nil
}

// attach has the programs where they are needed: XDP where frontends are balanced, tcx
// where packets come out of tunnels and backends answer. While nobody knows where that is,
// they stay where they are.
func (d *DataPlane) attach(balanced, decaps bool) error {
	found, errs, err := d.devices()
	if err != nil {
		return err
	}
	want := map[bpf.Hook][]bpf.Device{}
	if balanced {
		want[bpf.XDP] = found
	}
	if decaps {
		want[bpf.Ingress], want[bpf.Egress] = found, found
	}
	if err := bpf.WriteLinks(d.k.maps.Links, found); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, d.attached.Set(want)...)
	var problems []string
	if balanced || decaps {
		for _, err := range errs {
			problems = append(problems, err.Error())
		}
		for _, name := range d.attached.Generic() {
			problems = append(problems, fmt.Sprintf("the driver of %s does not support XDP: packets are balanced in generic mode, which costs more CPU, with GRO off", name))
		}
	}
	if balanced {
		if err := bpf.AllowLookups(d.c.Sysctls, "mode NAT and next hops that are not resolved yet cost more CPU"); err != nil {
			problems = append(problems, err.Error())
		}
	}
	slices.Sort(problems)
	problems = slices.Compact(problems)
	if !slices.Equal(problems, d.problems) {
		for _, p := range problems {
			if !slices.Contains(d.problems, p) {
				d.c.Log.Warn("an attachment of the XDP data plane has a problem", "problem", p)
			}
		}
		d.problems = problems
	}
	return nil
}

// devices are the interfaces that programs belong to, and what is wrong with others. With an
// error it is not known which they are.
func (d *DataPlane) devices() (found []bpf.Device, errs []error, err error) {
	all, err := d.list()
	if err != nil {
		return nil, nil, err
	}
	own, err := d.c.Addresses()
	if err != nil {
		return nil, nil, err
	}
	var left []model.InterfaceObserved
	if len(d.c.Interfaces) > 0 {
		var missing []string
		found, missing, errs = bpf.ByName(all, d.c.Interfaces)
		for _, name := range missing {
			errs = append(errs, fmt.Errorf("interface %s does not exist; correct --lb-interfaces", name))
		}
	} else {
		var ends []netip.Addr
		if self := d.want.Nodes[d.want.Machine]; self != nil {
			ends = append(ends, self.Tunnel4, self.Tunnel6)
		}
		found, left, errs = bpf.Choose(all, own, ends)
	}
	for _, o := range left {
		if !slices.Contains(d.left, o) {
			d.c.Log.Info("programs are not attached to an interface with an address of this machine; name it with --lb-interfaces to attach them", "interface", o.Name, "because", o.Message)
		}
	}
	d.found, d.left = found, left
	if len(found) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("no external interface has an address of this machine; name interfaces with --lb-interfaces"))
	}
	d.tunnel = newTunnel(found, errs)
	return found, errs, nil
}

// Supports is described by the interface that the agent states.
func (d *DataPlane) Supports(f *model.Balanced) error {
	if d.why != nil {
		return d.why
	}
	if why := supports(f.Frontend); why != "" {
		return fmt.Errorf("XDP data plane: %w: %s", errors.ErrUnsupported, why)
	}
	return nil
}

// Run is described by the interface that the agent states.
func (d *DataPlane) Run(ctx context.Context) error {
	d.mu.Lock()
	why := d.why
	d.mu.Unlock()
	if why != nil {
		return why
	}
	var probing sync.WaitGroup
	probing.Go(func() { d.probe.run(ctx) })
	probing.Go(func() { d.alive.run(ctx) })
	defer probing.Wait()
	for ctx.Err() == nil {
		if err := d.follow(ctx); err != nil && ctx.Err() == nil {
			d.c.Log.Warn("the subscription to network changes of the kernel ended; subscribing again", "error", err)
		}
	}
	return nil
}

// follow keeps up with the network until ctx is done or no news come any more.
func (d *DataPlane) follow(ctx context.Context) error {
	done := make(chan struct{})
	defer close(done)
	news, lost := make(chan struct{}, 1), make(chan error, 1)
	if err := bpf.Watch(done, news, lost); err != nil {
		d.c.Log.Warn("routes and neighbours are read only periodically", "every", resync, "error", err)
	}
	d.look(true)
	timer := time.NewTimer(0)
	defer timer.Stop()
	dirty, asked, looked := false, time.Now(), time.Now()
	pause := gather         // after a look: a machine with very many backends must not look all the time
	var again time.Duration // after a look that did not go well, if there are no news before; grows
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-lost:
			select { // not at once again, whatever is wrong
			case <-ctx.Done():
			case <-time.After(gather):
			}
			return err
		case <-news:
			dirty = true
		case <-d.stir:
			dirty = true
		case <-d.kick:
		case <-timer.C:
			ask := time.Since(asked) >= resync
			began := time.Now()
			done := d.look(ask)
			dirty, looked = false, time.Now()
			pause = max(gather, 4*looked.Sub(began))
			if done {
				again = 0
			} else {
				again = min(max(2*again, pause), resync)
			}
			if ask {
				asked = looked
			}
		}
		wait := resync
		if again > 0 {
			wait = max(again-time.Since(looked), time.Millisecond)
		}
		if dirty {
			wait = max(pause-time.Since(looked), time.Millisecond)
		} else if due := d.due(); due > 0 {
			wait = min(wait, due)
		}
		timer.Reset(wait)
	}
}

// look brings up to date what depends on the network, and what time has brought. False: not
// all of it.
func (d *DataPlane) look(ask bool) (done bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.k == nil || !d.wanted || d.closed {
		return true
	}
	before, done := d.observed(), true
	if err := d.hops.Refresh(ask); err != nil {
		d.c.Log.Warn("cannot read the next hops to machines and backends; retrying", "error", err)
		done = false
	}
	if err := d.apply(time.Now()); err != nil {
		d.c.Log.Warn("cannot bring the kernel into the desired state; retrying", "error", err)
		done = false
	}
	if !slices.Equal(before, d.observed()) {
		d.c.Changed()
	}
	return done
}

// due is how long until time brings something; 0 for never.
func (d *DataPlane) due() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == nil {
		return 0
	}
	next := d.state.next()
	for _, until := range d.lost {
		if next.IsZero() || until.Before(next) {
			next = until
		}
	}
	if next.IsZero() {
		return 0
	}
	return max(time.Until(next), time.Millisecond)
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close ends the data plane. With leave everything stays in the kernel and works, for the
// next agent to adopt; otherwise it is removed. It also stays if Set was never called: an
// agent that could not begin must not end the balancing of another one.
func (d *DataPlane) Close(leave bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.k == nil {
		d.closed = true
		return nil
	}
	d.closed = true
	leave = leave || !d.wanted
	err := d.attached.Close(leave)
	if !leave {
		err = errors.Join(err, d.k.object.Remove())
	}
	d.k.close()
	err = errors.Join(err, d.pins.Close())
	if err != nil {
		return fmt.Errorf("close the XDP data plane: %w", err)
	}
	return nil
}

// MapBytes is the memory that the kernel says its maps hold.
func (d *DataPlane) MapBytes() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.k == nil || d.closed {
		return 0
	}
	return d.k.object.Bytes()
}

package bgp

import (
	"cmp"
	"context"
	"hash/fnv"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/driver/bgp/discovery"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/rtdump"
)

// stopGrace bounds how long Run waits for its sessions to say goodbye.
const stopGrace = 3 * time.Second

// Config configures a Speaker. All fields are optional.
type Config struct {
	Log *slog.Logger
	Now func() time.Time
	// Changed is called when Sessions may differ from before. It must not block.
	Changed func()
	// StateDir is where BFD sessions, and the routers of unnumbered peers, are kept for the process after this one,
	// preferably a tmpfs, which one process uses at a time; with "" nothing is kept, and peers with BFD treat each restart
	// as a failure.
	StateDir string
	// ListenPort is where peers that may connect do so; 0 is that of BGP.
	ListenPort uint16
	// Addresses are the machine's; with an error, those known last. By default they are read from the kernel.
	Addresses func() ([]rtdump.Address, error)
}

// Speaking is the desired state of a Speaker: the peers and the prefixes to advertise. Peers have distinct names. A
// zero router id leaves the choice to the speaker: the machine's lowest global IPv4 address that no prefix covers,
// else a hash of the machine's name. The choice lasts as long as the Speaker.
type Speaking = model.Speaking

// Advertisement is a prefix to send to every peer whose session carries its family.
type Advertisement = model.Advertisement

// Speaker keeps the sessions of a machine. Its methods may be called concurrently.
type Speaker struct {
	log       *slog.Logger
	now       func() time.Time
	changed   func()
	own       func() ([]rtdump.Address, error) // the machine's addresses, as Config says
	bfd       *receivers
	listeners *listeners
	links     links
	wake      chan struct{}
	resumed   time.Time // when Resume was called

	mu       sync.Mutex
	wanted   Speaking
	chosen   netip.Addr // the router id that we chose; zero until we did
	routerID netip.Addr // the one in use
	peers    map[string]*peer
	lastOn   map[onLink]netip.Addr // the router of the last session; it outlives the peer's value in peers
	earlier  map[onLink]netip.Addr // lastOn of the process before this one, of peers that were not wanted so far
	routers  routerMemory          // of lastOn
	leave    bool
	progress chan struct{} // closed and replaced when a session, or what it should be, changes
}

// New returns a Speaker that is silent until Run.
func New(c Config) *Speaker {
	s := &Speaker{
		log: c.Log, now: c.Now, changed: c.Changed,
		wake:     make(chan struct{}, 1),
		peers:    map[string]*peer{},
		progress: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.changed == nil {
		s.changed = func() {}
	}
	if s.own = c.Addresses; s.own == nil {
		s.own = new(rtdump.Addresses).List
	}
	file, routers := "", ""
	if c.StateDir != "" {
		file, routers = filepath.Join(c.StateDir, "bfd.json"), filepath.Join(c.StateDir, "bgp-routers.json")
	}
	s.routers = routerMemory{path: routers, log: s.log}
	s.bfd = newReceivers(file, s.log)
	s.links = discovery.New(s.log, s.poke)
	s.listeners = &listeners{log: s.log, port: cmp.Or(c.ListenPort, packet.BGP_PORT), hand: s.hand, open: map[listenKey]*openListener{}, shut: map[listenKey]error{}}
	return s
}

// Set replaces the desired state. It does not wait for the network, and may be called before Run and with the
// same again. The Speaker keeps no reference to the slices.
func (s *Speaker) Set(w Speaking) {
	w.Peers = slices.Clone(w.Peers)
	w.Prefixes = slices.Clone(w.Prefixes)
	w.Prefixes = slices.DeleteFunc(w.Prefixes, func(v Advertisement) bool {
		bad := !v.Prefix.IsValid() || v.Prefix.Addr().Is4In6() // it must not keep the others from being sent
		if bad {
			s.log.Warn("not advertised: it is not an IPv4 or IPv6 prefix", "prefix", v.Prefix)
		}
		return bad
	})
	for i := range w.Prefixes {
		w.Prefixes[i].Prefix = w.Prefixes[i].Prefix.Masked()
	}
	s.mu.Lock()
	same := reflect.DeepEqual(s.wanted, w)
	s.wanted = w
	s.mu.Unlock()
	if !same {
		s.poke()
	}
}

func (s *Speaker) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// StopPolicy says how sessions end when the context of Run does: leave closes the connections without a
// NOTIFICATION, so that peers with graceful restart keep the routes, and leaves BFD up for as long; otherwise, and
// unless this was called, peers are told to drop them.
func (s *Speaker) StopPolicy(leave bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave = leave
}

// Run keeps the sessions until ctx is done, then ends them as StopPolicy says and returns nil. Call it once.
func (s *Speaker) Run(ctx context.Context) error {
	beat := time.NewTicker(bfdBeat)
	defer beat.Stop()
	s.recall()
	s.reconcile()
	for {
		select {
		case <-s.wake:
			s.reconcile()
		case <-beat.C:
			s.bfd.memory.beat()
			s.dropOrphans()
			if s.discovers() {
				s.reconcile() // sessions come and go
			}
			if s.listeners.failed() {
				s.mu.Lock()
				found := s.find(s.wanted.Peers)
				s.mu.Unlock()
				s.openListeners(found)
			}
		case <-ctx.Done():
			s.listeners.close()
			s.links.Close()
			s.mu.Lock()
			how := cease(subcodeShutdown)
			if s.leave {
				how = farewell{leave: true}
			}
			stopping := s.remove(how, func(*peer) bool { return true })
			s.mu.Unlock()
			s.bfd.endOrphans(how.leave, func(*bfdSession) bool { return true })
			await(stopping)
			s.changed()
			return nil
		}
	}
}

// reconcile starts, changes and stops peers so that they are those wanted. It waits for none of them: a peer that
// starts anew waits for its own old session.
func (s *Speaker) reconcile() {
	s.mu.Lock()
	w := s.wanted
	id := s.identify(w)
	found := s.find(w.Peers)
	wanted := map[string]model.Peer{}
	for _, f := range found {
		wanted[f.peer.Name] = f.peer
	}
	var stopping []*peer
	if s.routerID != id {
		if s.routerID.IsValid() && len(s.peers) > 0 {
			s.log.Info("the router id changed: all sessions start again", "before", s.routerID, "router_id", id)
		}
		s.routerID = id
		stopping = s.remove(cease(subcodeConfigChange), func(*peer) bool { return true })
	}
	stopping = append(stopping, s.remove(cease(subcodeDeconfigured), func(p *peer) bool { _, ok := wanted[p.name]; return !ok })...)
	stopping = append(stopping, s.remove(cease(subcodeConfigChange), func(p *peer) bool { return !p.keeps(wanted[p.name]) })...)
	for _, f := range found {
		c := f.peer
		p := s.peers[c.Name]
		fresh := p == nil
		if fresh {
			p = newPeer(s, id, c)
			if i := slices.IndexFunc(stopping, func(old *peer) bool { return old.name == c.Name }); i >= 0 {
				p.before = stopping[i]
			}
			s.peers[c.Name] = p
		}
		p.want(c, w.Prefixes)
		p.found(f.trouble)
		if fresh {
			p.start()
		}
	}
	s.step()
	s.mu.Unlock()
	s.openListeners(found)
	if len(stopping) > 0 {
		s.changed()
	}
}

// openListeners has those peers able to connect that may, and shows them whether they are.
func (s *Speaker) openListeners(found []discovered) {
	peers := make([]model.Peer, len(found))
	for i, f := range found {
		peers[i] = f.peer
	}
	if !s.listeners.set(peers) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		p.poke()
	}
}

// hand gives a connection to the peer that opened it. Nobody else may open one.
func (s *Speaker) hand(conn *net.TCPConn, from netip.Addr, device string) {
	s.mu.Lock()
	var to *peer
	for _, p := range s.peers {
		if c, _, _ := p.wanted(); accepts(c) && c.Address == from && c.Device == device && check(c) == nil {
			to = p
		}
	}
	s.mu.Unlock()
	if to == nil {
		s.log.Debug("refused a connection: no peer with its address may connect", "address", from)
		reset(conn)
		return
	}
	c, _, _ := to.wanted()
	raw, err := conn.SyscallConn()
	if err == nil {
		if e := raw.Control(func(fd uintptr) { err = prepare(int(fd), c) }); e != nil {
			err = e
		}
	}
	if err != nil {
		to.often.Warn("take", "cannot accept the peer's connection", "error", err)
		reset(conn)
		return
	}
	to.offer(conn)
}

// remove takes the peers that match out of the map and tells them to stop. The caller holds s.mu.
func (s *Speaker) remove(how farewell, match func(*peer) bool) []*peer {
	var out []*peer
	for name, p := range s.peers {
		if match(p) {
			delete(s.peers, name)
			p.stop(how)
			out = append(out, p)
		}
	}
	return out
}

// await waits until the peers have stopped, but not for a connection that is stuck.
func await(peers []*peer) {
	deadline := time.NewTimer(stopGrace)
	defer deadline.Stop()
	for _, p := range peers {
		select {
		case <-p.done:
		case <-deadline.C:
			return
		}
	}
}

// announce says that a session changed. The caller holds no lock, because Changed may ask for the sessions.
func (s *Speaker) announce() {
	s.mu.Lock()
	s.step()
	s.mu.Unlock()
	s.changed()
}

// step wakes Withdraw. The caller holds s.mu.
func (s *Speaker) step() {
	close(s.progress)
	s.progress = make(chan struct{})
}

// Sessions returns the state of the sessions, sorted by peer. Peers that Run has not seen yet are missing; after
// Run all are.
func (s *Speaker) Sessions() []model.Session {
	s.mu.Lock()
	peers := make([]*peer, 0, len(s.peers))
	for _, p := range s.peers {
		peers = append(peers, p)
	}
	s.mu.Unlock()
	out := make([]model.Session, len(peers))
	for i, p := range peers {
		out[i] = p.session()
	}
	slices.SortFunc(out, func(a, b model.Session) int { return cmp.Compare(a.Peer, b.Peer) })
	return out
}

// Withdraw withdraws all prefixes from all peers and returns once the withdrawals are sent. It equals Set
// without prefixes, plus waiting: a later Set applies again. It returns ctx's error if a peer did not read the
// withdrawals in time.
func (s *Speaker) Withdraw(ctx context.Context) error {
	s.mu.Lock()
	s.wanted.Prefixes = nil
	s.mu.Unlock()
	s.poke()
	for {
		s.mu.Lock()
		silent, progress := true, s.progress
		for _, p := range s.peers {
			silent = silent && p.silent()
		}
		s.mu.Unlock()
		if silent {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// identify returns the router id to use. The caller holds s.mu.
func (s *Speaker) identify(w Speaking) netip.Addr {
	if id := w.RouterID.Unmap(); id.Is4() && !id.IsUnspecified() {
		return id
	}
	if w.RouterID.IsValid() {
		s.log.Warn("the router id is not an IPv4 address; choosing one", "wanted", w.RouterID)
	}
	if !s.chosen.IsValid() {
		addrs, err := s.own()
		if err != nil {
			s.log.Warn("cannot list the machine's addresses to choose a router id", "error", err)
		}
		s.chosen = chooseRouterID(w, addrs)
	}
	return s.chosen
}

// chooseRouterID returns the lowest global IPv4 address that no prefix covers, or a hash of the machine's name. An
// interface need not be up for it: the id should be the same after the next start. Addresses of scope host do not
// count: VIPs that the machine holds have that scope, also those that it does not advertise now, and others hold the same. Nor do those of kube-proxy, which every node has.
func chooseRouterID(w Speaking, addrs []rtdump.Address) netip.Addr {
	var lowest netip.Addr
	for _, a := range addrs {
		addr := a.Addr
		if a.HostScope || a.Interface == rtdump.ProxyInterface || !addr.Is4() || !addr.IsGlobalUnicast() || covered(addr, w.Prefixes) {
			continue
		}
		if !lowest.IsValid() || addr.Less(lowest) {
			lowest = addr
		}
	}
	if lowest.IsValid() {
		return lowest
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(w.Machine))
	sum := max(h.Sum32(), 1)
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

func covered(a netip.Addr, prefixes []Advertisement) bool {
	return slices.ContainsFunc(prefixes, func(v Advertisement) bool { return v.Prefix.Contains(a.WithZone("")) })
}

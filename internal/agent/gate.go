package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead.dev/internal/delta"
)

const (
	// waitGrace is how long a virtual host may wait for its clusters before that is
	// called a problem. Usual waits are milliseconds.
	waitGrace = time.Second
	// listenerRetry is how long a refused listener waits for its next try: what it
	// needs, its port, may be free by then. Other refusals do not heal by waiting.
	listenerRetry = 10 * time.Second
)

// Gate decides what Envoy may see now of what the plane wants, so that nothing is
// used before it works and nothing is taken away while it is used.
//
// It is pure: it is told what the plane wants (Target, Checkpoint), what Envoy
// answered (Connected, Observe, Warming) and the time (Step), and gives the changes
// for the Set that Envoy follows. After each Step that gave changes the owner
// applies them and calls Confirm.
//
//   - Clusters go first, with their endpoints and secrets. Endpoints are sent
//     again with every cluster that uses them and is added or changed: Envoy does
//     not ask again, and would keep the cluster warming for 15 s.
//   - A virtual host goes live when every cluster that it names is warm. Until then
//     its last live form stays, if there is one.
//   - A route configuration that Envoy refuses is tried in parts until the bad
//     virtual host stands alone; the others go live.
//   - A cluster goes when no virtual host that Envoy may hold names it, and the
//     drain time has passed since.
//   - Listeners wait for their routes, at most waitGrace.
//
// The work of a change follows the change: the shards that changed, and those that
// wait for a cluster that became warm.
type Gate struct {
	drain time.Duration
	seq   uint64 // counts observations
	// connectSeq is when the present stream began.
	connectSeq uint64

	items    map[key]*item
	clusters map[string]*cluster
	sets     map[string]*endpoints
	shards   map[string]*shard
	users    map[string]int // route configuration -> live scopes and listeners that name it
	waiters  map[string]map[string]struct{}

	dirty      map[key]struct{}
	late       map[key]struct{} // items that wait for others; looked at in every Step
	unwarm     map[string]struct{}
	polling    map[string]struct{}
	verifying  bool // what Envoy brought from an earlier stream may be warming
	newlyIdle  []string
	idle       []idleCluster // oldest first
	accepting  map[string]struct{}
	leading    map[string]struct{} // those of accepting that lead requests: Envoy asks for their scopes and routes
	survivor   bool                // Envoy brought clusters: it has the listeners that it took before
	graceShard map[string]time.Time
	unproxied  bool // there is no Envoy on purpose
	keyless    bool // the private keys of listeners are lost until the plane sends them
	retries    map[key]time.Time

	witness witness

	unsettled   map[key]*debt
	open        map[delta.Type]int // unsettled ones by type
	faulty      map[key]struct{}
	ordinal     uint64 // of the checkpoint that is being collected
	checkpoints []checkpoint
	floor       uint64 // largest ordinal that was said to be settled on this stream
	problems    uint64 // bumped when a problem comes, goes or changes

	bumps  uint64
	out    []delta.Change
	good   []delta.Change
	resend []string
}

// item is one resource that is not a route configuration.
type item struct {
	key
	target    *delta.Resource // what the plane wants; nil: nothing
	live      *delta.Resource // what the Set holds
	good      *delta.Resource // what an Envoy last accepted
	base      string          // version of live as the plane gave it
	acked     string          // version that this Envoy last accepted; empty for none
	known     bool            // acked says something about the present live
	refuse    map[string]string
	fault     string // why it is a problem; empty when it is none
	faultKind problemKind
	since     time.Time // waiting for others
	renewed   bool      // live is a listener that differs from base by renewedBy
	debt
	names []string // route configurations that live names
	// Of a listener: what Envoy accepted and was not seen to use, when it accepted live,
	// whether it serves as live has it or in any version, and why not and since when.
	accepts    []acceptance
	ackSeq     uint64
	active     bool
	serving    bool
	lost       bool // Envoy neither serves it nor is about to
	stuck      string
	stuckSince time.Time
	// named is what a listener of version namedOf needs.
	named   *names
	namedOf string
}

type cluster struct {
	*item
	info    clusterInfo // of live
	sentSeq uint64      // when live was sent, or Envoy said that it has it
	ackSeq  uint64      // when Envoy accepted a version; 0: not on this stream
	ready   bool
	flies   string // the load assignment of what is on its way to Envoy
	resumed bool   // Envoy brought it from an earlier stream
	brought string // in which version
	cleared bool   // a poll said that it is not warming
	bumped  bool
	uses    int // virtual host forms that name it and that Envoy may hold
	isIdle  bool
	idleAt  time.Time
}

// endpoints is a load assignment as clusters use it.
type endpoints struct {
	sentSeq  uint64              // when what is in flight was sent; 0: nothing is
	ackOf    uint64              // when what Envoy last accepted was sent; 0: nothing was
	ackSeq   uint64              // when Envoy accepted it
	real     bool                // it was not a stand-in
	clusters map[string]struct{} // of what is live
	flying   map[string]uint64   // of what was sent and not fed yet, which may be older
}

type idleCluster struct {
	name string
	at   time.Time
}

type checkpoint struct {
	ordinal  uint64
	revision delta.Revision
}

// NewGate makes a gate that knows nothing.
func NewGate() *Gate {
	return &Gate{
		items:      map[key]*item{},
		clusters:   map[string]*cluster{},
		sets:       map[string]*endpoints{},
		shards:     map[string]*shard{},
		users:      map[string]int{},
		waiters:    map[string]map[string]struct{}{},
		dirty:      map[key]struct{}{},
		late:       map[key]struct{}{},
		unwarm:     map[string]struct{}{},
		polling:    map[string]struct{}{},
		accepting:  map[string]struct{}{},
		leading:    map[string]struct{}{},
		graceShard: map[string]time.Time{},
		retries:    map[key]time.Time{},
		witness:    newWitness(),
		unsettled:  map[key]*debt{},
		open:       map[delta.Type]int{},
		faulty:     map[key]struct{}{},
		ordinal:    1,
	}
}

// SetDrain sets how long a cluster stays after the last virtual host that named it.
func (g *Gate) SetDrain(d time.Duration) { g.drain = max(0, d) }

// Target takes changes of what the plane wants. Resources that cannot be read are
// left as they were, and the error names all of them.
func (g *Gate) Target(changes []delta.Change) error {
	if g.unproxied {
		return nil
	}
	var errs []error
	for _, c := range changes {
		if !slices.Contains(proxyTypes[:], c.Type) || c.Name == "" {
			continue
		}
		if err := g.target(key{c.Type, c.Name}, c.Resource); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (g *Gate) target(k key, r *delta.Resource) error {
	if r != nil && r.Body.GetTypeUrl() != string(k.kind) {
		return fmt.Errorf("%w: %s: it is a %q", errUnreadable, k.name, r.Body.GetTypeUrl())
	}
	if k.kind == typeRoute {
		return g.targetShard(k.name, r)
	}
	if err := readable(k.kind, r); err != nil {
		return err
	}
	it := g.items[k]
	if it == nil {
		if r == nil {
			return nil
		}
		it = &item{key: k, known: true}
		g.items[k] = it
		if k.kind == typeCluster {
			g.clusters[k.name] = &cluster{item: it}
		}
	}
	if version(it.target) == version(r) && (it.target == nil) == (r == nil) {
		return nil
	}
	it.target = r
	it.since = time.Time{}
	it.owe(g.ordinal)
	it.ahead = it.ahead.add(version(r), g.ordinal)
	maps.DeleteFunc(it.refuse, func(v, _ string) bool { return v != version(it.good) && v != version(r) && v != it.base })
	if why, known := it.refuse[version(r)]; known && r != nil {
		g.blame(it, problemRefused, why)
	} else {
		g.blame(it, 0, "")
	}
	g.settle(it)
	g.touch(k)
	return nil
}

// readable says whether the gate can read what it needs of a resource.
func readable(t delta.Type, r *delta.Resource) error {
	if r == nil {
		return nil
	}
	var err error
	switch t {
	case typeCluster:
		_, err = readCluster(r)
	case typeScope:
		_, err = readScope(r)
	case typeListener:
		_, err = readListener(r)
	}
	return err
}

// Checkpoint says that the target is now, at least, all of the plane's revision.
func (g *Gate) Checkpoint(r delta.Revision) {
	g.checkpoints = append(g.checkpoints, checkpoint{g.ordinal, r})
	if len(g.checkpoints) > maxCheckpoints {
		g.checkpoints = slices.Clone(g.checkpoints[maxCheckpoints/2:])
	}
	g.ordinal++
}

// Restore puts back what an earlier agent remembered: what the plane wanted, and
// what Envoy had last accepted where that is something else. It must come before
// anything else.
func (g *Gate) Restore(target, good []delta.Change) error {
	if g.unproxied {
		return nil
	}
	err := g.Target(target)
	for _, c := range good {
		k := key{c.Type, c.Name}
		if c.Resource == nil || readable(c.Type, c.Resource) != nil {
			continue
		}
		if c.Type == typeRoute {
			g.restoreShard(c.Name, c.Resource)
			continue
		}
		it := g.items[k]
		if it == nil {
			it = &item{key: k, known: true}
			g.items[k] = it
			if c.Type == typeCluster {
				g.clusters[c.Name] = &cluster{item: it}
			}
		}
		it.good = c.Resource
		if c.Type != typeListener || !g.withholdsKeys(it, c.Resource) {
			g.push(it, c.Resource)
		}
		g.touch(k)
	}
	// What routes use was warm when they were let through.
	for _, s := range g.shards {
		for _, f := range s.good {
			for _, name := range f.clusters {
				if c := g.clusters[name]; c != nil && c.live != nil {
					g.warm(c)
				}
			}
		}
	}
	return err
}

// Connected says that Envoy opened a stream. held are the clusters that it says it
// has, with their versions; an Envoy that has none is a new one. active are those of
// them that it uses; nil if that is not known, and then what the gate knew of them
// before is believed.
func (g *Gate) Connected(held map[string]string, active map[string]struct{}) {
	g.seq++
	g.connectSeq = g.seq
	g.floor = 0
	clear(g.polling)
	clear(g.accepting)
	clear(g.leading)
	g.unwitness()
	for _, set := range g.sets {
		set.sentSeq, set.ackOf, set.ackSeq = 0, 0, 0
		clear(set.flying)
	}
	fresh := len(held) == 0
	g.verifying, g.survivor = !fresh, !fresh
	for _, k := range slices.SortedFunc(maps.Keys(g.items), compareKeys) {
		it := g.items[k]
		it.acked, it.known = "", it.live == nil
		it.active, it.serving, it.accepts = false, false, nil
		it.owe(0)
		if c := g.clusters[k.name]; k.kind == typeCluster && c != nil && c.item == it {
			has := false
			c.brought, has = held[k.name]
			c.sentSeq, c.ackSeq, c.cleared, c.bumped, c.resumed, c.flies = 0, 0, false, false, has, ""
			if has {
				c.sentSeq, c.ackSeq = g.seq, g.seq
			}
			if active != nil {
				_, c.ready = active[k.name]
			}
			if c.ready = c.ready && has && c.live != nil; !c.ready && c.live != nil {
				g.unwarm[k.name] = struct{}{}
			}
		}
		g.settle(it)
		g.forget(it)
	}
	for _, s := range g.shards {
		g.reconnectShard(s, fresh)
	}
}

// Observe takes what Envoy accepted and refused, in order.
func (g *Gate) Observe(events []delta.Event) {
	for _, e := range events {
		g.seq++
		if e.Type == typeRoute {
			g.observeShard(e)
			continue
		}
		it := g.items[key{e.Type, e.Name}]
		if it == nil {
			continue
		}
		if it.kind == typeCluster && (e.Refused || e.Version == "") {
			g.landed(g.clusters[it.name])
		}
		if e.Refused {
			if set := g.sets[e.Name]; e.Type == typeEndpoint && set != nil {
				set.sentSeq = 0 // what was sent feeds no cluster
			}
			if it.live != nil && e.Version == it.live.Version {
				g.refused(it, e.Message)
			}
			continue
		}
		it.acked, it.known = e.Version, true
		accepted := e.Version
		if it.live != nil && e.Version == it.live.Version {
			g.accepted(it)
			accepted = it.base
		}
		if it.kind == typeEndpoint {
			g.ackedSet(it, e.Version)
		}
		if it.kind == typeListener && g.witness.able && it.live != nil && e.Version != "" {
			it.accepts = noted(it.accepts, acceptance{accepted, g.seq})
			g.witness.looking[it.name] = struct{}{}
		} else {
			it.pay(accepted)
		}
		g.settle(it)
		g.forget(it)
	}
}

// accepted takes the acceptance of what is live.
func (g *Gate) accepted(it *item) {
	if version(it.good) != it.base && it.base != emptyVersion {
		r := *it.live
		r.Version = it.base
		it.good = &r
		g.keep(it.key, &r)
	}
	if it.base == version(it.target) {
		g.blame(it, 0, "")
	}
	switch it.kind {
	case typeCluster:
		g.ackedCluster(g.clusters[it.name])
	case typeListener:
		g.accepting[it.name] = struct{}{}
		g.doubtListener(it)
		led := len(g.leading) > 0
		if it.live != nil && it.needs(it.live).bytes {
			delete(g.leading, it.name)
		} else {
			g.leading[it.name] = struct{}{}
		}
		if leads := len(g.leading) > 0; leads != led {
			g.settleRoutes()
		}
	}
}

// refused takes the refusal of what is live, standing alone.
func (g *Gate) refused(it *item, message string) {
	if it.refuse == nil {
		it.refuse = map[string]string{}
	}
	it.refuse[it.base] = message
	if it.base == version(it.target) {
		g.blame(it, problemRefused, message)
	}
	if it.kind == typeListener {
		g.retries[it.key] = time.Time{} // Step says when
	}
	if c := g.clusters[it.name]; it.kind == typeCluster && c != nil {
		delete(g.unwarm, it.name)
	}
	if it.kind == typeEndpoint {
		g.feed(it.name)
	}
	if it.kind == typeCluster && g.clusters[it.name].info.set != "" {
		g.resettle(key{typeEndpoint, g.clusters[it.name].info.set})
	}
	g.settle(it)
	g.touch(it.key)
}

// Seq numbers what was observed so far. A poll of Envoy's warming clusters is about
// the number that held when it began.
func (g *Gate) Seq() uint64 { return g.seq }

// Polling says that it must be known which clusters are warming.
func (g *Gate) Polling() bool { return len(g.polling) > 0 || g.verifying }

// Warming takes the names of the clusters that Envoy still warms, from a poll that
// began at seq.
func (g *Gate) Warming(seq uint64, names []string) {
	if seq < g.connectSeq {
		return
	}
	warming := make(map[string]struct{}, len(names))
	g.verifying = false
	for _, name := range names {
		warming[name] = struct{}{}
		// What an earlier stream left warming may wait for endpoints that Envoy does
		// not ask for, and hold up every answer about clusters meanwhile.
		c := g.clusters[name]
		if c == nil || !c.resumed || c.bumped || c.info.set == "" {
			continue
		}
		if set := g.set(c.info.set); set.ackSeq == 0 || set.ackSeq > seq {
			g.verifying = true // once Envoy has asked for them
			continue
		}
		c.bumped = true
		if g.resend = append(g.resend, c.info.set); c.brought != version(c.live) {
			g.resend = append(g.resend, g.liveSets()...) // which ones it waits for is not known here
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.polling)) {
		c := g.clusters[name]
		if c == nil || c.ackSeq > seq || c.info.set != "" && g.set(c.info.set).ackSeq > seq {
			continue
		}
		if _, still := warming[name]; !still {
			c.cleared = true
			g.judge(c)
		}
	}
}

// Warm says that no cluster is under way: all are warm, or will not be.
func (g *Gate) Warm() bool { return len(g.unwarm) == 0 }

// touch makes the next Step look at a resource.
func (g *Gate) touch(k key) { g.dirty[k] = struct{}{} }

// keep notes what an Envoy last accepted, for the memory.
func (g *Gate) keep(k key, r *delta.Resource) {
	g.good = append(g.good, delta.Change{Type: k.kind, Name: k.name, Resource: r})
}

func version(r *delta.Resource) string {
	if r == nil {
		return ""
	}
	return r.Version
}

func compareKeys(a, b key) int {
	return cmp.Or(
		cmp.Compare(slices.Index(proxyTypes[:], a.kind), slices.Index(proxyTypes[:], b.kind)),
		cmp.Compare(a.name, b.name),
	)
}

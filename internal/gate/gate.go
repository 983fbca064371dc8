package gate

import (
	"cmp"
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
// A Feed tells it what the plane wants (Target, Checkpoint), what Envoy answered (connected,
// observe, Warming) and the time (step), and gives Envoy what a step decided; then it says what
// became of that (confirm).
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
	late       map[key]struct{} // items that wait for others; looked at in every step
	unwarm     map[string]struct{}
	polling    map[string]struct{}
	verifying  bool // what Envoy brought from an earlier stream may be warming
	newlyIdle  []string
	idle       []idleCluster // oldest first
	accepting  map[string]struct{}
	leading    map[string]struct{} // those of accepting that lead requests: Envoy asks for their scopes and routes
	survivor   bool                // Envoy brought clusters: it has the listeners that it took before
	graceShard map[string]time.Time
	keyless    bool // the private keys of listeners are lost until the plane sends them
	retries    map[key]time.Time

	witness witness

	outstanding map[key]*debt      // resources that Envoy has yet to apply
	open        map[delta.Type]int // their number by type
	faulty      map[key]struct{}
	ordinal     uint64 // of the checkpoint that is being collected
	checkpoints []checkpoint
	floor       uint64 // largest ordinal that was said to be applied on this stream
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

// newGate makes a gate that knows nothing.
func newGate() *Gate {
	return &Gate{
		items:       map[key]*item{},
		clusters:    map[string]*cluster{},
		sets:        map[string]*endpoints{},
		shards:      map[string]*shard{},
		users:       map[string]int{},
		waiters:     map[string]map[string]struct{}{},
		dirty:       map[key]struct{}{},
		late:        map[key]struct{}{},
		unwarm:      map[string]struct{}{},
		polling:     map[string]struct{}{},
		accepting:   map[string]struct{}{},
		leading:     map[string]struct{}{},
		graceShard:  map[string]time.Time{},
		retries:     map[key]time.Time{},
		witness:     witness{looking: map[string]struct{}{}, fresh: map[string]struct{}{}, unused: map[string]struct{}{}, strays: map[string]int{}},
		outstanding: map[key]*debt{},
		open:        map[delta.Type]int{},
		faulty:      map[key]struct{}{},
		ordinal:     1,
	}
}

// touch makes the next step look at a resource.
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
		cmp.Compare(slices.Index(Types[:], a.kind), slices.Index(Types[:], b.kind)),
		cmp.Compare(a.name, b.name),
	)
}

// shrunk replaces an empty map: one that was large is slow to look through for ever.
func shrunk[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > 0 {
		return m
	}
	return map[K]V{}
}

// sooner is the earlier of two times; zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

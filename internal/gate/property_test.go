package gate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// world is what the plane of the property test wants.
type world struct {
	t         testing.TB
	random    *rand.Rand
	clusters  map[string]delta.Change
	badly     map[string]bool // clusters that Envoy refuses
	setOf     map[string]string
	sets      map[string]int // salt; negative is refused
	shards    map[string]map[string]gatetest.Host
	listeners map[string]string
	salt      int
	revision  uint64
	pending   []delta.Change
}

func (w *world) add(c delta.Change) { w.pending = append(w.pending, c) }

func (w *world) change() {
	w.salt++
	name := func(prefix string, n int) string { return fmt.Sprint(prefix, w.random.IntN(n)) }
	switch w.random.IntN(12) {
	case 0, 1, 2: // a cluster comes or changes
		c, set := name("c", 6), name("s", 4)
		var options []gatetest.ClusterOption
		if w.random.IntN(4) == 0 {
			options = append(options, gatetest.WithChecks)
		}
		w.badly[c] = w.random.IntN(6) == 0
		if w.badly[c] {
			options = append(options, gatetest.AsBad)
		}
		w.clusters[c], w.setOf[c] = gatetest.Cluster(w.t, c, set, w.salt, options...), set
		w.add(w.clusters[c])
	case 3: // a cluster goes
		c := name("c", 6)
		delete(w.clusters, c)
		w.add(gatetest.Removal(typeCluster, c))
	case 4, 5: // endpoints change
		s, salt := name("s", 4), w.salt
		if w.random.IntN(8) == 0 {
			salt = -1
		}
		w.sets[s] = salt
		w.add(gatetest.Endpoints(w.t, s, min(salt, 50)))
	case 6: // endpoints go
		if w.random.IntN(3) == 0 {
			s := name("s", 4)
			delete(w.sets, s)
			w.add(gatetest.Removal(typeEndpoint, s))
		}
	case 7, 8, 9: // hosts come and change
		shard := name("r", 3)
		for range 1 + w.random.IntN(3) {
			h := gatetest.Host{Name: name("h", 6), Salt: w.salt, Bad: w.random.IntN(8) == 0}
			for range 1 + w.random.IntN(2) {
				h.Clusters = append(h.Clusters, name("c", 6))
			}
			w.shards[shard][h.Name] = h
		}
		w.add(w.routes(shard))
	case 10: // a host goes
		shard := name("r", 3)
		delete(w.shards[shard], name("h", 6))
		w.add(w.routes(shard))
	case 11: // a listener changes
		l := name("l", 2)
		switch salt := fmt.Sprint(w.salt); w.random.IntN(4) {
		case 0:
			w.listeners[l] = gatetest.Bad
		case 1:
			if len(w.listeners) > 1 {
				delete(w.listeners, l)
				w.add(gatetest.Removal(typeListener, l))
				return
			}
			fallthrough
		default:
			w.listeners[l] = salt
		}
		w.add(gatetest.Listener(w.t, l, w.listeners[l]))
	}
}

func (w *world) routes(shard string) delta.Change {
	var hosts []gatetest.Host
	for _, n := range slices.Sorted(maps.Keys(w.shards[shard])) {
		hosts = append(hosts, w.shards[shard][n])
	}
	return gatetest.Routes(w.t, shard, hosts...)
}

// deliver gives the relay some or all of what is pending, in any order of types, and a
// checkpoint when nothing is left.
func (w *world) deliver(r *relay, all bool) {
	n := len(w.pending)
	if !all {
		n = w.random.IntN(n + 1)
	}
	if err := r.Target(w.pending[:n]); err != nil {
		w.t.Fatal(err)
	}
	b := batch{target: slices.Clone(w.pending[:n])}
	w.pending = w.pending[n:]
	if len(w.pending) == 0 {
		w.revision++
		r.revision = delta.Revision{Epoch: 1, Number: w.revision}
		r.Checkpoint(r.revision)
		b.checkpoint = r.revision
	}
	r.remember(b)
	r.advance()
}

// relay carries bytes between a feed and the model of Envoy, and remembers, as an agent does.
type relay struct {
	*Feed
	now      func() time.Time
	revision delta.Revision
	remember func(batch)
	wakeAt   time.Time
}

// batch is one step that is remembered, whole or not at all.
type batch struct {
	target, good []delta.Change
	checkpoint   delta.Revision // zero: none
}

func newRelay(now func() time.Time, remember func(batch)) *relay {
	r := &relay{Feed: New(), now: now, remember: remember}
	r.SetDrain(3 * time.Second)
	r.SetWitnessed()
	return r
}

func (r *relay) advance() {
	good, wake := r.Advance(r.now(), r.revision)
	if r.wakeAt = wake; len(good) > 0 {
		r.remember(batch{good: good})
	}
}

func (r *relay) tick() {
	if !r.wakeAt.IsZero() && !r.now().Before(r.wakeAt) {
		r.advance()
	}
}

func (r *relay) open(stream *delta.Stream, req *discoveryv3.DeltaDiscoveryRequest, active map[string]struct{}) *discoveryv3.DeltaDiscoveryRequest {
	defer r.advance()
	return r.Open(stream, req, active, r.now())
}

func (r *relay) request(stream *delta.Stream, req *discoveryv3.DeltaDiscoveryRequest) (bool, error) {
	defer r.advance()
	return r.Request(stream, req)
}

func (r *relay) polled(seq uint64, warming []string) {
	r.Warming(seq, warming)
	r.advance()
}

func (r *relay) saw(look Look, seen Seen) Mend {
	defer r.advance()
	return r.Saw(look, seen, r.now())
}

// disk is what an agent of the property test has written. The last batches may be
// lost when the agent is killed.
type disk struct {
	target, good map[key]*delta.Resource
	checkpoint   delta.Revision
	batches      []batch
}

func (d *disk) write(b batch) {
	d.batches = append(d.batches, b)
	for len(d.batches) > 5 {
		d.flush(1)
	}
}

func (d *disk) flush(n int) {
	for _, b := range d.batches[:n] {
		put(d.target, b.target)
		put(d.good, b.good)
		if b.checkpoint != (delta.Revision{}) {
			d.checkpoint = b.checkpoint
		}
	}
	d.batches = d.batches[n:]
}

func put(to map[key]*delta.Resource, changes []delta.Change) {
	for _, c := range changes {
		if k := (key{c.Type, c.Name}); c.Resource == nil {
			delete(to, k)
		} else {
			to[k] = c.Resource
		}
	}
}

func changesOf(from map[key]*delta.Resource) (changes []delta.Change) {
	for _, k := range slices.SortedFunc(maps.Keys(from), compareKeys) {
		changes = append(changes, delta.Change{Type: k.kind, Name: k.name, Resource: from[k]})
	}
	return changes
}

// restart replaces a killed agent. Envoy lives on, and the plane sends again what the
// new one does not hold.
func (w *world) restart(d *disk, now func() time.Time) *relay {
	w.t.Helper()
	lost := w.random.IntN(len(d.batches) + 1)
	forgotten := d.batches[len(d.batches)-lost:]
	d.flush(len(d.batches) - lost)
	d.batches = nil
	r := newRelay(now, d.write)
	if err := r.Target(changesOf(d.target)); err != nil {
		w.t.Fatal(err)
	}
	r.Restore(changesOf(d.good))
	r.revision = d.checkpoint
	r.Checkpoint(d.checkpoint)
	r.advance()
	var again []delta.Change
	for _, b := range forgotten {
		again = append(again, b.target...)
	}
	w.pending = append(again, w.pending...)
	return r
}

// sound says whether requests to a cluster can work in the end.
func (w *world) sound(cluster string) bool {
	_, there := w.clusters[cluster]
	salt, fed := w.sets[w.setOf[cluster]]
	return there && !w.badly[cluster] && fed && salt > 0
}

// TestGateProperty: whatever the plane wants and Envoy answers, in whatever order,
// no virtual host ever names a cluster that Envoy does not have warm (the model
// checks that at every step), and in the end Envoy has what the plane wants, less
// what it refuses, and less what waits for that, all of which is reported.
// FAIRLEAD_FUZZ_COUNT is how many seeds are tried, FAIRLEAD_FUZZ_SEED the first one.
func TestGateProperty(t *testing.T) {
	first, seeds := uint64(0), uint64(120)
	if testing.Short() {
		seeds = 50
	}
	for variable, value := range map[string]*uint64{"FAIRLEAD_FUZZ_SEED": &first, "FAIRLEAD_FUZZ_COUNT": &seeds} {
		text := os.Getenv(variable)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		*value = n
	}
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runGate(t, seed) })
	}
}

func runGate(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	now := time.Unix(1_000_000, 0)
	clock := func() time.Time { return now }
	d := &disk{target: map[key]*delta.Resource{}, good: map[key]*delta.Resource{}}
	r := newRelay(clock, d.write)
	w := &world{
		t: t, random: random, clusters: map[string]delta.Change{}, badly: map[string]bool{}, setOf: map[string]string{},
		sets: map[string]int{}, shards: map[string]map[string]gatetest.Host{}, listeners: map[string]string{"l0": "x"},
	}
	for _, r := range []string{"r0", "r1", "r2"} {
		w.shards[r] = map[string]gatetest.Host{}
		w.add(w.routes(r))
		w.add(gatetest.Scope(t, "scope-"+r, r))
	}
	w.add(gatetest.Listener(t, "l0", "x"))
	w.deliver(r, true)
	d.flush(len(d.batches))
	e := newEnvoyModel(t, random, r)
	last, opens := delta.Revision{}, e.opens
	for range 600 {
		switch n := random.IntN(100); {
		case n < 12:
			w.change()
			w.deliver(r, false)
		case n < 16:
			now = now.Add(time.Duration(random.IntN(2000)) * time.Millisecond)
			r.tick()
		case n == 16 && random.IntN(3) == 0:
			e.boot()
		case n == 17 && random.IntN(2) == 0:
			r.Disconnect(e.stream)
			e.connect()
		case n == 18 && random.IntN(3) == 0:
			r = w.restart(d, clock)
			e.relay, last = r, delta.Revision{}
			e.connect()
		case n == 18:
			e.slow = map[string]bool{fmt.Sprint("c", random.IntN(6)): true}
		case n == 19:
			e.slow = nil
		default:
			e.step()
		}
		if applied := r.Applied(); applied.Compare(last) < 0 && opens == e.opens {
			for k, d := range r.outstanding {
				t.Logf("outstanding: %v %+v", k, *d)
			}
			t.Fatalf("applied went back from %s to %s", last, applied)
		} else {
			last, opens = applied, e.opens
		}
	}
	w.deliver(r, true)
	e.slow = nil
	converge(t, r, e, &now)
	compare(t, w, r, e)
	if t.Failed() {
		t.Logf("inbox %v, outbox %v, held %v, listen %v, warming %v", e.inbox, e.outbox, e.held, e.listen, e.warming)
		for name, set := range r.sets {
			k := key{typeEndpoint, name}
			t.Logf("set %s: %+v; %+v; stream %+v", name, set, r.items[k], r.stream.State(k.kind, k.name))
		}
		for k := range r.outstanding {
			if sh := r.shards[k.name]; k.kind == typeRoute {
				t.Logf("shard %+v; live %+v", sh, sh.live)
			}
			t.Logf("outstanding %v: item %+v, stream %+v", k, r.items[k], r.stream.State(k.kind, k.name))
		}
	}
}

// converge lets everything happen that is due.
func converge(t *testing.T, r *relay, e *envoyModel, now *time.Time) {
	t.Helper()
	// A listener that is refused is tried again for ever, so there is no rest to wait
	// for; this is longer than the drain time and every grace together.
	for range 25 {
		for idle := 0; idle < 30; idle++ {
			if e.step() {
				idle = 0
			}
		}
		*now = now.Add(700 * time.Millisecond)
		r.tick()
	}
}

// compare holds what Envoy has against what the plane wants.
func compare(t *testing.T, w *world, r *relay, e *envoyModel) {
	t.Helper()
	problems := map[string]*agentv1.Problem{}
	for _, p := range r.Problems() {
		problems[p.GetTypeUrl()+" "+p.GetName()] = p
	}
	if want := (delta.Revision{Epoch: 1, Number: w.revision}); r.Applied() != want {
		t.Errorf("applied %s, want %s; outstanding: %v", r.Applied(), want, slices.Collect(maps.Keys(r.outstanding)))
	}
	expect := map[string]bool{}
	uses := map[string]bool{}
	listening := false
	for l, salt := range w.listeners {
		if salt == gatetest.Bad {
			expect[string(typeListener)+" "+l] = true
		}
	}
	listening = len(e.listeners) > 0
	for shard, hosts := range w.shards {
		got := map[string]*routev3.VirtualHost{}
		for _, v := range e.routes[shard].GetVirtualHosts() {
			got[v.GetName()] = v
			for _, c := range clustersOf(v) {
				uses[c] = true
			}
		}
		for _, h := range hosts {
			// Sound: it must be live. Hopeless: it cannot be. Between the two stand
			// clusters that work only because Envoy keeps what is gone or now bad.
			sound, hopeless := true, false
			for _, c := range h.Clusters {
				sound = sound && w.sound(c)
				hopeless = hopeless || e.clusters[c] == nil
			}
			at := string(typeRoute) + " " + shard + "/" + h.Name
			switch p := problems[at]; {
			case hopeless && p == nil && !listening && r.shards[shard].onTrial:
				// Envoy no longer asks for what is being tried.
			case hopeless && p == nil:
				t.Errorf("%s leads nowhere, and that is not reported", at)
			case hopeless && !h.Bad && p.GetKind() != problemWaiting:
				t.Errorf("%s waits, but is reported as %v", at, p)
			case sound && h.Bad && listening && (p == nil || p.GetKind() != problemRefused):
				t.Errorf("%s is refused, but is reported as %v", at, p)
			case sound && !h.Bad && p != nil:
				t.Errorf("%s is sound, but is reported as %v", at, p)
			case (sound || p == nil) && !h.Bad && listening && !proto.Equal(got[h.Name], h.Proto()):
				t.Errorf("%s: Envoy has %v, want %v", at, got[h.Name], h.Proto())
			}
			if !sound || h.Bad {
				expect[at] = true
			}
		}
		for name := range got {
			if _, ok := hosts[name]; !ok && listening {
				t.Errorf("%s/%s is still there", shard, name)
			}
		}
	}
	for c := range w.clusters {
		if w.badly[c] {
			expect[string(typeCluster)+" "+c] = true
		} else if _, has := e.clusters[c]; !has {
			t.Errorf("cluster %s is missing; warming %v", c, e.warming[c])
		} else if want := w.clusters[c].Resource.Version; e.clusters[c].version != want {
			t.Errorf("cluster %s is at %s, want %s", c, e.clusters[c].version, want)
		}
	}
	for c := range e.clusters {
		kept := uses[c]
		for _, s := range r.shards {
			for _, f := range s.good {
				kept = kept || slices.Contains(f.clusters, c)
			}
			for _, f := range s.live.forms {
				kept = kept || !listening && slices.Contains(f.clusters, c)
			}
		}
		if _, ok := w.clusters[c]; !ok && !kept {
			t.Errorf("cluster %s is still there", c)
		}
	}
	for set, salt := range w.sets {
		if salt < 0 {
			expect[string(typeEndpoint)+" "+set] = true
		}
	}
	for at, p := range problems {
		if !expect[at] {
			t.Errorf("problem without reason: %v", p)
		}
	}
}

package gate

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What Envoy accepts it may still not use: a listener waits for what it names, or could not
// listen after all, and routes came by a subscription that nobody reads any more. So Envoy is
// asked what it uses: at once about each listener that it accepted, and about a few route
// configurations from time to time. What it does not use is a problem, and is mended.
const (
	// witnessEvery is how often Envoy is asked although nothing is in doubt.
	witnessEvery = 15 * time.Second
	// doubtEvery is how often it is asked while something is.
	doubtEvery = time.Second
	// witnessRoutes bounds the route configurations of one question.
	witnessRoutes = 32
	// warmAfter is how long a listener may wait for what it needs before that is sent again:
	// longer than Envoy itself waits for it.
	warmAfter = 3 * time.Second
	// The mending of what stays unused goes on to the next step after these times.
	reconnectAfter = 5 * time.Second
	replaceAfter   = 20 * time.Second
	// reconnectGap and replaceGap are how far two such steps are apart, at least: what they
	// do not mend, they are not to do for ever.
	reconnectGap = time.Minute
	replaceGap   = time.Hour
)

// Look is a question about what Envoy uses, and the number of what was observed before it.
type Look struct {
	Seq    uint64
	Routes []string // route configurations to ask about
}

// Seen is Envoy's answer.
type Seen struct {
	// Serving are the listeners that take connections; Warming those that do not yet, or not
	// in their newest version, with what each waits for.
	Serving map[string]struct{}
	Warming map[string][]string
	// Routes are the versions of those that were asked about and that requests find.
	Routes map[string]string
}

// MendStep is how what Envoy does not use is mended.
type MendStep uint8

// The steps, in their order.
const (
	MendNothing   MendStep = iota
	MendResend             // what the listeners need is sent again
	MendReconnect          // the stream is ended
	MendReplace            // another Envoy is started
)

// String names the step as metrics and logs do.
func (m MendStep) String() string { return [...]string{"none", "resend", "reconnect", "replace"}[m] }

// Mend is what is to be done about what Envoy does not use.
type Mend struct {
	Step   MendStep
	Reason string
	again  []key // to be sent again
}

// witness is what the gate knows of what Envoy uses.
type witness struct {
	able    bool                // there is somebody to ask
	looking map[string]struct{} // listeners that were accepted and not seen to serve
	fresh   map[string]struct{} // route configurations that were accepted and not asked about
	unused  map[string]struct{} // those that are known not to be used
	strays  map[string]int      // listeners that serve and are not wanted: how often seen in a row
	cursor  string              // the last route configuration asked about in turn
	at      time.Time           // of the last answer
	round   uint64              // bumped when something new is in doubt

	since       time.Time // something is stuck since; zero: nothing is
	resent      bool
	reconnected time.Time
	replaced    time.Time
}

// SetWitnessed says that there is somebody who tells what Envoy uses.
func (g *Gate) SetWitnessed() { g.witness.able = true }

// doubtListener: Envoy accepted the listener's live version; whether it serves is not known.
func (g *Gate) doubtListener(it *item) {
	if !g.witness.able {
		return
	}
	it.active, it.ackSeq, it.stuck, it.stuckSince = false, g.seq, "", time.Time{}
	g.witness.looking[it.name] = struct{}{}
	g.witness.round++
}

// acceptance is a version of a listener that Envoy accepted, and when.
type acceptance struct {
	version string
	seq     uint64
}

// noted appends an acceptance. Of too many the oldest stays, so that each answer finds one that
// came before its question.
func noted(list []acceptance, a acceptance) []acceptance {
	if len(list) == maxBacklog {
		list = slices.Delete(list, 1, 2)
	}
	return append(list, a)
}

// used: Envoy uses what it had accepted of a listener when it was asked, at seq.
func (it *item) used(seq uint64) {
	n := 0
	for n < len(it.accepts) && it.accepts[n].seq <= seq {
		n++
	}
	if n > 0 {
		it.pay(it.accepts[n-1].version)
		it.accepts = slices.Clone(it.accepts[n:])
	}
}

// unwitness forgets what Envoy uses, since it opened a stream.
func (g *Gate) unwitness() {
	w := &g.witness
	clear(w.looking)
	clear(w.fresh)
	for name := range w.unused {
		if s := g.shards[name]; s != nil {
			s.missed = 0
		}
	}
	clear(w.unused)
}

// doubtRoutes: Envoy accepted the live version of a route configuration.
func (g *Gate) doubtRoutes(s *shard) {
	if g.witness.able {
		s.ackSeq = g.seq
		g.witness.fresh[s.name] = struct{}{}
	}
}

// looks is the question to ask now, if there is one, and when there will be one otherwise.
func (g *Gate) looks(now time.Time) (look Look, wanted bool, next time.Time) {
	w := &g.witness
	if !w.able {
		return Look{}, false, time.Time{}
	}
	every := witnessEvery
	if len(w.unused)+len(w.strays) > 0 || !w.since.IsZero() {
		every = doubtEvery
	}
	due := w.at.IsZero() || !now.Before(w.at.Add(every))
	if len(w.looking) == 0 && !due {
		return Look{}, false, w.at.Add(every)
	}
	look.Seq = g.seq
	if len(g.leading) > 0 {
		look.Routes = g.sample()
	}
	return look, true, time.Time{}
}

// sample chooses the route configurations to ask about: those that are known not to be
// used, then those that changed, then the others in turn.
func (g *Gate) sample() []string {
	w := &g.witness
	var names []string
	add := func(from []string) {
		for _, name := range from {
			if len(names) == witnessRoutes {
				return
			}
			if g.isDecided(g.shards[name]) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	add(slices.Sorted(maps.Keys(w.unused)))
	add(slices.Sorted(maps.Keys(w.fresh)))
	all := slices.Sorted(maps.Keys(g.shards))
	at, _ := slices.BinarySearch(all, w.cursor+"\x00")
	add(all[at:])
	add(all[:at])
	return names
}

// isDecided: Envoy accepted what is live of a route configuration that a listener leads to.
func (g *Gate) isDecided(s *shard) bool {
	return s != nil && s.live != nil && s.done && g.users[s.name] > 0
}

// observeUse notes what Envoy uses, from a question that was asked at look.Seq, and says how
// to mend what it does not use.
func (g *Gate) observeUse(look Look, seen Seen, now time.Time) Mend {
	if look.Seq < g.connectSeq {
		return Mend{}
	}
	g.seq++
	w := &g.witness
	w.at = now
	right, asked := g.witnessShards(look, seen)
	stuck := ""
	for _, k := range g.listeners() {
		it := g.items[k]
		if why := g.witnessListener(it, look, seen, right > 0 || asked == 0, now); why != "" && stuck == "" {
			stuck = "listener " + strconv.Quote(k.name) + ": " + why
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.unused)) {
		if s := g.shards[name]; s != nil && s.missed > 1 && stuck == "" {
			stuck = "route configuration " + strconv.Quote(name) + ": " + unusedRoutes
		}
	}
	if stuck == "" {
		w.since, w.resent = time.Time{}, false
		return g.stray(seen)
	}
	if w.since.IsZero() {
		w.since = now
	}
	return g.mend(stuck, now)
}

// stray has Envoy told again that listeners are gone which it serves and nobody wants. It takes
// the good part of a response that it refuses, and does not say so on its next stream.
func (g *Gate) stray(seen Seen) (m Mend) {
	w := &g.witness
	for name := range w.strays {
		if _, serves := seen.Serving[name]; !serves {
			delete(w.strays, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(seen.Serving)) {
		k := key{typeListener, name}
		if it := g.items[k]; it != nil && (it.live != nil || !it.known) {
			delete(w.strays, name)
			continue
		}
		if w.strays[name]++; w.strays[name] > 1 {
			m.Step, m.Reason = MendResend, "listener "+strconv.Quote(name)+": the proxy serves it although the plane removed it"
			m.again = append(m.again, k)
		}
	}
	return m
}

// witnessShards says of how many route configurations Envoy was asked, and how many of
// them it uses as they were accepted.
func (g *Gate) witnessShards(look Look, seen Seen) (right, asked int) {
	w := &g.witness
	led := false
	for name := range g.leading {
		if _, serves := seen.Serving[name]; serves {
			led = true
		}
	}
	for _, name := range look.Routes {
		s := g.shards[name]
		w.cursor = name
		if !led || !g.isDecided(s) || s.ackSeq > look.Seq {
			delete(w.unused, name)
			if s != nil && s.missed > 0 {
				s.missed = 0
				g.trackShard(s)
			}
			continue // it changed meanwhile, or no listener leads to it
		}
		asked++
		delete(w.fresh, name)
		was := s.missed
		if version, is := seen.Routes[name]; is && s.mayShow(version) {
			right++
			s.missed = 0
			delete(w.unused, name)
		} else {
			s.missed++
			w.unused[name] = struct{}{}
		}
		if (was > 1) != (s.missed > 1) {
			g.trackShard(s)
		}
	}
	return right, asked
}

// listeners are those of which Envoy accepted a version, sorted.
func (g *Gate) listeners() []key {
	var keys []key
	names := maps.Clone(g.accepting)
	maps.Copy(names, g.witness.looking) // also those that change before Envoy answers to the newest
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if k := (key{typeListener, name}); g.items[k] != nil {
			keys = append(keys, k)
		}
	}
	return keys
}

// witnessListener notes whether a listener serves as Envoy accepted it. It returns why not,
// if that lasts though Envoy has accepted all that it needs.
func (g *Gate) witnessListener(it *item, look Look, seen Seen, routed bool, now time.Time) string {
	_, serving := seen.Serving[it.name]
	waits, warming := seen.Warming[it.name]
	_, leads := g.leading[it.name]
	if serving && !warming && (routed || !leads) {
		it.used(look.Seq)
		g.track(it)
	}
	if it.live == nil || it.acked != it.live.Version || it.ackSeq > look.Seq {
		return "" // it changed meanwhile, or Envoy keeps another version
	}
	it.serving, it.lost = serving, !serving && !warming
	why := ""
	switch {
	case warming:
		why = "it waits for its prerequisites: " + strings.Join(waits, ", ")
	case !serving:
		why = "the proxy accepted it but does not listen"
	case leads && !routed:
		why = "the proxy listens but uses none of its routes"
	}
	if why == "" {
		it.active, it.stuck, it.stuckSince = true, "", time.Time{}
		delete(g.witness.looking, it.name)
		g.blameStuck(it, "")
		g.track(it)
		return ""
	}
	it.active = false
	g.witness.looking[it.name] = struct{}{}
	if it.stuckSince.IsZero() {
		it.stuckSince = now
	}
	it.stuck = why
	if !now.Before(it.stuckSince.Add(waitGrace)) {
		g.blameStuck(it, why)
	}
	g.track(it)
	if it.fault == "" || warming && (now.Before(it.stuckSince.Add(warmAfter)) || !g.isServed(it)) {
		return "" // it is too early, or what it waits for is not there
	}
	return why
}

// blameStuck notes, or takes back, that a listener does not serve. What Envoy refuses is
// worse, and stands.
func (g *Gate) blameStuck(it *item, why string) {
	if it.faultKind == problemRefused || it.base != version(it.target) {
		return
	}
	kind := problemWaiting
	if why == "" {
		kind = 0
	}
	g.blame(it, kind, why)
}

// isServed: Envoy has accepted everything that a listener needs.
func (g *Gate) isServed(it *item) bool {
	needs := it.needs(it.live)
	for _, name := range needs.secrets {
		if s := g.items[key{typeSecret, name}]; s == nil || s.live == nil || s.acked != s.live.Version {
			return false
		}
	}
	for _, name := range needs.routes {
		if s := g.shards[name]; s == nil || !s.done {
			return false
		}
	}
	return g.hasClusters(needs.clusters) && (needs.bytes || g.open[typeScope]+g.open[typeRoute] == 0)
}

// mend chooses the next step: what is needed is sent again, then Envoy asks for all anew on
// another stream, and in the end another Envoy does. Each step is bounded in time.
func (g *Gate) mend(reason string, now time.Time) Mend {
	w := &g.witness
	m := Mend{Reason: reason}
	lasts := now.Sub(w.since)
	switch {
	case !w.resent:
		w.resent = true
		m.Step, m.again = MendResend, g.needed()
	case lasts >= replaceAfter && w.reconnected.After(w.since) && !now.Before(w.reconnected.Add(replaceAfter-reconnectAfter)) &&
		(w.replaced.IsZero() || !now.Before(w.replaced.Add(replaceGap))):
		w.replaced = now
		m.Step = MendReplace
	case lasts >= reconnectAfter && (w.reconnected.IsZero() || !now.Before(w.reconnected.Add(reconnectGap))):
		w.reconnected = now
		m.Step = MendReconnect
	}
	return m
}

// needed is what listeners that do not serve need, and those of them that Envoy lost.
func (g *Gate) needed() []key {
	again := map[key]struct{}{}
	for name := range g.witness.looking {
		it := g.items[key{typeListener, name}]
		if it == nil || it.live == nil {
			continue
		}
		needs := it.needs(it.live)
		for _, s := range needs.secrets {
			again[key{typeSecret, s}] = struct{}{}
		}
		for _, r := range needs.routes {
			again[key{typeRoute, r}] = struct{}{}
		}
		if it.lost && it.base == version(it.target) {
			g.pushAgain(it, it.target)
		}
	}
	for _, k := range g.liveScopes() {
		again[k] = struct{}{}
	}
	for name := range g.witness.unused {
		again[key{typeRoute, name}] = struct{}{}
	}
	return slices.SortedFunc(maps.Keys(again), compareKeys)
}

// Describe is a mending for the log.
func (m Mend) Describe() string {
	switch m.Step {
	case MendResend:
		return "its prerequisites are sent again"
	case MendReconnect:
		return "the stream ends, so that the proxy receives everything again"
	case MendReplace:
		return "the proxy is drained and replaced"
	default:
		return ""
	}
}

package gate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"fairlead.dev/internal/delta"
)

// SetDrain sets how long a cluster stays after the last virtual host that named it.
func (g *Gate) SetDrain(d time.Duration) { g.drain = max(0, d) }

// SetKeyless says that the private keys of what is remembered are not there: they are
// kept in memory only, and the machine has started anew. Until they come again, listeners
// that need keys are not given to Envoy, so that nothing leads clients to a machine that
// would turn them away. It must come before Restore.
func (g *Gate) SetKeyless(keyless bool) {
	if g.keyless == keyless {
		return
	}
	g.keyless = keyless
	for k := range g.items {
		if k.kind == typeListener {
			g.touch(k)
		}
	}
}

// Target notes changes of what the plane wants. Resources that cannot be read are
// left as they were, and the error names all of them.
func (g *Gate) Target(changes []delta.Change) error {
	var errs []error
	for _, c := range changes {
		if !slices.Contains(Types[:], c.Type) || c.Name == "" {
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
		return fmt.Errorf("%w: %s: it is a %q", ErrUnreadable, k.name, r.Body.GetTypeUrl())
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
	g.track(it)
	g.touch(k)
	return nil
}

// readable says whether the gate can read what it needs of a resource, and whether a load
// assignment can be read at all: own health goes on with the last one that is not refused.
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
	case typeEndpoint:
		err = unmarshal(r, new(endpointv3.ClusterLoadAssignment))
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

// restore puts back what Envoy had last accepted.
func (g *Gate) restore(good []delta.Change) {
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
}

// connected says that Envoy opened a stream. held are the clusters that it says it
// has, with their versions; an Envoy that has none is a new one. active are those of
// them that it uses; nil if that is not known, and then what the gate knew of them
// before is believed.
func (g *Gate) connected(held map[string]string, active map[string]struct{}) {
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
		g.track(it)
		g.forget(it)
	}
	for _, s := range g.shards {
		g.reconnectShard(s, fresh)
	}
}

// observe notes what Envoy accepted and refused, in order.
func (g *Gate) observe(events []delta.Event) {
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
		g.track(it)
		g.forget(it)
	}
}

// accepted notes the acceptance of what is live.
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
			g.trackRoutes()
		}
	}
}

// refused notes the refusal of what is live, standing alone.
func (g *Gate) refused(it *item, message string) {
	if it.refuse == nil {
		it.refuse = map[string]string{}
	}
	it.refuse[it.base] = message
	if it.base == version(it.target) {
		g.blame(it, problemRefused, message)
	}
	if it.kind == typeListener {
		g.retries[it.key] = time.Time{} // step says when
	}
	if c := g.clusters[it.name]; it.kind == typeCluster && c != nil {
		delete(g.unwarm, it.name)
	}
	if it.kind == typeEndpoint {
		g.feed(it.name)
	}
	if it.kind == typeCluster && g.clusters[it.name].info.set != "" {
		g.retrack(key{typeEndpoint, g.clusters[it.name].info.set})
	}
	g.track(it)
	g.touch(it.key)
}

// polls says that it must be known which clusters are warming. An answer is about the number
// of observations that held when the question was asked.
func (g *Gate) polls() bool { return len(g.polling) > 0 || g.verifying }

// Warming notes the names of the clusters that Envoy still warms, from a poll that
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

// isWarm says that no cluster is under way: all are warm, or will not be.
func (g *Gate) isWarm() bool { return len(g.unwarm) == 0 }

// confirm tells the gate what became of the changes of a step: what Envoy's stream
// says of each name after the Set was updated. A change back to what Envoy holds
// sends nothing and so is answered by nothing; neither is one that nobody follows.
func (g *Gate) confirm(changes []delta.Change, state func(delta.Type, string) delta.State) {
	var events []delta.Event
	for _, c := range changes {
		switch st := state(c.Type, c.Name); st.Phase {
		case delta.Acked:
			events = append(events, delta.Event{Type: c.Type, Name: c.Name, Version: st.Version})
		case delta.Nacked:
			events = append(events, delta.Event{Type: c.Type, Name: c.Name, Version: st.Version, Refused: true, Message: st.Message})
		case delta.Unknown:
			if s := g.shards[c.Name]; c.Type == typeRoute && s != nil {
				g.unfollowedShard(s)
			} else if c.Resource == nil {
				events = append(events, delta.Event{Type: c.Type, Name: c.Name})
			}
		}
	}
	if len(events) > 0 {
		g.observe(events)
	}
}

// relent drops refusals whose version has been withdrawn meanwhile: Envoy then holds
// what is wanted, and no further answer will say so.
func (g *Gate) relent(events []delta.Event, state func(delta.Type, string) delta.State) {
	for _, e := range events {
		if !e.Refused {
			continue
		}
		st := state(e.Type, e.Name)
		it := g.items[key{e.Type, e.Name}]
		if st.Phase == delta.Acked || st.Phase == delta.Unknown && it != nil && it.live == nil {
			g.observe([]delta.Event{{Type: e.Type, Name: e.Name, Version: st.Version}})
		}
	}
}

package gate

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"fairlead.dev/internal/delta"
)

// step is what Gate.step decided.
type step struct {
	// changes are for the Set that Envoy follows.
	changes []delta.Change
	// good is what an Envoy accepted since the last step: what to fall back on. A
	// nil Resource says that the name is gone.
	good []delta.Change
	// resend names load assignments that Envoy must be sent again.
	resend []string
	// wake is when step must be called again even if nothing happens; zero: never.
	wake time.Time
}

// step decides what changes now. Its cost follows what happened since the last one.
func (g *Gate) step(now time.Time) step {
	g.retryListeners(now)
	g.expire(now)
	for name, at := range g.graceShard {
		if !now.Before(at) {
			g.touch(key{typeRoute, name})
		}
	}
	maps.Copy(g.dirty, g.late)
	for len(g.dirty) > 0 {
		keys := slices.SortedFunc(maps.Keys(g.dirty), compareKeys)
		g.dirty = map[key]struct{}{}
		for _, k := range keys {
			if k.kind == typeRoute {
				if s := g.shards[k.name]; s != nil {
					g.syncShard(s, now)
				}
			} else if it := g.items[k]; it != nil {
				g.sync(it, now)
			}
		}
		g.park(now)
		if len(g.dirty) > 0 {
			maps.Copy(g.dirty, g.late)
		}
	}
	g.late, g.graceShard = shrunk(g.late), shrunk(g.graceShard)
	decided := step{changes: g.out, good: g.good, resend: g.resend, wake: g.wake(now)}
	g.out, g.good, g.resend = nil, nil, nil
	return decided
}

// want is what should be live of an item, regardless of the others.
func (it *item) want() *delta.Resource {
	if it.target == nil || !it.isRefused(it.target) {
		return it.target
	}
	if it.good != nil && !it.isRefused(it.good) {
		return it.good
	}
	if it.kind == typeEndpoint {
		// Without any answer Envoy would wait, with every other change of clusters.
		return noEndpoints(it.name)
	}
	return it.target
}

func (it *item) isRefused(r *delta.Resource) bool {
	_, bad := it.refuse[r.Version]
	return bad
}

// sync brings what is live of an item to what should be, if its time has come.
func (g *Gate) sync(it *item, now time.Time) {
	want := it.want()
	if set := g.sets[it.name]; it.kind == typeEndpoint && want == nil && set != nil && len(set.clusters) > 0 {
		switch {
		case it.live != nil && !it.isRefused(&delta.Resource{Version: it.base}):
			g.track(it) // Envoy keeps what it has
			return
		case it.good != nil && !it.isRefused(it.good):
			want = it.good
		default:
			want = noEndpoints(it.name) // without any answer it would wait
		}
	}
	if c := g.clusters[it.name]; it.kind == typeCluster && want != nil {
		c.isIdle = false
	}
	if version(want) == it.base && (want == nil) == (it.live == nil) {
		delete(g.late, it.key)
		g.track(it)
		g.forget(it)
		return
	}
	if !g.due(it, want, now) {
		if want != nil || it.kind == typeScope {
			g.late[it.key] = struct{}{} // what goes otherwise is touched when it is time
		}
		g.track(it)
		return
	}
	delete(g.late, it.key)
	it.since = time.Time{}
	g.push(it, want)
	if want == nil {
		g.keep(it.key, nil)
	}
}

// due says whether an item may change now.
func (g *Gate) due(it *item, want *delta.Resource, now time.Time) bool {
	switch it.kind {
	case typeCluster:
		if want != nil {
			return g.isFurnished(want) || g.waited(it, now)
		}
		c := g.clusters[it.name]
		if c.uses > 0 || c.isIdle {
			return false
		}
		c.isIdle = true
		g.newlyIdle = append(g.newlyIdle, it.name)
		return false
	case typeScope:
		if want == nil {
			return g.open[typeListener] == 0
		}
		name, err := readScope(want)
		return err != nil || g.routesLive(name) || g.waited(it, now)
	case typeListener:
		if g.withholdsKeys(it, want) {
			return false
		}
		return want == nil || g.dueListener(it, want) || g.waited(it, now)
	default:
		return true
	}
}

// dueListener: a listener that is new to an Envoy that already routes waits until
// Envoy has the routes that it leads to; its first requests would find none. Any waits
// for the secrets and clusters that it names itself.
func (g *Gate) dueListener(it *item, want *delta.Resource) bool {
	needs := it.needs(want)
	for _, name := range needs.routes {
		if !g.routesLive(name) {
			return false
		}
	}
	if !g.hasSecrets(needs.secrets) || !g.hasClusters(needs.clusters) {
		return false
	}
	return it.live != nil || len(g.accepting) == 0 || g.open[typeScope]+g.open[typeRoute] == 0
}

// waited says whether an item has waited for others as long as it may.
func (g *Gate) waited(it *item, now time.Time) bool {
	if it.since.IsZero() {
		it.since = now
	}
	return !now.Before(it.since.Add(waitGrace))
}

// push makes r live; nil takes the item away.
func (g *Gate) push(it *item, r *delta.Resource) {
	old := it.live
	it.live, it.base = r, version(r)
	it.acked, it.known, it.renewed = "", false, false
	g.out = append(g.out, delta.Change{Type: it.kind, Name: it.name, Resource: r})
	switch it.kind {
	case typeCluster:
		g.pushedCluster(g.clusters[it.name], old)
	case typeScope, typeListener:
		g.recount(it)
	}
	if it.kind == typeListener && r == nil {
		delete(g.accepting, it.name)
		delete(g.leading, it.name)
		delete(g.retries, it.key)
		delete(g.witness.looking, it.name)
		it.serving, it.accepts = false, nil
		g.trackRoutes()
	}
	g.track(it)
	g.forget(it)
}

// forget drops an item of which nothing is left.
func (g *Gate) forget(it *item) {
	if it.target != nil || it.live != nil {
		return
	}
	if c := g.clusters[it.name]; it.kind == typeCluster && c != nil {
		if c.uses > 0 {
			return
		}
		g.landed(c)
		delete(g.clusters, it.name)
		delete(g.polling, it.name)
		delete(g.unwarm, it.name)
	}
	g.blame(it, 0, "")
	delete(g.late, it.key)
	delete(g.retries, it.key)
	if it.kind == typeListener || it.kind == typeScope {
		// Whether Envoy has let go of it decides when its routes may go.
		if _, waits := g.outstanding[it.key]; waits {
			return
		}
	}
	delete(g.outstanding, it.key)
	delete(g.items, it.key)
}

// recount counts which route configurations a live scope or listener names.
func (g *Gate) recount(it *item) {
	var names []string
	if it.live != nil {
		if it.kind == typeScope {
			if name, err := readScope(it.live); err == nil {
				names = []string{name}
			}
		} else {
			names = it.needs(it.live).routes
		}
	}
	for _, n := range it.names {
		if g.users[n]--; g.users[n] == 0 {
			delete(g.users, n)
			g.touch(key{typeRoute, n})
		}
	}
	for _, n := range names {
		if g.users[n]++; g.users[n] == 1 {
			g.touch(key{typeRoute, n})
		}
	}
	it.names = names
}

// park notes what must be looked at again when others have moved.
func (g *Gate) park(now time.Time) {
	for _, name := range g.newlyIdle {
		if c := g.clusters[name]; c != nil && c.isIdle {
			c.idleAt = now
			g.idle = append(g.idle, idleCluster{name, now})
		}
	}
	g.newlyIdle = g.newlyIdle[:0]
	g.expire(now)
}

// expire takes away clusters whose drain time is over.
func (g *Gate) expire(now time.Time) {
	for len(g.idle) > 0 && !now.Before(g.idle[0].at.Add(g.drain)) {
		name, at := g.idle[0].name, g.idle[0].at
		g.idle = g.idle[1:]
		c := g.clusters[name]
		if c == nil || !c.isIdle || !c.idleAt.Equal(at) {
			continue
		}
		c.isIdle = false
		if c.target == nil && c.uses == 0 && c.live != nil {
			set := c.info.set
			delete(g.late, c.key)
			g.push(c.item, nil)
			g.keep(c.key, nil)
			if set != "" {
				g.touch(key{typeEndpoint, set})
			}
		}
	}
}

// retryListeners tries refused listeners again.
func (g *Gate) retryListeners(now time.Time) {
	if len(g.retries) == 0 {
		return
	}
	for _, k := range slices.SortedFunc(maps.Keys(g.retries), compareKeys) {
		at, it := g.retries[k], g.items[k]
		if it == nil || it.target == nil {
			delete(g.retries, k)
			continue
		}
		_, bad := it.refuse[it.target.Version]
		switch {
		case !bad:
			delete(g.retries, k)
		case at.IsZero():
			g.retries[k] = now.Add(listenerRetry)
		case !now.Before(at):
			delete(g.retries, k)
			delete(it.refuse, it.target.Version)
			g.pushAgain(it, it.target)
		}
	}
}

// pushAgain makes r live under another version, so that Envoy is sent it even if it
// has answered about the same content before.
func (g *Gate) pushAgain(it *item, r *delta.Resource) {
	g.bumps++
	base, again := version(r), *r
	if it.live == r {
		base = it.base
	}
	again.Version = base + "~" + strconv.FormatUint(g.bumps, 10)
	g.push(it, &again)
	it.base = base
	g.track(it)
}

// wake is the next time at which something is due by time alone.
func (g *Gate) wake(now time.Time) time.Time {
	var next time.Time
	if len(g.idle) > 0 {
		next = g.idle[0].at.Add(g.drain)
	}
	for _, at := range g.retries {
		if at.IsZero() {
			at = now.Add(listenerRetry)
		}
		next = sooner(next, at)
	}
	for k := range g.late {
		if it := g.items[k]; it != nil && !it.since.IsZero() {
			next = sooner(next, it.since.Add(waitGrace))
		}
	}
	for _, at := range g.graceShard {
		next = sooner(next, at)
	}
	return next
}

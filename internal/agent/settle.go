package agent

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// problemKind says in what way a resource is not run as the plane wants it.
type problemKind = agentv1.Problem_Kind

const (
	problemRefused = agentv1.Problem_KIND_REFUSED
	problemWaiting = agentv1.Problem_KIND_WAITING
)

// maxMessage bounds Envoy's words in a problem, bytes.
const maxMessage = 1024

// maxCheckpoints bounds the checkpoints that are remembered while Envoy is away.
const maxCheckpoints = 1024

// debt says which checkpoints wait for a resource.
type debt struct {
	owes   bool   // until Envoy has settled it
	owed   uint64 // the oldest checkpoint that waits
	wanted uint64 // the one that the newest version belongs to
	ahead  steps  // of a resource that is accepted as a whole
}

// steps are versions that the plane wanted and Envoy has not accepted, oldest first.
type steps []step

// step is a version, with the checkpoint that it came with and the oldest that waits for it.
type step struct {
	version string
	ordinal uint64
	since   uint64
}

// maxSteps bounds what is remembered of a resource that changes while Envoy is away.
const maxSteps = 16

// add notes that the plane wants another version. Of too many the second goes, and what waits
// for it waits for the one after it.
func (s steps) add(version string, ordinal uint64) steps {
	if len(s) == maxSteps {
		s[2].since = s[1].since
		s = slices.Delete(s, 1, 2)
	}
	return append(s, step{version, ordinal, ordinal})
}

// accept returns what is left once Envoy has accepted a version that was put together at a
// checkpoint: what came later is not in it, though it may look the same.
func (s steps) accept(version string, at uint64) steps {
	for i, step := range slices.Backward(s) {
		if step.version == version && step.ordinal <= at {
			return s[i+1:]
		}
	}
	return s
}

// owe: the checkpoint waits for the resource.
func (d *debt) owe(ordinal uint64) {
	if !d.owes || ordinal < d.owed {
		d.owed = ordinal
	}
	d.owes, d.wanted = true, max(d.wanted, ordinal)
}

// pay: Envoy accepted a version. What is owed is the first after it.
func (d *debt) pay(version string) {
	d.ahead = d.ahead.accept(version, d.wanted)
	next := d.wanted
	if len(d.ahead) > 0 {
		next = d.ahead[0].since
	}
	d.owed = max(d.owed, next)
}

// settle brings an item's place among the unsettled up to date.
func (g *Gate) settle(it *item) {
	g.mark(it.key, &it.debt, g.isDone(it), g.isAsked(it))
}

// resettle is settle for a resource that may not be there.
func (g *Gate) resettle(k key) {
	if it := g.items[k]; it != nil {
		g.settle(it)
	}
}

// isDone: Envoy accepted what the plane wants, and serves it, or the problem is known.
func (g *Gate) isDone(it *item) bool {
	switch {
	case it.fault != "":
		return true
	case it.target == nil:
		return it.live == nil && it.known || it.kind != typeScope && it.kind != typeListener
	default:
		return it.live != nil && it.known && it.acked == it.live.Version && it.base == it.target.Version && g.isUsed(it)
	}
}

// isUsed: what Envoy accepted of an item it uses, as far as that can be seen.
func (g *Gate) isUsed(it *item) bool { return it.kind != typeListener || it.active || !g.witness.able }

// isAsked: Envoy has a reason to ask for the item.
func (g *Gate) isAsked(it *item) bool {
	switch it.kind {
	case typeEndpoint:
		if s := g.sets[it.name]; s != nil {
			for name := range s.clusters {
				// One that Envoy refused does not make it ask.
				if c := g.clusters[name]; c != nil {
					if _, bad := c.refuse[c.base]; !bad {
						return true
					}
				}
			}
		}
		return false
	case typeSecret:
		return false // what needs it is warm only with it
	case typeScope:
		return len(g.leading) > 0
	default:
		return true
	}
}

// Unproxied says that no Envoy will ever ask: what is for one is nothing to the gate, also where an
// agent remembers it.
func (g *Gate) Unproxied() { g.unproxied = true }

// mark notes whether a resource is settled. One that Envoy does not ask for is not
// waited for, but owes what it owed if Envoy asks later.
func (g *Gate) mark(k key, d *debt, done, asked bool) {
	if done {
		d.owes, d.ahead = false, nil
	}
	_, was := g.unsettled[k]
	switch waits := asked && !done; {
	case waits:
		if !was {
			g.open[k.kind]++
		}
		if !d.owes {
			d.owe(g.ordinal)
		}
		g.unsettled[k] = d
	case was:
		delete(g.unsettled, k)
		g.unsettled = shrunk(g.unsettled)
		g.open[k.kind]--
	}
}

// settleRoutes looks at scopes and routes again after the first listener that leads
// requests came or the last one went: only then does Envoy ask for them.
func (g *Gate) settleRoutes() {
	for k, it := range g.items {
		if k.kind == typeScope {
			g.settle(it)
		}
	}
	for _, s := range g.shards {
		g.settleShard(s)
	}
}

// Routed says that Envoy has answered about everything that leads requests.
func (g *Gate) Routed() bool {
	return g.open[typeListener]+g.open[typeScope]+g.open[typeRoute] == 0
}

// blame notes a problem of an item, or with an empty message that there is none.
func (g *Gate) blame(it *item, kind problemKind, message string) {
	if kind != 0 && message == "" {
		message = "no reason given"
	}
	if it.fault == message && it.faultKind == kind {
		return
	}
	it.fault, it.faultKind = message, kind
	g.problems++
	if message == "" {
		delete(g.faulty, it.key)
		g.faulty = shrunk(g.faulty)
	} else {
		g.faulty[it.key] = struct{}{}
	}
}

// Settled is the largest checkpoint of which everything is accepted by Envoy or
// listed in Problems; the zero revision if there is none. It does not go back while
// Envoy keeps its stream: what Envoy has reason to ask for only now, because a
// listener that it refused came to life, say, holds up later checkpoints only.
func (g *Gate) Settled() delta.Revision {
	limit := g.ordinal
	for _, d := range g.unsettled {
		limit = min(limit, d.owed)
	}
	best := -1
	for i, c := range g.checkpoints {
		if c.ordinal < limit || c.ordinal <= g.floor {
			best = i
		}
	}
	if best < 0 {
		return delta.Revision{}
	}
	g.checkpoints = g.checkpoints[best:]
	g.floor = g.checkpoints[0].ordinal
	return g.checkpoints[0].revision
}

// ProblemsVersion changes whenever Problems may have changed.
func (g *Gate) ProblemsVersion() uint64 { return g.problems }

// Problems lists what Envoy does not run as the plane wants it, in a fixed order.
func (g *Gate) Problems() []*agentv1.Problem {
	var list []*agentv1.Problem
	for _, k := range slices.SortedFunc(maps.Keys(g.faulty), compareKeys) {
		if k.kind == typeRoute {
			if s := g.shards[k.name]; s != nil {
				list = append(list, g.shardProblems(s)...)
			}
			continue
		}
		it := g.items[k]
		list = append(list, &agentv1.Problem{
			Kind: it.faultKind, TypeUrl: string(k.kind), Name: k.name, Version: version(it.target),
			Message: cut(advise(it, it.fault), maxMessage),
		})
	}
	return list
}

// cut shortens a text to at most n bytes, at a rune's border.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}

// advise says what to do about a listener's port, which is what is mostly wrong
// with a listener, before Envoy's own words.
func advise(it *item, message string) string {
	message = strings.TrimSpace(message)
	if it.kind != typeListener || it.target == nil || !bindRefused(message) {
		return message
	}
	port := listenerPort(it.target)
	if port == 0 {
		return message
	}
	p := strconv.Itoa(port)
	what := "port " + p + " is in use by another process of this machine: find it with `ss -ltnp 'sport = :" + p +
		"'` and stop it, or give the listener another port"
	if strings.Contains(message, "Permission denied") {
		what = "Envoy may not listen at port " + p + ": run the agent as root or with the capability CAP_NET_BIND_SERVICE, or, as another user, give Envoy's binary the right with " +
			"`setcap cap_net_bind_service=+ep`, or give the listener a port above 1023"
	}
	return what + "; it is tried again every " + listenerRetry.String() + ": " + message
}

package gate

import (
	"slices"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// problemKind says in what way a resource is not run as the plane wants it.
type problemKind = agentv1.Problem_Kind

const (
	problemRefused = agentv1.Problem_KIND_REFUSED
	problemWaiting = agentv1.Problem_KIND_WAITING
)

// maxCheckpoints bounds the checkpoints that are remembered while Envoy is away.
const maxCheckpoints = 1024

// debt says which checkpoints wait for a resource.
type debt struct {
	owes   bool    // until Envoy has applied it
	owed   uint64  // the oldest checkpoint that waits
	wanted uint64  // the one that the newest version belongs to
	ahead  backlog // of a resource that is accepted as a whole
}

// backlog are versions that the plane wanted and Envoy has not accepted, oldest first.
type backlog []wantedVersion

// wantedVersion is a version, with the checkpoint that it came with and the oldest that waits for it.
type wantedVersion struct {
	version string
	ordinal uint64
	since   uint64
}

// maxBacklog bounds what is remembered of a resource that changes while Envoy is away.
const maxBacklog = 16

// add notes that the plane wants another version. Of too many the second goes, and what waits
// for it waits for the one after it.
func (b backlog) add(version string, ordinal uint64) backlog {
	if len(b) == maxBacklog {
		b[2].since = b[1].since
		b = slices.Delete(b, 1, 2)
	}
	return append(b, wantedVersion{version, ordinal, ordinal})
}

// accept returns what is left once Envoy has accepted a version that was put together at a
// checkpoint: what came later is not in it, though it may look the same.
func (b backlog) accept(version string, at uint64) backlog {
	for i, w := range slices.Backward(b) {
		if w.version == version && w.ordinal <= at {
			return b[i+1:]
		}
	}
	return b
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

// track notes whether Envoy has yet to apply an item.
func (g *Gate) track(it *item) {
	g.mark(it.key, &it.debt, g.isApplied(it), g.isAsked(it))
}

// retrack is track for a resource that may not be there.
func (g *Gate) retrack(k key) {
	if it := g.items[k]; it != nil {
		g.track(it)
	}
}

// isApplied: Envoy accepted what the plane wants, and serves it, or the problem is known.
func (g *Gate) isApplied(it *item) bool {
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

// mark notes whether a resource is outstanding: Envoy has yet to apply it. One that Envoy does not ask for is not
// waited for, but owes what it owed if Envoy asks later.
func (g *Gate) mark(k key, d *debt, done, asked bool) {
	if done {
		d.owes, d.ahead = false, nil
	}
	_, was := g.outstanding[k]
	switch waits := asked && !done; {
	case waits:
		if !was {
			g.open[k.kind]++
		}
		if !d.owes {
			d.owe(g.ordinal)
		}
		g.outstanding[k] = d
	case was:
		delete(g.outstanding, k)
		g.outstanding = shrunk(g.outstanding)
		g.open[k.kind]--
	}
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

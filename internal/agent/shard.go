package agent

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// shard is one route configuration: what the plane wants of it, what Envoy accepted
// of it, and which of its virtual hosts stay behind.
type shard struct {
	name   string
	target *delta.Resource
	table  *routeTable // of target; nil without one
	debt
	// behind are the forms of virtual hosts, by their hash, that Envoy has not accepted; those
	// of "" are of the other fields.
	behind map[string]steps

	// What an Envoy last accepted, virtual host by virtual host.
	good      map[string]*form
	goodShell []byte
	goodHash  string // of goodShell; empty when none was accepted
	kept      string // version last given to the memory

	live     *composition   // what the Set holds
	pend     []*composition // pushed and not answered, oldest first; the last is live
	stale    bool           // live was put together before target came
	done     bool           // Envoy accepted live
	rejected bool           // Envoy refused live
	ackSeq   uint64         // when Envoy accepted live
	missed   int            // how often in a row Envoy did not use what it accepted
	// Envoy shows what it uses under the version by which that content came first: shown are
	// those that it may be. nil: not known, since the content came by an earlier stream.
	shownContent string
	shown        []string

	refuse    map[string]map[string]string // virtual host -> hash of a form -> why
	refShell  map[string]string            // the same for the other fields
	dead      string                       // a target version that cannot be mended, and why
	deadWhy   string
	waiting   map[string]*wait
	suspects  [][]string // groups of virtual hosts to try, after a refusal
	trial     []string   // the group that live tries
	onTrial   bool
	withShell bool // live tries the other fields alone
}

// wait is a virtual host whose form cannot go live yet.
type wait struct {
	since   time.Time
	cluster string
	overdue bool
}

// composition is a route configuration as it was put together for Envoy.
type composition struct {
	version string
	forms   map[string]*form
	shell   []byte
	hash    string // of shell
	content string // hash of all
	body    *delta.Resource
	ordinal uint64 // of the checkpoint when it was put together
}

func newShard(name string) *shard {
	return &shard{
		name: name, good: map[string]*form{}, refuse: map[string]map[string]string{},
		refShell: map[string]string{}, waiting: map[string]*wait{},
	}
}

func (s *shard) key() key { return key{typeRoute, s.name} }

// targetShard takes a new version of a route configuration, or its removal.
func (g *Gate) targetShard(name string, r *delta.Resource) error {
	s := g.shards[name]
	if r == nil {
		if s == nil || s.target == nil {
			return nil
		}
		s.target, s.table = nil, nil
		s.owe(g.ordinal)
		for vh := range s.waiting {
			g.stopWaiting(s, vh)
		}
		g.settleShard(s)
		g.touch(s.key())
		return nil
	}
	if s != nil && s.target != nil && s.target.Version == r.Version {
		return nil
	}
	var known map[string]*form
	if s != nil && s.table != nil {
		known = s.table.forms
	}
	table, err := readRoutes(r, known)
	if err != nil {
		return err
	}
	if s == nil {
		s = newShard(name)
		g.shards[name] = s
	}
	s.fallBehind(table, g.ordinal)
	s.target, s.table, s.stale = r, table, true
	s.owe(g.ordinal)
	s.dead, s.deadWhy = "", ""
	for vh, hashes := range s.refuse {
		maps.DeleteFunc(hashes, func(h, _ string) bool { return !s.speaksOf(vh, h) })
		if len(hashes) == 0 {
			delete(s.refuse, vh)
		}
	}
	maps.DeleteFunc(s.refShell, func(h, _ string) bool { return h != table.shellHash && h != s.goodHash })
	g.settleShard(s)
	g.touch(s.key())
	return nil
}

// fallBehind notes what a table wants that the one before did not.
func (s *shard) fallBehind(table *routeTable, ordinal uint64) {
	if s.behind == nil {
		s.behind = map[string]steps{}
	}
	before := &routeTable{}
	if s.table != nil {
		before = s.table
	}
	if before.shellHash != table.shellHash {
		s.behind[""] = s.behind[""].add(table.shellHash, ordinal)
	}
	for name, f := range table.forms {
		if was := before.forms[name]; was == nil || was.hash != f.hash {
			s.behind[name] = s.behind[name].add(f.hash, ordinal)
		}
	}
	for name := range before.forms {
		if table.forms[name] == nil {
			s.behind[name] = s.behind[name].add("", ordinal)
		}
	}
}

// pay: Envoy accepted a composition. What is owed is the oldest of what it does not have. One virtual host that waits holds up nothing but what came after it.
func (s *shard) pay(c *composition) {
	next := s.wanted
	for name, list := range s.behind {
		hash := ""
		if f := c.forms[name]; f != nil {
			hash = f.hash
		} else if name == "" {
			hash = c.hash
		}
		if list = list.accept(hash, c.ordinal); len(list) == 0 {
			delete(s.behind, name)
			continue
		}
		s.behind[name] = list
		next = min(next, list[0].since)
	}
	s.owed = max(s.owed, next)
}

// speaksOf says whether a form is the wanted or the last accepted one of a virtual
// host, or its stand-in.
func (s *shard) speaksOf(vh, hash string) bool {
	f, ok := s.table.forms[vh]
	return ok && (f.hash == hash || standIn(vh, f).hash == hash) || s.good[vh] != nil && s.good[vh].hash == hash
}

// restoreShard puts back what an Envoy had accepted before the agent began.
func (g *Gate) restoreShard(name string, r *delta.Resource) {
	s := g.shards[name]
	var known map[string]*form
	if s == nil {
		s = newShard(name)
		g.shards[name] = s
	} else if s.table != nil {
		known = s.table.forms
	}
	table, err := readRoutes(r, known)
	if err != nil {
		return
	}
	for vh, f := range table.forms {
		s.good[vh] = f
		g.use(f, 1)
	}
	s.goodShell, s.goodHash, s.kept = table.shell, table.shellHash, r.Version
	g.touch(s.key())
}

// reconnectShard: Envoy opened a stream and has yet to say what it holds.
func (g *Gate) reconnectShard(s *shard, fresh bool) {
	s.done, s.rejected = false, false
	s.shownContent, s.shown = "", nil
	s.owe(0)
	if fresh {
		for _, c := range s.pend {
			g.useAll(c.forms, -1)
		}
		s.pend = nil
		if s.live != nil {
			s.pend = []*composition{s.live}
			g.useAll(s.live.forms, 1)
		}
		s.suspects, s.trial, s.onTrial, s.withShell = nil, nil, false, false
	}
	g.settleShard(s)
	g.touch(s.key())
}

// unfollowedShard: Envoy does not ask for the route configuration, so whatever was
// pushed before was never sent.
func (g *Gate) unfollowedShard(s *shard) {
	if len(s.pend) < 2 {
		return
	}
	for _, c := range s.pend[:len(s.pend)-1] {
		g.useAll(c.forms, -1)
	}
	s.pend = slices.Clone(s.pend[len(s.pend)-1:])
}

func (g *Gate) useAll(forms map[string]*form, by int) {
	for _, f := range forms {
		g.use(f, by)
	}
}

// syncShard puts the route configuration together anew and pushes what differs.
func (g *Gate) syncShard(s *shard, now time.Time) {
	delete(g.late, s.key())
	s.stale = false
	if s.target == nil {
		g.removeShard(s)
		return
	}
	if s.dead == s.target.Version {
		g.settleShard(s)
		return
	}
	c := g.compose(s, now)
	for s.live != nil && s.onTrial && c.version == s.live.version && (s.done || s.rejected) {
		s.nextTrial() // the group has nothing to try any more
		c = g.compose(s, now)
	}
	switch {
	case s.live == nil || c.version != s.live.version:
		c.ordinal = g.ordinal
		s.live, s.done, s.rejected = c, false, false
		s.pend = append(s.pend, c)
		g.useAll(c.forms, 1)
		g.out = append(g.out, delta.Change{Type: typeRoute, Name: s.name, Resource: c.body})
	case s.rejected && !s.onTrial:
		s.giveUp("refused again, though each of its virtual hosts was accepted")
	}
	g.settleShard(s)
}

// removeShard takes the route configuration away once no listener leads to it.
func (g *Gate) removeShard(s *shard) {
	if s.live != nil && (g.users[s.name] > 0 || g.open[typeListener] > 0 || g.open[typeScope] > 0) {
		g.late[s.key()] = struct{}{}
		return
	}
	if s.live != nil {
		g.out = append(g.out, delta.Change{Type: typeRoute, Name: s.name})
	}
	if s.kept != "" {
		g.keep(s.key(), nil)
	}
	for _, c := range s.pend {
		g.useAll(c.forms, -1)
	}
	g.useAll(s.good, -1)
	delete(g.graceShard, s.name)
	delete(g.witness.fresh, s.name)
	delete(g.witness.unused, s.name)
	g.mark(s.key(), &s.debt, true, true)
	g.blameShard(s, false)
	delete(g.shards, s.name)
}

// compose chooses a form for every virtual host.
func (g *Gate) compose(s *shard, now time.Time) *composition {
	c := &composition{forms: map[string]*form{}, shell: s.table.shell, hash: s.table.shellHash}
	if _, bad := s.refShell[c.hash]; s.goodHash != "" && c.hash != s.goodHash && (bad || s.onTrial && !s.withShell) {
		c.shell, c.hash = s.goodShell, s.goodHash
	}
	for name := range s.waiting {
		if _, ok := s.table.forms[name]; !ok {
			g.stopWaiting(s, name)
		}
	}
	whole := c.hash == s.table.shellHash
	for _, name := range s.table.order {
		f := g.choose(s, name, now)
		if s.onTrial && !slices.Contains(s.trial, name) {
			f = g.fallBack(s, name)
		}
		if f != nil {
			c.forms[name] = f
		}
		whole = whole && f != nil && f.hash == s.table.forms[name].hash
	}
	if at := s.grace(); !at.IsZero() {
		g.graceShard[s.name] = at
	} else {
		delete(g.graceShard, s.name)
	}
	// The virtual hosts' order says nothing: their domains are disjoint.
	sum := []byte(c.hash)
	for _, name := range s.table.order {
		if f := c.forms[name]; f != nil {
			sum = append(sum, f.hash...)
		}
	}
	if c.content = hashOf(sum); whole {
		c.version, c.body = s.target.Version, s.target
		return c
	}
	c.version = "part-" + c.content
	if s.live != nil && s.live.version == c.version {
		c.body = s.live.body
		return c
	}
	value := slices.Clone(c.shell)
	for _, name := range s.table.order {
		if f := c.forms[name]; f != nil {
			value = protowire.AppendTag(value, virtualHostsField, protowire.BytesType)
			value = protowire.AppendBytes(value, f.raw)
		}
	}
	c.body = &delta.Resource{
		Name: s.name, Version: c.version,
		Body: &anypb.Any{TypeUrl: string(typeRoute), Value: value},
	}
	return c
}

// choose picks the form of a virtual host that may be live now; nil is none.
func (g *Gate) choose(s *shard, name string, now time.Time) *form {
	want := s.table.forms[name]
	refused := s.isRefused(name, want)
	if !refused {
		missing := g.missing(want)
		if missing == "" {
			g.stopWaiting(s, name)
			return want
		}
		g.startWaiting(s, name, missing, now)
	} else {
		g.stopWaiting(s, name)
	}
	if s.live != nil {
		if f := s.live.forms[name]; f != nil && !f.standIn && !s.isRefused(name, f) && g.missing(f) == "" {
			return f
		}
	}
	if f := g.fallBack(s, name); f != nil {
		return f
	}
	// Nothing of it works. A host that never was live is left out, as before, until
	// it is clear that this lasts; then, and for one that was, its requests must not
	// fall to a wildcard host, which may be another team's.
	w := s.waiting[name]
	if refused || s.good[name] != nil || w != nil && w.overdue {
		if f := standIn(name, want); !s.isRefused(name, f) {
			return f
		}
	}
	return nil
}

// fallBack is the last accepted form if it can be live.
func (g *Gate) fallBack(s *shard, name string) *form {
	if f := s.good[name]; f != nil && !s.isRefused(name, f) && g.missing(f) == "" {
		return f
	}
	return nil
}

// missing is the first cluster of a form that is not warm; empty when all are.
func (g *Gate) missing(f *form) string {
	for _, name := range f.clusters {
		if !g.isReady(name) {
			return name
		}
	}
	return ""
}

func (s *shard) isRefused(name string, f *form) bool {
	_, bad := s.refuse[name][f.hash]
	return bad
}

func (g *Gate) startWaiting(s *shard, name, missing string, now time.Time) {
	w := s.waiting[name]
	if w == nil {
		w = &wait{since: now}
		s.waiting[name] = w
	}
	if w.cluster != missing {
		old := w.cluster
		w.cluster = missing
		if old != "" && !s.waitsFor(old) {
			g.unwait(old, s.name)
		}
	}
	if g.waiters[missing] == nil {
		g.waiters[missing] = map[string]struct{}{}
	}
	g.waiters[missing][s.name] = struct{}{}
	w.overdue = w.overdue || !now.Before(w.since.Add(waitGrace))
}

func (g *Gate) stopWaiting(s *shard, name string) {
	w := s.waiting[name]
	if w == nil {
		return
	}
	delete(s.waiting, name)
	if !s.waitsFor(w.cluster) {
		g.unwait(w.cluster, s.name)
	}
}

func (s *shard) waitsFor(cluster string) bool {
	for _, w := range s.waiting {
		if w.cluster == cluster {
			return true
		}
	}
	return false
}

func (g *Gate) unwait(cluster, shard string) {
	delete(g.waiters[cluster], shard)
	if len(g.waiters[cluster]) == 0 {
		delete(g.waiters, cluster)
	}
}

// grace is when the next wait of the shard becomes a problem; zero: none will.
func (s *shard) grace() time.Time {
	var next time.Time
	for _, w := range s.waiting {
		if !w.overdue {
			next = sooner(next, w.since.Add(waitGrace))
		}
	}
	return next
}

// settleShard brings the shard's place among the unsettled and the faulty up to date.
func (g *Gate) settleShard(s *shard) {
	done := s.target == nil || s.done && !s.onTrial && !s.stale || s.dead == s.target.Version
	for _, w := range s.waiting {
		done = done && w.overdue
	}
	if done {
		s.behind = nil
	}
	g.mark(s.key(), &s.debt, done, len(g.leading) > 0 && g.users[s.name] > 0)
	g.blameShard(s, s.target != nil)
}

// blameShard notes whether the shard has problems.
func (g *Gate) blameShard(s *shard, exists bool) {
	_, was := g.faulty[s.key()]
	is := exists && len(g.shardProblems(s)) > 0
	if is {
		g.faulty[s.key()] = struct{}{}
	} else {
		delete(g.faulty, s.key())
		g.faulty = shrunk(g.faulty)
	}
	if was || is {
		g.problems++
	}
}

// shardProblems lists the virtual hosts that are not live as wanted.
func (g *Gate) shardProblems(s *shard) []*agentv1.Problem {
	var list []*agentv1.Problem
	add := func(kind problemKind, name, message string) {
		list = append(list, &agentv1.Problem{
			Kind: kind, TypeUrl: string(typeRoute), Name: name, Version: version(s.target), Message: cut(message, maxMessage),
		})
	}
	if s.dead != "" {
		add(problemRefused, s.name, s.deadWhy)
	}
	if s.table == nil {
		return list
	}
	if why, bad := s.refShell[s.table.shellHash]; bad {
		add(problemRefused, s.name, why)
	}
	if s.missed > 1 && s.dead == "" {
		add(problemWaiting, s.name, unusedRoutes)
	}
	if len(s.refuse) == 0 && len(s.waiting) == 0 {
		return list
	}
	for _, name := range s.table.order {
		if why, bad := s.refuse[name][s.table.forms[name].hash]; bad {
			add(problemRefused, s.name+"/"+name, why)
		} else if w := s.waiting[name]; w != nil && w.overdue {
			add(problemWaiting, s.name+"/"+name, g.whyWaiting(w.cluster))
		}
	}
	return list
}

package gate

import (
	"maps"
	"slices"
	"time"

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
	behind map[string]backlog

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

// targetShard notes a new version of a route configuration, or its removal.
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
		g.trackShard(s)
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
	g.trackShard(s)
	g.touch(s.key())
	return nil
}

// fallBehind notes what a table wants that the one before did not.
func (s *shard) fallBehind(table *routeTable, ordinal uint64) {
	if s.behind == nil {
		s.behind = map[string]backlog{}
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
	g.trackShard(s)
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
		g.trackShard(s)
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
	g.trackShard(s)
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

// trackShard notes whether Envoy has yet to apply the shard, and whether it has problems.
func (g *Gate) trackShard(s *shard) {
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
			Kind: kind, TypeUrl: string(typeRoute), Name: name, Version: version(s.target), Message: message,
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

const unusedRoutes = "the proxy accepted the routes but does not use them"

// shows notes under which version Envoy shows what it accepted.
func (s *shard) shows(c *composition) {
	switch {
	case s.shownContent == "":
		s.shownContent = c.content
	case s.shownContent != c.content:
		s.shownContent, s.shown = c.content, []string{c.version}
	case s.shown != nil && !slices.Contains(s.shown, c.version):
		s.shown = append(s.shown, c.version)
	}
}

// mayShow says whether what Envoy shows under a version may be what it accepted.
func (s *shard) mayShow(version string) bool {
	return s.shown == nil || slices.Contains(s.shown, version)
}

// giveUp leaves Envoy with what it has until the plane sends another version.
func (s *shard) giveUp(message string) {
	s.dead, s.deadWhy = s.target.Version, message
	s.suspects, s.trial, s.onTrial, s.withShell = nil, nil, false, false
}

// changed names the virtual hosts of live that differ from the last good state.
func (s *shard) changed() []string {
	var names []string
	for _, name := range s.table.order {
		if f := s.live.forms[name]; f != nil && (s.good[name] == nil || s.good[name].hash != f.hash) {
			names = append(names, name)
		}
	}
	return names
}

// nextTrial tries the next group of suspects, or ends the search.
func (s *shard) nextTrial() {
	for len(s.suspects) > 0 {
		group := s.suspects[0]
		s.suspects = s.suspects[1:]
		s.withShell = group == nil
		s.trial = nil
		for _, name := range group {
			if s.table.forms[name] != nil {
				s.trial = append(s.trial, name)
			}
		}
		if s.withShell || len(s.trial) > 0 {
			s.onTrial = true
			return
		}
	}
	s.suspects, s.trial, s.onTrial, s.withShell = nil, nil, false, false
}

// trackRoutes looks at scopes and routes again after the first listener that leads
// requests came or the last one went: only then does Envoy ask for them.
func (g *Gate) trackRoutes() {
	for k, it := range g.items {
		if k.kind == typeScope {
			g.track(it)
		}
	}
	for _, s := range g.shards {
		g.trackShard(s)
	}
}

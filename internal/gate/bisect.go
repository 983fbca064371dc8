package gate

import (
	"slices"

	"fairlead.dev/internal/delta"
)

// observeShard notes Envoy's answer about a route configuration.
func (g *Gate) observeShard(e delta.Event) {
	s := g.shards[e.Name]
	if s == nil {
		return
	}
	if e.Refused {
		if s.live != nil && s.live.version == e.Version {
			g.refusedShard(s, e.Message)
		}
		return
	}
	at := len(s.pend) - 1
	for at >= 0 && s.pend[at].version != e.Version {
		at--
	}
	if at < 0 {
		if s.live == nil || s.live.version != e.Version {
			return
		}
		g.acceptedShard(s, s.live)
		return
	}
	c := s.pend[at]
	for _, older := range s.pend[:at] {
		g.useAll(older.forms, -1)
	}
	s.pend = slices.Clone(s.pend[at:]) // c stays counted until good is
	g.acceptedShard(s, c)
	g.useAll(c.forms, -1)
	s.pend = s.pend[1:]
}

// acceptedShard makes what Envoy accepted the last good state.
func (g *Gate) acceptedShard(s *shard, c *composition) {
	for name, f := range s.good {
		// A form that is only left out for now stays something to fall back on.
		if now := c.forms[name]; now == nil && s.table != nil && s.table.forms[name] != nil || now != nil && now.standIn {
			continue
		}
		g.use(f, -1)
		delete(s.good, name)
	}
	for name, f := range c.forms {
		if f.standIn || s.good[name] != nil {
			continue
		}
		s.good[name] = f
		g.use(f, 1)
	}
	s.shows(c)
	s.goodShell, s.goodHash = c.shell, c.hash
	if s.kept != c.version {
		s.kept = c.version
		g.keep(s.key(), c.body)
	}
	if c == s.live {
		s.done = true
		g.doubtRoutes(s)
		s.nextTrial()
	}
	s.pay(c)
	g.trackShard(s)
	g.touch(s.key())
}

// refusedShard looks for the virtual host at fault: what changed since the last good
// state is tried in halves, each upon that state, until one stands alone.
func (g *Gate) refusedShard(s *shard, message string) {
	// Envoy keeps the accepted state; what was refused holds no cluster.
	for _, c := range s.pend {
		g.useAll(c.forms, -1)
	}
	s.pend = nil
	if s.table == nil {
		return
	}
	if s.withShell || s.live.hash != s.goodHash && s.goodHash != "" && len(s.changed()) == 0 {
		s.refShell[s.live.hash] = message
		s.nextTrial()
		g.trackShard(s)
		g.touch(s.key())
		return
	}
	changed := s.changed()
	if len(changed) == 0 && len(s.live.forms) > 0 {
		// This Envoy does not even take what an earlier one did: all are suspects.
		g.useAll(s.good, -1)
		s.good, s.goodShell, s.goodHash = map[string]*form{}, nil, ""
		changed = s.changed()
	}
	s.rejected = true
	switch {
	case len(changed) == 1:
		name := changed[0]
		if s.refuse[name] == nil {
			s.refuse[name] = map[string]string{}
		}
		s.refuse[name][s.live.forms[name].hash] = message
		s.nextTrial()
	case len(changed) > 1:
		half := len(changed) / 2
		s.suspects = append([][]string{changed[:half:half], changed[half:]}, s.suspects...)
		if s.goodHash != "" && s.live.hash != s.goodHash {
			s.suspects = append([][]string{nil}, s.suspects...) // the other fields first
		}
		s.nextTrial()
	default:
		s.giveUp(message)
	}
	g.trackShard(s)
	g.touch(s.key())
}

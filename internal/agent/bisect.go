package agent

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
)

// observeShard takes Envoy's answer about a route configuration.
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
	g.settleShard(s)
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
		g.settleShard(s)
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
	g.settleShard(s)
	g.touch(s.key())
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

// nextTrial takes the next group of suspects, or ends the search.
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

// standIn answers 503 for a virtual host of which no form can be live.
func standIn(name string, f *form) *form {
	if f.instead != nil {
		return f.instead
	}
	v := &routev3.VirtualHost{
		Name: name, Domains: f.domains,
		Routes: []*routev3.Route{{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{
				Status: 503,
				Body: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{
					InlineString: "the routes of this host are not ready at this edge\n",
				}},
			}},
		}},
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(v)
	if err != nil {
		raw = nil // not valid UTF-8: the same is true of the form itself
	}
	f.instead = &form{raw: raw, hash: hashOf(raw), domains: f.domains, standIn: true}
	return f.instead
}

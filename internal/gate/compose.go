package gate

import (
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"fairlead.dev/internal/delta"
)

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

package gate

import (
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
)

// applying is a gate with an Envoy that accepts what the test says.
type applying struct {
	*testing.T
	*Gate
	now      time.Time
	revision uint64
}

func newApplying(t *testing.T) *applying {
	t.Helper()
	s := &applying{T: t, Gate: newGate(), now: time.Unix(1_000_000, 0)}
	s.connected(nil, nil)
	return s
}

// wants has the plane want something with the next revision.
func (s *applying) wants(changes ...delta.Change) {
	s.Helper()
	if err := s.Target(changes); err != nil {
		s.Fatal(err)
	}
	s.revision++
	s.Checkpoint(delta.Revision{Epoch: 1, Number: s.revision})
}

// accepts is Envoy's word of a change.
func (s *applying) accepts(c delta.Change) {
	s.observe([]delta.Event{{Type: c.Type, Name: c.Name, Version: c.Resource.Version}})
}

// answers has Envoy accept all that it is given but what it is silent about.
func (s *applying) answers(silent func(delta.Change) bool) {
	for range 4 {
		for _, c := range s.step(s.now).changes {
			if c.Resource != nil && !silent(c) {
				s.accepts(c)
			}
		}
		s.Warming(s.seq, nil)
	}
}

func (s *applying) applies(want uint64) {
	s.Helper()
	if got := s.Applied().Number; got != want {
		s.Errorf("revision %d is applied, want %d", got, want)
	}
}

// TestListenerOfBytesWaitsForNoRoutes: a proxy that hands TLS on and leads no requests asks
// for no scopes and routes, so nothing may wait for these; with the first listener that
// leads requests it does.
func TestListenerOfBytesWaitsForNoRoutes(t *testing.T) {
	t.Parallel()
	s := newApplying(t)
	leading := func(c delta.Change) bool { return c.Type == typeScope || c.Type == typeRoute }
	s.wants(gatetest.Cluster(t, "c1", "s1", 1), gatetest.Endpoints(t, "s1", 1), gatetest.Authority(t, "ca"), gatetest.Certificate(t, "cert", "1"),
		gatetest.Scope(t, "scope", "routes"), gatetest.Routes(t, "routes", gatetest.Host{Name: "h", Clusters: []string{"c1"}}), gatetest.TLSListener(t, "tls", "cert", "c1"))
	s.answers(leading)
	if !s.routed() {
		t.Error("routes are waited for without anybody who asks for them")
	}
	s.applies(1)
	s.wants(gatetest.Listener(t, "http", "1"))
	s.answers(leading)
	s.applies(1)
	s.observe([]delta.Event{
		{Type: typeScope, Name: "scope", Version: s.items[key{typeScope, "scope"}].live.Version},
		{Type: typeRoute, Name: "routes", Version: s.shards["routes"].live.version},
	})
	s.applies(2)
}

// servingGate is a gate whose Envoy serves a route.
func servingGate(t *testing.T) *applying {
	t.Helper()
	s := newApplying(t)
	s.wants(gatetest.Cluster(t, "c1", "s1", 1), gatetest.Endpoints(t, "s1", 1), gatetest.Scope(t, "scope", "routes"),
		gatetest.Routes(t, "routes", gatetest.Host{Name: "h", Clusters: []string{"c1"}}), gatetest.Listener(t, "http", "1"))
	s.answers(func(delta.Change) bool { return false })
	s.applies(1)
	return s
}

// versionsOf makes versions of what servingGate has: of a resource that is accepted as a whole,
// and of one that is taken apart.
func versionsOf(t *testing.T) map[string]func(version int) delta.Change {
	return map[string]func(version int) delta.Change{
		"endpoints": func(version int) delta.Change { return gatetest.Endpoints(t, "s1", version) },
		"routes": func(version int) delta.Change {
			return gatetest.Routes(t, "routes", gatetest.Host{Name: "h", Clusters: []string{"c1"}, Salt: version})
		},
	}
}

// TestMiddleVersionsAreOwed: while changes stream in, Envoy's word of a version applies its
// checkpoint and those before, and none that came after.
func TestMiddleVersionsAreOwed(t *testing.T) {
	t.Parallel()
	for name, change := range versionsOf(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servingGate(t)
			var flying []delta.Change
			for version := 2; version <= 4; version++ {
				s.wants(change(version))
				flying = append(flying, s.step(s.now).changes...)
			}
			if len(flying) != 3 {
				t.Fatalf("%d versions are on their way, want 3", len(flying))
			}
			s.applies(1)
			for i, c := range flying {
				s.accepts(c)
				s.applies(uint64(i + 2))
			}
		})
	}
}

// TestVersionsThatWereSkippedAreOwed: what came between two versions that Envoy was given is
// applied with the second.
func TestVersionsThatWereSkippedAreOwed(t *testing.T) {
	t.Parallel()
	s := servingGate(t)
	s.wants(gatetest.Endpoints(t, "s1", 2))
	first := s.step(s.now).changes
	s.wants(gatetest.Endpoints(t, "s1", 3))
	s.wants(gatetest.Endpoints(t, "s1", 4))
	s.accepts(first[0])
	s.applies(2)
	s.accepts(s.step(s.now).changes[0])
	s.applies(4)
}

// TestManyVersionsAreOwed: of versions that came while Envoy was slow not all are kept, and what
// is not applies nothing.
func TestManyVersionsAreOwed(t *testing.T) {
	t.Parallel()
	for name, change := range versionsOf(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servingGate(t)
			s.wants(change(2))
			first := s.step(s.now).changes
			last := 3*maxBacklog + 2
			for version := 3; version <= last; version++ {
				s.wants(change(version))
			}
			s.accepts(first[0])
			s.applies(2)
			s.accepts(s.step(s.now).changes[0])
			s.applies(uint64(last))
		})
	}
}

// TestHostThatWaitsIsOwed: a virtual host whose cluster is not there yet is owed, however many
// versions of its route configuration Envoy accepts without it. What came before is not.
func TestHostThatWaitsIsOwed(t *testing.T) {
	t.Parallel()
	s := servingGate(t)
	routes := func(salt int) delta.Change {
		return gatetest.Routes(t, "routes", gatetest.Host{Name: "h", Clusters: []string{"c1"}, Salt: salt}, gatetest.Host{Name: "late", Clusters: []string{"c2"}})
	}
	s.wants(gatetest.Routes(t, "routes", gatetest.Host{Name: "h", Clusters: []string{"c1"}, Salt: 2}))
	s.wants(routes(3), gatetest.Cluster(t, "c2", "s2", 1), gatetest.Endpoints(t, "s2", 1))
	late := func(c delta.Change) bool { return c.Name == "c2" || c.Name == "s2" }
	for salt := 4; salt < 8; salt++ {
		s.wants(routes(salt))
		given := s.step(s.now).changes
		s.wants(routes(salt + 10)) // Envoy's answers are of versions that are not the newest
		for _, c := range given {
			if c.Resource != nil && !late(c) {
				s.accepts(c)
			}
		}
		s.applies(2)
	}
	s.step(s.now)
	for range 4 {
		for k, it := range s.items {
			if it.live != nil {
				s.observe([]delta.Event{{Type: k.kind, Name: k.name, Version: it.live.Version}})
			}
		}
		s.Warming(s.seq, nil)
		s.step(s.now)
		s.observe([]delta.Event{{Type: typeRoute, Name: "routes", Version: s.shards["routes"].live.version}})
	}
	s.applies(s.revision)
}

package agent

import (
	"testing"
	"time"

	"fairlead.dev/internal/delta"
)

// settling is a gate with an Envoy that accepts what the test says.
type settling struct {
	*testing.T
	*Gate
	now      time.Time
	revision uint64
}

func newSettling(t *testing.T) *settling {
	t.Helper()
	s := &settling{T: t, Gate: NewGate(), now: time.Unix(1_000_000, 0)}
	s.Connected(nil, nil)
	return s
}

// wants has the plane want something with the next revision.
func (s *settling) wants(changes ...delta.Change) {
	s.Helper()
	if err := s.Target(changes); err != nil {
		s.Fatal(err)
	}
	s.revision++
	s.Checkpoint(delta.Revision{Epoch: 1, Number: s.revision})
}

// accepts is Envoy's word of a change.
func (s *settling) accepts(c delta.Change) {
	s.Observe([]delta.Event{{Type: c.Type, Name: c.Name, Version: c.Resource.Version}})
}

// answers has Envoy accept all that it is given but what it is silent about.
func (s *settling) answers(silent func(delta.Change) bool) {
	for range 4 {
		for _, c := range s.Step(s.now).Changes {
			if c.Resource != nil && !silent(c) {
				s.accepts(c)
			}
		}
		s.Warming(s.Seq(), nil)
	}
}

func (s *settling) settled(want uint64) {
	s.Helper()
	if got := s.Settled().Number; got != want {
		s.Errorf("revision %d is settled, want %d", got, want)
	}
}

// TestListenerOfBytesWaitsForNoRoutes: a proxy that hands TLS on and leads no requests asks
// for no scopes and routes, so nothing may wait for these; with the first listener that
// leads requests it does.
func TestListenerOfBytesWaitsForNoRoutes(t *testing.T) {
	t.Parallel()
	s := newSettling(t)
	leading := func(c delta.Change) bool { return c.Type == typeScope || c.Type == typeRoute }
	s.wants(testCluster(t, "c1", "s1", 1), testEndpoints(t, "s1", 1), testAuthority(t, "ca"), testCertificate(t, "cert", "1"),
		testScope(t, "scope", "routes"), testRoutes(t, "routes", host{name: "h", clusters: []string{"c1"}}), testTLSListener(t, "tls", "cert", "c1"))
	s.answers(leading)
	if !s.Routed() {
		t.Error("routes are waited for without anybody who asks for them")
	}
	s.settled(1)
	s.wants(testListener(t, "http", "1"))
	s.answers(leading)
	s.settled(1)
	s.Observe([]delta.Event{
		{Type: typeScope, Name: "scope", Version: s.items[key{typeScope, "scope"}].live.Version},
		{Type: typeRoute, Name: "routes", Version: s.shards["routes"].live.version},
	})
	s.settled(2)
}

// servingGate is a gate whose Envoy serves a route.
func servingGate(t *testing.T) *settling {
	t.Helper()
	s := newSettling(t)
	s.wants(testCluster(t, "c1", "s1", 1), testEndpoints(t, "s1", 1), testScope(t, "scope", "routes"),
		testRoutes(t, "routes", host{name: "h", clusters: []string{"c1"}}), testListener(t, "http", "1"))
	s.answers(func(delta.Change) bool { return false })
	s.settled(1)
	return s
}

// versionsOf makes versions of what servingGate has: of a resource that is accepted as a whole,
// and of one that is taken apart.
func versionsOf(t *testing.T) map[string]func(version int) delta.Change {
	return map[string]func(version int) delta.Change{
		"endpoints": func(version int) delta.Change { return testEndpoints(t, "s1", version) },
		"routes": func(version int) delta.Change {
			return testRoutes(t, "routes", host{name: "h", clusters: []string{"c1"}, salt: version})
		},
	}
}

// TestMiddleVersionsAreOwed: while changes stream in, Envoy's word of a version settles its
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
				flying = append(flying, s.Step(s.now).Changes...)
			}
			if len(flying) != 3 {
				t.Fatalf("%d versions are on their way, want 3", len(flying))
			}
			s.settled(1)
			for i, c := range flying {
				s.accepts(c)
				s.settled(uint64(i + 2))
			}
		})
	}
}

// TestVersionsThatWereSkippedAreOwed: what came between two versions that Envoy was given is
// settled with the second.
func TestVersionsThatWereSkippedAreOwed(t *testing.T) {
	t.Parallel()
	s := servingGate(t)
	s.wants(testEndpoints(t, "s1", 2))
	first := s.Step(s.now).Changes
	s.wants(testEndpoints(t, "s1", 3))
	s.wants(testEndpoints(t, "s1", 4))
	s.accepts(first[0])
	s.settled(2)
	s.accepts(s.Step(s.now).Changes[0])
	s.settled(4)
}

// TestManyVersionsAreOwed: of versions that came while Envoy was slow not all are kept, and what
// is not settles nothing.
func TestManyVersionsAreOwed(t *testing.T) {
	t.Parallel()
	for name, change := range versionsOf(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servingGate(t)
			s.wants(change(2))
			first := s.Step(s.now).Changes
			last := 3*maxSteps + 2
			for version := 3; version <= last; version++ {
				s.wants(change(version))
			}
			s.accepts(first[0])
			s.settled(2)
			s.accepts(s.Step(s.now).Changes[0])
			s.settled(uint64(last))
		})
	}
}

// TestHostThatWaitsIsOwed: a virtual host whose cluster is not there yet is owed, however many
// versions of its route configuration Envoy accepts without it. What came before is not.
func TestHostThatWaitsIsOwed(t *testing.T) {
	t.Parallel()
	s := servingGate(t)
	routes := func(salt int) delta.Change {
		return testRoutes(t, "routes", host{name: "h", clusters: []string{"c1"}, salt: salt}, host{name: "late", clusters: []string{"c2"}})
	}
	s.wants(testRoutes(t, "routes", host{name: "h", clusters: []string{"c1"}, salt: 2}))
	s.wants(routes(3), testCluster(t, "c2", "s2", 1), testEndpoints(t, "s2", 1))
	late := func(c delta.Change) bool { return c.Name == "c2" || c.Name == "s2" }
	for salt := 4; salt < 8; salt++ {
		s.wants(routes(salt))
		given := s.Step(s.now).Changes
		s.wants(routes(salt + 10)) // Envoy's answers are of versions that are not the newest
		for _, c := range given {
			if c.Resource != nil && !late(c) {
				s.accepts(c)
			}
		}
		s.settled(2)
	}
	s.Step(s.now)
	for range 4 {
		for k, it := range s.items {
			if it.live != nil {
				s.Observe([]delta.Event{{Type: k.kind, Name: k.name, Version: it.live.Version}})
			}
		}
		s.Warming(s.Seq(), nil)
		s.Step(s.now)
		s.Observe([]delta.Event{{Type: typeRoute, Name: "routes", Version: s.shards["routes"].live.version}})
	}
	s.settled(s.revision)
}

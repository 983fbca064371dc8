package delta

import "testing"

// A client that is sent a name again may have dropped it. It refuses the version that it is
// sent, and is not left without the one that it acked before.
func TestWhatIsSentAgainIsInDoubt(t *testing.T) {
	for name, again := range map[string]func(s *script){
		"a repeated name":     func(s *script) { s.subscribe("a") },
		"a repeated wildcard": func(s *script) { s.subscribe("*") },
		"an unsubscribed name under a wildcard": func(s *script) {
			s.receive(&request{ResourceNamesUnsubscribe: []string{"a"}})
		},
		"a resent name": func(s *script) { s.stream.Resend(typeA, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, Options{})
			s.update(typeA, "a=1")
			s.subscribe("*", "a")
			s.sends("a=1")
			s.ack()
			s.update(typeA, "a=bad")
			again(s)
			s.sends("a=bad")
			s.nack("no")
			s.update(typeA, "a=1")
			s.state("a", State{Phase: Pending, Version: "1", Held: "1"})
			s.sends("a=1")
			s.ack()
			s.state("a", State{Phase: Acked, Version: "1", Held: "1"})
			s.sends("nothing")
		})
	}
}

// holding is a script whose client follows "a" and has its first version.
func holding(t *testing.T) *script {
	s := newScript(t, Options{})
	s.update(typeA, "a=1")
	s.subscribe("a")
	s.sends("a=1")
	s.ack()
	return s
}

// A refused removal does not say that the client kept what it may have dropped before.
func TestARefusedRemovalLeavesDoubt(t *testing.T) {
	s := holding(t)
	s.subscribe("a")
	s.update(typeA, "a-")
	s.sends("a-")
	s.nack("no")
	s.update(typeA, "a=1")
	s.sends("a=1")
}

// An ack that follows a repeated subscription ends the doubt, also that of a response that was
// in flight.
func TestAnAckEndsDoubt(t *testing.T) {
	s := holding(t)
	s.update(typeA, "a=2")
	s.sends("a=2")
	s.subscribe("a")
	s.ack()
	s.sends("a=2")
	s.ack()
	s.update(typeA, "a=bad")
	s.sends("a=bad")
	s.nack("no")
	s.update(typeA, "a=2")
	s.sends("nothing")
}

// A client that ceases to follow everything and begins again may take what was in flight
// meanwhile. It is told that it is gone.
func TestWhatWasInFlightIsInDoubt(t *testing.T) {
	for name, before := range map[string]bool{"gone before it begins again": true, "gone afterwards": false} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, Options{})
			s.update(typeA, "a=1", "b=1")
			s.subscribe("*")
			s.sends("a=1", "b=1")
			s.receive(&request{ResourceNamesUnsubscribe: []string{"*"}})
			if before {
				s.update(typeA, "a-")
			}
			s.subscribe("*")
			if !before {
				s.update(typeA, "a-")
			}
			s.sends("nothing") // one response at a time
			s.ack()
			s.sends("b=1", "a-")
			s.ack()
			s.sends("nothing")
		})
	}
}

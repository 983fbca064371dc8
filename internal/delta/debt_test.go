package delta

import (
	"fmt"
	"slices"
	"testing"
)

// A type of which something is always under way does not keep the last one waiting: the
// client is told what it has reached.
func TestLastTypesFollowChanges(t *testing.T) {
	s := newScript(t, Options{Last: []Type{typeLast}})
	s.update(typeA, "a=1")
	s.update(typeLast, "l=1")
	s.receive(&request{})
	s.receive(&request{TypeUrl: string(typeLast)})
	s.sends("a=1")
	s.ack()
	s.sends("l=1")
	s.ack(typeLast)
	change := func(n int) { // one publication
		s.rev++
		s.set.Update(Revision{1, s.rev}, slices.Concat(parseChanges(typeA, fmt.Sprintf("a=%d", n)), parseChanges(typeLast, fmt.Sprintf("l=%d", n))))
	}
	change(2)
	s.sends("a=2")
	for n := 3; n < 100; n++ {
		change(n)
		s.sends("nothing")
		s.ack()
		s.sends(fmt.Sprintf("a=%d", n))
		s.sends(fmt.Sprintf("l=%d", n-1)) // and not n: that the client does not have
		s.ack(typeLast)
	}
	s.ack()
	s.sends("l=99")
}

func TestLastTypesForgetWhatTheyPass(t *testing.T) {
	s := newScript(t, Options{Last: []Type{typeLast}, Floor: Revision{1, 20}})
	s.update(typeA, "a=1", "b=1")
	s.receive(&request{})
	s.receive(&request{TypeUrl: string(typeLast)})
	s.sends("a=1", "b=1")
	for n := 2; n < 1000; n++ {
		s.update(typeLast, fmt.Sprintf("l=%d", n))
		s.update(typeA, fmt.Sprintf("b=%d", n))
	}
	past := len(s.stream.byType[typeLast].items["l"].past)
	if past > maxPast {
		t.Fatalf("%d versions are remembered", past)
	}
	s.sends("nothing")
	s.ack()
	s.sends("b=999")
	s.sends("nothing") // what was from before the change of b is not after the floor
	s.update(typeA, "b-")
	s.update(typeLast, "l=2")
	s.ack()
	s.sends("b-")
	s.sends("l=999")
	s.ack(typeLast)
	s.ack()
	s.sends("l=2")
}

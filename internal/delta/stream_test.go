package delta

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestWildcard(t *testing.T) {
	s := newScript(t, Options{})
	s.update(typeA, "b=1", "a=1")
	s.receive(&request{}) // the legacy form: an empty first request
	s.sends("a=1", "b=1")
	s.sends("nothing")
	s.state("a", State{Phase: Sent, Version: "1"})
	s.ack()
	s.events("+a=1", "+b=1")
	s.state("a", State{Phase: Acked, Version: "1", Held: "1"})
	s.state("c", State{})
	s.update(typeA, "c=1", "a-")
	s.state("a", State{Phase: Pending, Held: "1"})
	s.sends("c=1", "a-")
	s.ack()
	s.events("+c=1", "+a=")
	s.subscribe("*") // alone, that is a wish to be sent everything again
	s.sends("b=1", "c=1")
	s.ack()
	s.subscribe("*")
	s.sends("b=1", "c=1")
	s.ack()
	s.receive(&request{ResourceNamesUnsubscribe: []string{"*"}})
	s.update(typeA, "c=2")
	s.sends("nothing")
	s.state("c", State{})
}

// A client states its wildcard of the old form in words when it adds a first name to it.
func TestAWildcardStatedInWords(t *testing.T) {
	s := newScript(t, Options{})
	s.update(typeA, "a=1", "b=1")
	s.receive(&request{})
	s.sends("a=1", "b=1")
	s.ack()
	s.subscribe("*", "a")
	s.sends("a=1")
	s.ack()
	s.subscribe("*")
	s.sends("a=1", "b=1")
	s.ack()
}

// A client may hold what it does not say that it holds.
func TestANameThatIsGoneIsSaidAgain(t *testing.T) {
	s := newScript(t, Options{})
	s.update(typeA, "a=1")
	s.receive(&request{})
	s.sends("a=1")
	s.ack()
	s.stream.Resend(typeA, "stray")
	s.sends("stray-")
	s.ack()
	s.sends("nothing")
}

func TestAnEmptyWildcardIsAnswered(t *testing.T) {
	s := newScript(t, Options{})
	s.receive(&request{})
	if s.stream.Settled(typeA) {
		t.Fatal("settled before the first answer")
	}
	s.sends() // an empty response: Envoy waits for it when it starts
	s.sends("nothing")
	s.ack()
	if !s.stream.Settled(typeA) {
		t.Fatal("not settled after the first answer")
	}
	s.nack("stale")
	s.events()
}

func TestNames(t *testing.T) {
	s := newScript(t, Options{})
	s.update(typeA, "a=1", "b=1")
	s.subscribe("a", "missing")
	s.sends("a=1", "missing-")
	s.ack()
	s.events("+a=1", "+missing=")
	s.state("missing", State{Phase: Acked})
	s.update(typeA, "b=2")
	s.sends("nothing")
	s.update(typeA, "missing=1")
	s.sends("missing=1")
	s.ack()
	s.subscribe("a") // again: sent again
	s.sends("a=1")
	s.ack()
	s.receive(&request{ResourceNamesUnsubscribe: []string{"a", "never"}})
	s.update(typeA, "a=2")
	s.sends("nothing")
	s.subscribe("a")
	s.sends("a=2")
}

func TestResend(t *testing.T) {
	s := newScript(t, Options{})
	s.update(typeA, "a=1", "b=1")
	s.stream.Resend(typeA, "a") // nobody asked for the type yet
	s.subscribe("a", "missing")
	s.sends("a=1", "missing-")
	s.ack()
	for _, name := range []string{"a", "b", "missing"} {
		s.stream.Resend(typeA, name)
	}
	s.sends("a=1")
	s.stream.Resend(typeA, "a") // in flight is not enough: the wish came later
	s.ack()
	s.sends("a=1")
	s.ack()
	s.sends("nothing")
	s.subscribe("*")
	s.sends("b=1")
	s.ack()
	s.stream.Resend(typeA, "b")
	s.sends("b=1")
}

// Envoy asks for routes named "" before it refuses the listener that says so.
func TestTheEmptyNameIsAnUnknownName(t *testing.T) {
	s := newScript(t, Options{})
	s.update(typeA, "a=1", "=1")
	s.subscribe("a", "")
	s.sends("a=1", "-")
	s.ack()
	s.receive(&request{ResourceNamesUnsubscribe: []string{""}})
	s.sends("nothing")
}

func TestUnsubscribeUnderAWildcardIsAnswered(t *testing.T) {
	s := newScript(t, Options{})
	s.update(typeA, "a=1")
	s.subscribe("*", "a", "missing")
	s.sends("a=1", "missing-")
	s.ack()
	s.receive(&request{ResourceNamesUnsubscribe: []string{"a", "missing"}})
	s.sends("a=1", "missing-")
	s.ack()
	s.update(typeA, "a=2")
	s.sends("a=2")
}

func TestCoalescing(t *testing.T) {
	s := newScript(t, Options{})
	s.update(typeA, "a=1", "b=1")
	s.receive(&request{})
	s.sends("a=1", "b=1")
	s.update(typeA, "a=2")
	s.update(typeA, "a=3", "b=2")
	s.update(typeA, "b=1", "c=1")
	s.update(typeA, "c-")
	s.sends("nothing") // one outstanding response a type
	s.ack()
	s.sends("a=3") // b is back at what is held, c never was
	s.update(typeA, "a=1")
	s.update(typeA, "a=3")
	s.ack()
	s.sends("nothing")
	if n := s.update(typeA, "a=3", "zzz-"); n != 0 {
		t.Fatalf("%d changes of equal versions", n)
	}
	s.sends("nothing")
}

func TestStaleNonce(t *testing.T) {
	s := newScript(t, Options{})
	s.update(typeA, "a=1")
	s.receive(&request{})
	s.sends("a=1")
	s.receive(&request{ResponseNonce: "77", ErrorDetail: &status.Status{Message: "of another stream"}})
	s.receive(&request{ErrorDetail: &status.Status{Message: "without a nonce"}})
	s.state("a", State{Phase: Sent, Version: "1"})
	s.ack()
	s.events("+a=1")
	s.nack("answered already")
	s.state("a", State{Phase: Acked, Version: "1", Held: "1"})
	s.events()
}

func TestReconnect(t *testing.T) {
	s := newScript(t, Options{})
	s.update(typeA, "same=1", "changed=2", "new=1", "odd=1")
	s.receive(&request{InitialResourceVersions: map[string]string{"same": "1", "changed": "1", "gone": "1", "odd": "", "odder": ""}})
	s.events("+same=1")
	s.sends("changed=2", "new=1", "odd=1", "gone-", "odder-")
	s.ack()
	s.sends("nothing")

	s.stream.Close()
	s.stream = NewStream(Options{}, s.set)
	s.subscribe("same", "changed", "gone")
	s.receive(&request{InitialResourceVersions: map[string]string{"same": "x"}}) // not the first: ignored
	s.sends("changed=2", "same=1", "gone-")

	s.stream.Close()
	s.stream = NewStream(Options{}, s.set)
	s.receive(&request{
		ResourceNamesSubscribe:  []string{"same", "changed", "gone"},
		InitialResourceVersions: map[string]string{"same": "1", "changed": "1", "gone": "3", "unasked": "1"},
	})
	s.sends("changed=2", "gone-")
	s.ack()
	s.stream.Close()

	s.stream = NewStream(Options{}, s.set)
	s.receive(&request{InitialResourceVersions: map[string]string{"same": "1", "changed": "2", "new": "1", "odd": "1"}})
	s.sends("nothing") // nothing differs, not even an empty response
}

func TestRefusalIsBisected(t *testing.T) {
	told := map[Event]bool{}
	s := newScript(t, Options{Refused: tells(told)})
	s.update(typeA, "a=1", "b=1", "c=1", "d=1", "e=1")
	s.receive(&request{})
	s.sends("a=1", "b=1", "c=1", "d=1", "e=1")
	s.ack()
	s.stream.Events()
	s.update(typeA, "a=2", "b=2", "c=bad", "d=2", "e-")
	s.sends("a=2", "b=2", "c=bad", "d=2", "e-")
	s.nack("one of five")
	s.state("a", State{Phase: Pending, Version: "2", Held: "1"})
	s.events()
	s.update(typeA, "f=1", "a=1") // f joins later; a goes back, but the client may have taken 2
	s.sends("a=1", "b=2")
	s.ack()
	s.sends("c=bad", "d=2", "e-")
	s.nack("one of three")
	s.sends("c=bad")
	s.nack("the one")
	s.state("c", State{Phase: Nacked, Version: "bad", Held: "1", Message: "the one"})
	s.sends("d=2", "e-")
	s.ack()
	s.sends("f=1")
	s.ack()
	s.sends("nothing")
	s.events("+a=1", "+b=2", "!the one!c=bad", "+d=2", "+e=", "+f=1")
	if len(told) != 1 || !told[Event{typeA, "c", "bad", true, "the one"}] {
		t.Fatalf("refusals %v", told)
	}
	if !s.stream.Settled(typeA) {
		t.Fatal("a refusal that stands alone keeps the type from settling")
	}
	s.update(typeA, "c=1") // back to what the client holds
	s.sends("nothing")
	s.state("c", State{Phase: Acked, Version: "1", Held: "1"})
	if len(told) != 0 {
		t.Fatalf("refusals left: %v", told)
	}
	s.update(typeA, "c=3")
	s.sends("c=3")
	s.ack()
	s.events("+c=3")
}

// A client may have taken any version that was refused together with others.
func TestDoubtIsResolvedBySending(t *testing.T) {
	s := newScript(t, Options{})
	s.update(typeA, "c=1", "d=1", "x=1", "y=1")
	s.receive(&request{})
	s.sends("c=1", "d=1", "x=1", "y=1")
	s.ack()
	s.update(typeA, "c=2", "d=2", "x=bad", "y=2")
	s.sends("c=2", "d=2", "x=bad", "y=2")
	s.nack("x is bad")
	s.update(typeA, "c=bad")
	s.sends("c=bad", "d=2")
	s.nack("c is bad")
	s.sends("c=bad")
	s.nack("c is bad")
	s.update(typeA, "c=1") // the client acked 1, but may hold 2
	s.sends("d=2")
	s.ack()
	s.sends("x=bad", "y=2")
	s.nack("x is bad")
	s.sends("x=bad")
	s.nack("x is bad")
	s.sends("y=2")
	s.ack()
	s.sends("c=1")
}

func TestRefusedRemoval(t *testing.T) {
	s := newScript(t, Options{})
	s.update(typeA, "a=1")
	s.receive(&request{})
	s.sends("a=1")
	s.ack()
	s.update(typeA, "a-")
	s.sends("a-")
	s.nack("in use")
	s.sends("nothing")
	s.state("a", State{Phase: Nacked, Held: "1", Message: "in use"})
	s.update(typeA, "a=1")
	s.sends("nothing")
	s.update(typeA, "a-")
	s.sends("a-") // it changed in between, so it may work now
	s.ack()
	s.sends("nothing")
	s.events("+a=1", "!in use!a=", "+a=")
}

func TestRefusedWithoutOthersButUnsubscribed(t *testing.T) {
	s := newScript(t, Options{})
	s.update(typeA, "a=1", "b=bad")
	s.subscribe("a", "b")
	s.sends("a=1", "b=bad")
	s.receive(&request{ResourceNamesUnsubscribe: []string{"b"}})
	s.nack("b is bad") // that says nothing about a
	s.sends("a=1")
	s.ack()
	s.sends("nothing")
	s.events("+a=1")
	s.subscribe("b")
	s.sends("b=bad")
	s.nack("b is bad")
	s.subscribe("b") // again: the client may have changed its mind
	s.sends("b=bad")
	s.ack()
	s.events("!b is bad!b=bad", "+b=bad")
}

func TestLastTypesWait(t *testing.T) {
	var wakes int
	s := newScript(t, Options{Last: []Type{typeB, typeLast}, Wake: func() { wakes++ }})
	s.update(typeA, "a=1")
	s.update(typeB, "b=1")
	s.update(typeLast, "l=1")
	s.receive(&request{})
	s.receive(&request{TypeUrl: string(typeLast)})
	s.receive(&request{TypeUrl: string(typeB)})
	if wakes != 1 {
		t.Fatalf("%d wakes, want one until Next returns nil", wakes)
	}
	s.sends("a=1")
	s.sends("nothing")
	s.ack(typeA)
	if wakes != 2 {
		t.Fatalf("%d wakes, want another one by the ack that released the next type", wakes)
	}
	s.sends("b=1")
	s.sends("nothing")
	s.update(typeA, "a=2")
	s.ack(typeB)
	s.sends("a=2") // the last type waits again
	s.sends("nothing")
	s.nack("bad")
	s.sends("l=1") // a refusal that stands alone is settled
}

func TestLargeAnswersAreSplit(t *testing.T) {
	s := newScript(t, Options{MaxResponseBytes: 5000})
	big := strings.Repeat("x", 2000)
	for i := range 5 {
		s.set.Update(Revision{1, 1}, []Change{{Type: typeA, Name: fmt.Sprint(i), Resource: &Resource{Version: "v", Body: text("", big).Body}}})
	}
	s.set.Update(Revision{1, 2}, []Change{{Type: typeA, Name: "9", Resource: &Resource{Version: "v", Body: text("", strings.Repeat(big, 10)).Body}}})
	s.receive(&request{})
	for _, want := range [][]string{{"0=v", "1=v"}, {"2=v", "3=v"}, {"4=v"}, {"9=v"}} {
		s.sends(want...)
		s.sends("nothing")
		s.ack()
	}
	s.sends("nothing")
}

func TestLayers(t *testing.T) {
	shared, other, own := NewSet(), NewSet(), NewSet()
	s := newScript(t, Options{})
	s.stream.Close()
	s.set = own
	s.stream = NewStream(Options{}, shared, own)
	own.Update(Revision{1, 3}, parseChanges(typeA, "mine=1"))
	shared.Update(Revision{1, 2}, parseChanges(typeA, "same=1", "gone=1", "differs=1", "named=1"))
	other.Update(Revision{1, 1}, parseChanges(typeA, "same=1", "new=1", "differs=2", "named=2"))
	s.receive(&request{ResourceNamesSubscribe: []string{"*", "named"}})
	s.sends("differs=1", "gone=1", "mine=1", "named=1", "same=1")
	s.ack()

	s.stream.SetLayers(other, own)
	s.sends("differs=2", "named=2", "new=1", "gone-") // and the revision does not go back
	s.ack()
	shared.Update(Revision{1, 3}, parseChanges(typeA, "same=9"))
	s.sends("nothing")
	other.Update(Revision{1, 3}, parseChanges(typeA, "same=2"))
	s.sends("same=2")
	s.ack()

	// A name that moves from one layer to another without a change is no change.
	other.Update(Revision{1, 3}, parseChanges(typeA, "mine=1"))
	own.Update(Revision{1, 3}, parseChanges(typeA, "mine-"))
	s.sends("nothing")
	other.Update(Revision{1, 3}, parseChanges(typeA, "mine-"))
	own.Update(Revision{1, 3}, parseChanges(typeA, "mine=1"))
	s.sends("nothing")
	own.Update(Revision{1, 3}, parseChanges(typeA, "same=2")) // hidden by the other layer
	other.Update(Revision{1, 3}, parseChanges(typeA, "same-"))
	s.sends("nothing")
}

func TestWakeOnlyThoseConcerned(t *testing.T) {
	set := NewSet()
	set.Update(Revision{1, 1}, parseChanges(typeA, "a=1", "b=1"))
	wakes := map[string]int{}
	for _, name := range []string{"a", "b"} {
		st := NewStream(Options{Wake: func() { wakes[name]++ }}, set)
		if err := st.Receive(&request{TypeUrl: string(typeA), ResourceNamesSubscribe: []string{name}}); err != nil {
			t.Fatal(err)
		}
		resp := st.Next()
		if err := st.Receive(&request{TypeUrl: string(typeA), ResponseNonce: resp.GetNonce()}); err != nil {
			t.Fatal(err)
		}
		if st.Next() != nil {
			t.Fatal("more to send")
		}
	}
	clear(wakes)
	set.Update(Revision{1, 2}, parseChanges(typeA, "a=2"))
	if wakes["a"] != 1 || wakes["b"] != 0 {
		t.Fatalf("wakes %v", wakes)
	}
}

func TestViolations(t *testing.T) {
	limited := Options{MaxNames: 3, MaxTypes: 2}
	ok := &request{TypeUrl: string(typeA), ResourceNamesSubscribe: []string{"a", "b"}}
	for _, c := range []struct {
		name string
		req  *request
		want error
	}{
		{"nil", nil, ErrNoType},
		{"no type", &request{}, ErrNoType},
		{"locator", &request{TypeUrl: "t", ResourceLocatorsSubscribe: []*discoveryv3.ResourceLocator{{}}}, ErrLocators},
		{"names", &request{TypeUrl: "t", ResourceNamesSubscribe: []string{"a", "b"}}, ErrTooManyNames},
		{"claims", &request{TypeUrl: "t", InitialResourceVersions: map[string]string{"a": "1", "b": "1"}}, ErrTooManyNames},
		{"types", &request{TypeUrl: "third"}, ErrTooManyTypes},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := NewStream(limited, NewSet())
			if err := st.Receive(ok); err != nil {
				t.Fatal(err)
			}
			if errors.Is(c.want, ErrTooManyTypes) {
				if err := st.Receive(&request{TypeUrl: "second"}); err != nil {
					t.Fatal(err)
				}
			}
			if err := st.Receive(c.req); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err := verify(st); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestUnansweredClientCannotGrowTheQueue(t *testing.T) {
	s := newScript(t, Options{})
	s.subscribe("x")
	s.sends("x-")
	for range 1000 {
		s.subscribe("a")
		s.receive(&request{ResourceNamesUnsubscribe: []string{"a"}})
	}
	if n := len(s.stream.byType[typeA].queue); n > 100 {
		t.Fatalf("%d queued items of one name", n)
	}
}

func TestResourceVersions(t *testing.T) {
	a, err := NewResource("a", wrapperspb.String("x"))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := NewResource("b", wrapperspb.String("x"))
	c, _ := NewResource("a", wrapperspb.String("y"))
	if a.Version != b.Version || a.Version == c.Version || a.Version == "" {
		t.Fatalf("versions %q %q %q", a.Version, b.Version, c.Version)
	}
	s := NewSet()
	s.Update(Revision{1, 1}, []Change{{Type: typeA, Name: "a", Resource: &Resource{Body: a.Body}}, {Type: typeA}})
	got, ok := s.Get(typeA, "a")
	if !ok || got.Version != a.Version || !proto.Equal(got.Body, a.Body) || got.Name != "a" {
		t.Fatalf("got %v", got)
	}
	if s.Len(typeA) != 1 || s.Len(typeB) != 0 || !slices.Equal(s.Names(typeA), []string{"a"}) || !slices.Equal(s.Types(), []Type{typeA}) {
		t.Fatalf("set holds %v", s.Names(typeA))
	}
}

func TestRevision(t *testing.T) {
	for _, text := range []string{"0/0", "3/17", "18446744073709551615/1"} {
		r, err := ParseRevision(text)
		if err != nil || r.String() != text {
			t.Errorf("%s: %v, %v", text, r, err)
		}
	}
	for _, bad := range []string{"", "3", "3/", "/3", "-1/2", "1/2/3", "a/b"} {
		if r, err := ParseRevision(bad); err == nil {
			t.Errorf("%q gives %v", bad, r)
		}
	}
	if (Revision{1, 9}).Compare(Revision{2, 1}) != -1 || (Revision{2, 1}).Compare(Revision{2, 1}) != 0 || (Revision{2, 2}).Compare(Revision{2, 1}) != 1 {
		t.Error("wrong order")
	}
}

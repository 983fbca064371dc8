package delta

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/status"
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

// A version that is taken back while the one before it is refused leaves nothing behind.
func TestLastTypesForgetWhatIsTakenBack(t *testing.T) {
	s := newScript(t, Options{Last: []Type{typeLast}})
	s.receive(&request{TypeUrl: string(typeLast), ResourceNamesSubscribe: []string{"l"}})
	s.sends("l-")
	s.ack(typeLast)
	s.update(typeLast, "l=1")
	s.sends("l=1")
	s.update(typeLast, "l-")
	s.receive(&request{TypeUrl: string(typeLast), ResponseNonce: s.nonce[typeLast], ErrorDetail: &status.Status{Message: "bad"}})
	s.sends("nothing")
}

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("no-%d", i)
	}
	return all
}

// A client that refuses whatever it is sent costs a logarithm of comparisons a name and refusal,
// not the length of what it is owed.
func TestRefusalsCostLittle(t *testing.T) {
	const n = 2000
	for _, exist := range []bool{false, true} {
		t.Run(fmt.Sprintf("exist=%v", exist), func(t *testing.T) {
			set := NewSet()
			st := NewStream(Options{Last: []Type{typeLast}, Wake: func() {}}, set)
			rev := uint64(0)
			publish := func(name string) {
				rev++
				set.Update(Revision{1, rev}, slices.Concat(parseChanges(typeA, name), parseChanges(typeLast, fmt.Sprintf("l=%d", rev))))
			}
			receive := func(req *request) {
				t.Helper()
				if err := st.Receive(req); err != nil {
					t.Fatal(err)
				}
			}
			receive(&request{TypeUrl: string(typeLast)})
			receive(&request{TypeUrl: string(typeA), ResourceNamesSubscribe: names(n)})
			if exist {
				for _, name := range names(n) {
					publish(name + "=1")
				}
			}
			debts := &st.byType[typeA].debts
			refused, most := 0, 0
			for {
				resp := st.Next()
				if resp == nil {
					break
				}
				req := &request{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}
				items := 1
				if Type(resp.GetTypeUrl()) == typeA {
					refused++
					items = len(resp.GetResources()) + len(resp.GetRemovedResources())
					req.ErrorDetail = &status.Status{Message: "no"}
				}
				if exist && refused < n {
					publish(fmt.Sprintf("no-%d=%d", refused%n, refused+1)) // it may be among those refused
				}
				before := debts.steps
				receive(req)
				if steps, bound := debts.steps-before, 4*items*bits.Len(n); steps > bound {
					t.Fatalf("refusal %d, of %d names, takes %d comparisons, want %d at most", refused, items, steps, bound)
				}
				most = max(most, len(debts.list))
				if refused%500 == 0 {
					if err := verify(st); err != nil {
						t.Fatal(err)
					}
				}
				if refused > 10*n {
					t.Fatal("the refusals never end")
				}
			}
			if refused < 2*n-1 || most > n {
				t.Fatalf("%d refusals, %d debts of %d names", refused, most, n)
			}
			if bound := 8 * refused * bits.Len(n); debts.steps > bound {
				t.Fatalf("%d refusals take %d comparisons, want %d at most", refused, debts.steps, bound)
			}
			t.Logf("%d refusals, %d comparisons, %d debts at most", refused, debts.steps, most)
		})
	}
}

// Names of a held-back type that do not exist, however many, cost nothing when something changes
// or the client says anything.
func TestHeldNamesCostNothing(t *testing.T) {
	const n, changes = 5000, 200
	woken := 0
	s := newScript(t, Options{Last: []Type{typeLast}, Wake: func() { woken++ }})
	s.update(typeA, "a=0")
	s.receive(&request{})
	s.sends("a=0") // and never answered
	s.receive(&request{TypeUrl: string(typeLast), ResourceNamesSubscribe: append(names(n), "l")})
	s.sends("nothing")
	last := s.stream.byType[typeLast]
	last.looks = 0
	for i := range changes {
		s.set.Update(Revision{1, s.rev}, parseChanges(typeA, fmt.Sprintf("a=%d", i+1)))
		if err := s.stream.Receive(&request{TypeUrl: string(typeA)}); err != nil {
			t.Fatal(err)
		}
		if s.stream.Next() != nil {
			t.Fatal("something was sent")
		}
	}
	if last.looks > 0 {
		t.Errorf("%d changes take %d looks at held-back names that never changed", changes, last.looks)
	}
	s.update(typeLast, "l=1")
	for i := range changes {
		s.update(typeA, fmt.Sprintf("b=%d", i))
	}
	if last.looks > 2*changes+2 {
		t.Errorf("%d changes take %d looks at one held-back name", changes, last.looks)
	}
	woken = 0
	s.ack()
	s.sends("a=200", "b=199")
	s.sends("nothing")
	s.ack()
	resp := s.stream.Next()
	if woken != 2 || len(resp.GetResources()) != 1 || len(resp.GetRemovedResources()) != n {
		t.Errorf("%d wakes, then %d resources and %d removed ones", woken, len(resp.GetResources()), len(resp.GetRemovedResources()))
	}
}

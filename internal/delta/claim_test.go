package delta

import (
	"errors"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// TestClaimsInParts holds that what a client holds may come in parts: it is sent the same then, and is
// found to hold the same.
func TestClaimsInParts(t *testing.T) {
	set := NewSet()
	set.Update(Revision{1, 1}, []Change{
		{typeA, "as", text("as", "1")}, {typeA, "old", text("old", "2")}, {typeA, "blank", text("blank", "1")}, {typeA, "new", text("new", "1")},
	})
	claims := map[string]string{"as": "1", "old": "1", "blank": "", "gone": "1", "away": "7"}
	run := func(first map[string]string, rest ...map[string]string) (*discoveryv3.DeltaDiscoveryResponse, []Event, *Stream) {
		t.Helper()
		st := NewStream(Options{Last: []Type{typeLast}}, set)
		if err := st.Receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typeA), InitialResourceVersions: first}); err != nil {
			t.Fatal(err)
		}
		for _, part := range rest {
			if err := st.Claim(typeA, part); err != nil {
				t.Fatal(err)
			}
		}
		if err := verify(st); err != nil {
			t.Error(err)
		}
		events, resp := st.Events(), st.Next()
		slices.SortFunc(resp.Resources, func(a, b *discoveryv3.Resource) int { return strings.Compare(a.Name, b.Name) })
		slices.Sort(resp.RemovedResources)
		if st.Next() != nil {
			t.Error("a second response")
		}
		if err := st.Receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typeA), ResponseNonce: resp.Nonce}); err != nil {
			t.Fatal(err)
		}
		if err := verify(st); err != nil || !st.Settled(typeA) {
			t.Errorf("settled %v: %v", st.Settled(typeA), err)
		}
		return resp, events, st
	}
	want, heard, whole := run(claims)
	got, events, parted := run(map[string]string{"gone": "1"}, map[string]string{"as": "1", "blank": ""}, map[string]string{"old": "1", "away": "7"})
	if !proto.Equal(got, want) || !slices.Equal(events, heard) {
		t.Errorf("in parts %v and %v\nat once %v and %v", got, events, want, heard)
	}
	if parted.names != whole.names {
		t.Errorf("%d names, at once %d", parted.names, whole.names)
	}

	few := NewStream(Options{MaxNames: 3}, set)
	if err := few.Claim(typeA, nil); !errors.Is(err, ErrNoWildcard) {
		t.Errorf("a claim of what was not asked for: %v", err)
	}
	if err := few.Receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typeA), InitialResourceVersions: map[string]string{"a": "1"}}); err != nil {
		t.Fatal(err)
	}
	if err := few.Claim(typeA, map[string]string{"b": "1", "c": "1", "d": "1"}); !errors.Is(err, ErrTooManyNames) {
		t.Errorf("too many: %v", err)
	}
}

// TestManyWildcardsAreOne holds that a request which names everything again and again costs what one does.
func TestManyWildcardsAreOne(t *testing.T) {
	set := NewSet()
	set.Update(Revision{1, 1}, []Change{{typeA, "a", text("a", "1")}})
	run := func(names ...string) (int, error) {
		st := NewStream(Options{}, set)
		for range 2 { // the first request of a type, and a later one
			if err := st.Receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typeA), ResourceNamesSubscribe: names}); err != nil {
				return 0, err
			}
		}
		return len(st.byType[typeA].queue), verify(st)
	}
	want, err := run("*", "a")
	if err != nil {
		t.Fatal(err)
	}
	got, err := run(append(slices.Repeat([]string{"*"}, 1000), "a")...)
	if err != nil || got != want {
		t.Errorf("1,000 wildcards left %d names to send (%v), one %d", got, err, want)
	}
}

// TestLateClaims holds that nothing is claimed after the first request of a type, nor once something may have
// been sent: what the client says then is older than what the stream knows.
func TestLateClaims(t *testing.T) {
	set := NewSet()
	set.Update(Revision{1, 1}, []Change{{typeA, "a", text("a", "2")}})
	for name, later := range map[string]func(st *Stream) error{
		"a second request": func(st *Stream) error {
			return st.Receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typeA), InitialResourceVersions: map[string]string{"a": "1"}})
		},
		"a response": func(st *Stream) error { st.Next(); return nil },
	} {
		st := NewStream(Options{}, set)
		if err := st.Receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typeA), InitialResourceVersions: map[string]string{"b": "1"}}); err != nil {
			t.Fatal(err)
		}
		if err := later(st); err != nil {
			t.Fatal(err)
		}
		before := st.names
		if err := st.Claim(typeA, map[string]string{"a": "2"}); !errors.Is(err, ErrLateClaims) {
			t.Errorf("claims after %s: %v", name, err)
		}
		if state := st.State(typeA, "a"); state.Held != "" || st.names != before {
			t.Errorf("after %s: %+v is held, %d names instead of %d", name, state, st.names, before)
		}
	}
}

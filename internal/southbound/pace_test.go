package southbound

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestReportsArePaced holds that a machine which sends reports without a pause waits, and one that sends what an
// agent sends at its busiest does not.
func TestReportsArePaced(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	n := 0
	for p := newPace(); n < 10*reportBurst && p.reports.Wait(ctx) == nil; {
		n++
	}
	if n < reportBurst || n > reportBurst+2*reportRate {
		t.Errorf("%d reports were taken at once, want about %d", n, reportBurst)
	}
}

// TestNamesArePaced holds that a machine may claim all that it can hold at once, and not again and again.
func TestNamesArePaced(t *testing.T) {
	claims := map[string]string{}
	for i := range nameBurst / 2 {
		claims[strconv.Itoa(i)] = "1"
	}
	p, taken := newPace(), 0
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	none := func() int { return 0 }
	for taken < 10 && p.waitNames(ctx, &discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: claims}, none) == nil {
		taken++
	}
	if taken != 2 {
		t.Errorf("%d times %d names were taken at once, want 2", taken, len(claims))
	}
	if err := newPace().waitNames(t.Context(), &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: make([]string, nameBurst+1)}, none); err != nil {
		t.Errorf("more than there may be: %v", err)
	}
	for what, req := range map[string]*discoveryv3.DeltaDiscoveryRequest{
		"a wildcard":                 {ResourceNamesSubscribe: []string{"*"}},
		"a wildcard of the old form": {},
	} {
		p, taken, all := newPace(), 0, func() int { return nameBurst / 4 }
		for taken < 10 && p.waitNames(ctx, req, all) == nil {
			taken++
		}
		if taken != 4 {
			t.Errorf("%s that stands for a quarter of all names was taken %d times at once, want 4", what, taken)
		}
	}
	answered := newPace()
	for range 100 {
		if err := answered.waitNames(t.Context(), &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: "1"}, func() int { return nameBurst }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLaterRequestsClaimNothing holds that a large request after the first of its type claims no more than a
// small one: nothing, since what was sent meanwhile is newer.
func TestLaterRequestsClaimNothing(t *testing.T) {
	v := NewViews()
	fresh, err := delta.NewResource("fresh", &agentv1.Checkpoint{Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	const typ = "type.example/a"
	if err := v.Publish(delta.Revision{Epoch: 1, Number: 1}, Update{
		Shared:    map[ViewID][]delta.Change{"edge": {{Type: typ, Name: "fresh", Resource: &fresh}}},
		Placement: map[string]ViewID{"edge-1": "edge"},
	}); err != nil {
		t.Fatal(err)
	}
	f := v.open("edge-1", delta.Revision{})
	defer f.close()
	claims := map[string]string{"fresh": fresh.Version}
	for i := range 3 * claimsAtOnce {
		claims["gone-"+strconv.Itoa(i)] = "1"
	}
	for _, versions := range []map[string]string{nil, claims} {
		if _, err := f.receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typ, InitialResourceVersions: versions}); err != nil {
			t.Fatal(err)
		}
	}
	resp, _ := f.next(1)
	if got := resp.GetResources(); len(got) != 1 || got[0].GetName() != "fresh" || len(resp.GetRemovedResources()) > 0 {
		t.Errorf("sent are %d resources, and %d are said to be gone: want the one that was never sent", len(got), len(resp.GetRemovedResources()))
	}
}

// TestLargeClaimsLetOthersIn holds that a machine which claims to hold very much is not taken in under one
// hold of the lock of all, is sent nothing before all is, and then what it would have been sent at once.
func TestLargeClaimsLetOthersIn(t *testing.T) {
	v := NewViews()
	held, err := delta.NewResource("held", &agentv1.Checkpoint{})
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := delta.NewResource("fresh", &agentv1.Checkpoint{Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	const typ = "type.example/a"
	if err := v.Publish(delta.Revision{Epoch: 1, Number: 1}, Update{
		Shared:    map[ViewID][]delta.Change{"edge": {{Type: typ, Name: "held", Resource: &held}, {Type: typ, Name: "fresh", Resource: &fresh}}},
		Placement: map[string]ViewID{"edge-1": "edge"},
	}); err != nil {
		t.Fatal(err)
	}
	f := v.open("edge-1", delta.Revision{})
	defer f.close()
	claims := map[string]string{"held": held.Version}
	const gone = 3*claimsAtOnce + 5
	for i := range gone {
		claims["gone-"+strconv.Itoa(i)] = "1"
	}
	req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typ, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: claims}
	parts := shorten(req)
	if len(parts) != 3 || len(req.GetInitialResourceVersions()) != claimsAtOnce {
		t.Fatalf("%d at once, and %d parts", len(req.GetInitialResourceVersions()), len(parts))
	}
	take := func(last bool, part func() error) {
		t.Helper()
		if resp, _ := f.next(1); resp != nil {
			t.Fatalf("a response with %d resources before all was taken", len(resp.GetResources()))
		}
		if _, err := f.step(last, part); err != nil {
			t.Fatal(err)
		}
	}
	take(false, func() error { return f.stream.Receive(req) })
	for i, part := range parts {
		if len(part) > claimsAtOnce {
			t.Errorf("%d claims at once", len(part))
		}
		for len(f.wake) > 0 {
			<-f.wake
		}
		take(i == len(parts)-1, func() error { return f.stream.Claim(typ, part) })
	}
	if len(f.wake) == 0 {
		t.Error("the sender sleeps")
	}
	answer(t, f, typ, gone)

	// As one request does, from the door on.
	again := v.open("edge-1", delta.Revision{})
	defer again.close()
	before := again.steps
	req.InitialResourceVersions = claims
	if _, err := again.receive(req); err != nil {
		t.Fatal(err)
	}
	if n := again.steps - before; n != 4 {
		t.Errorf("the lock was taken %d times, want 4", n)
	}
	answer(t, again, typ, gone)

	named := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typ, ResourceNamesSubscribe: make([]string, maxNamed)}
	if _, err := again.receive(named); err == nil {
		t.Error("any number of names")
	}
}

// answer takes what a stream sends to who holds "held" and so many that are gone.
func answer(t *testing.T, f *feed, typ string, gone int) {
	t.Helper()
	var sent []string
	removed := 0
	for {
		resp, _ := f.next(1)
		if resp == nil {
			break
		}
		for _, r := range resp.GetResources() {
			sent = append(sent, r.GetName())
		}
		removed += len(resp.GetRemovedResources())
		if _, err := f.receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typ, ResponseNonce: resp.GetNonce()}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(sent, []string{"fresh"}) || removed != gone {
		t.Errorf("sent %v, and that %d are gone; want fresh, and %d", sent, removed, gone)
	}
}

// TestPaceIsTheMachines holds that a machine which opens streams anew has no more reports at once than one
// that does not, and that it may not open streams without end.
func TestPaceIsTheMachines(t *testing.T) {
	r := newRig(t)
	s := r.server
	opened := 0
	var first pace
	for range 2 * streamBurst {
		who := &session{caller: caller{Identity: Identity{Machine: "edge-1"}, key: "k"}, end: func(error) {}}
		if _, err := s.enter(who, observation); err != nil {
			break
		}
		if opened++; opened == 1 {
			first = who.pace
		} else if who.pace != first {
			t.Fatal("another stream of the machine has a pace of its own")
		}
	}
	if opened < streamBurst || opened > streamBurst+5*streamRate {
		t.Errorf("%d streams were opened at once, want about %d", opened, streamBurst)
	}
}

package southbound

import (
	"context"
	"strconv"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestReportsArePaced holds that a machine which sends reports without a pause, or huge ones, waits, and
// one that sends what an agent sends at its busiest does not.
func TestReportsArePaced(t *testing.T) {
	taken := func(r *agentv1.Report) (n int) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		for p := newPace(); n < 10*reportBurst && p.wait(ctx, r) == nil; {
			n++
		}
		return n
	}
	small := &agentv1.Report{AgentVersion: "v1"}
	if n := taken(small); n < reportBurst || n > reportBurst+2*reportRate {
		t.Errorf("%d small reports were taken at once, want about %d", n, reportBurst)
	}
	large := &agentv1.Report{AgentVersion: string(make([]byte, maxRequestBytes-1024))}
	if n := taken(large); n < 3 || n > 6 {
		t.Errorf("%d reports of 8 MiB were taken at once, want about four", n)
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
	for taken < 10 && p.waitNames(ctx, &discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: claims}) == nil {
		taken++
	}
	if taken != 2 {
		t.Errorf("%d times %d names were taken at once, want 2", taken, len(claims))
	}
	if err := newPace().waitNames(t.Context(), &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: make([]string, nameBurst+1)}); err != nil {
		t.Errorf("more than there may be: %v", err)
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

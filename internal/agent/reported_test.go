package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestNoNumberOfChecksIsTooMuchForAReport: what a plane takes in one message is 8 MiB, and checks
// that a policy asks for go before those that are presumed.
func TestNoNumberOfChecksIsTooMuchForAReport(t *testing.T) {
	for _, n := range []int{100, 20_000, 200_000} {
		var results []model.CheckResult
		asked := map[string]bool{}
		for i := range n {
			to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 8080)
			c := model.NewCheck(to, *model.PresumedCheck())
			asked[c.ID] = i%100 == 0
			results = append(results, model.CheckResult{ID: c.ID, Health: model.Unhealthy, Since: time.Unix(1_800_000_000, 1), Message: strings.Repeat("m", 200)})
		}
		before := slices.Clone(results)
		got := fitting(results, func(id string) bool { return !asked[id] })
		if size := proto.Size(&agentv1.Report{Checks: wire.CheckResults(got)}); size > 4<<20 {
			t.Errorf("%d checks: the results take %d bytes", n, size)
		}
		if !slices.Equal(results, before) {
			t.Errorf("%d checks: what the checker gave has changed", n)
		}
		of := 0
		for _, r := range got {
			if asked[r.ID] {
				of++
			}
		}
		if of != n/100 {
			t.Errorf("%d checks: of %d that were asked for %d are reported", n, n/100, of)
		}
		if n <= 20_000 && len(got) != n {
			t.Errorf("%d checks: %d are reported", n, len(got))
		}
		if n == 100 && got[0].Message == "" {
			t.Error("a message is left out where there is room")
		}
	}
}

// TestEjectionsFitReports holds that a namespace whose backends all fail neither makes reports
// too large nor keeps those of others out of them.
func TestEjectionsFitReports(t *testing.T) {
	var all []model.Ejection
	for i := range 60_000 {
		group := model.GroupID(fmt.Sprintf("flood/%s/%d", strings.Repeat("x", 120), i))
		all = append(all, model.Ejection{Group: group, Backend: netip.AddrPortFrom(netip.MustParseAddr("2001:db8::1"), 80)})
	}
	small := model.Ejection{Group: "small/web/80", Backend: netip.MustParseAddrPort("10.0.0.1:80")}
	kept := ejections(append(all, small))
	if len(kept) > reportedEjections || !slices.Contains(kept, small) {
		t.Errorf("%d of %d are reported, the other namespace's among them: %v", len(kept), len(all)+1, slices.Contains(kept, small))
	}
	if n := proto.Size(&agentv1.Report{Ejected: wire.Ejected(kept)}); n > 2<<20 {
		t.Errorf("they take %d bytes", n)
	}
}

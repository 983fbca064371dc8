package agent

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// A data plane that takes its time to say what it can carry out keeps nobody waiting: what
// reports and announcements say is there all the while. What the plane says meanwhile counts.
func TestADataPlaneIsAskedWithoutALock(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	p := &fakePlane{kind: model.DataPlaneXDP}
	p.asked = func() {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-answer
	}
	a := newBalancing(t, p)
	a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100))...)
	a.whole()
	applied := make(chan struct{})
	go func() { defer close(applied); a.balancer.apply() }()
	<-asked
	told := make(chan int, 1)
	go func() { told <- len(a.balancer.observed()) }()
	select {
	case n := <-told:
		if n != 0 {
			t.Errorf("%d frontends are observed before it is known who balances them", n)
		}
	case <-time.After(patience):
		close(answer)
		t.Fatal("nobody is told anything before the data plane has answered")
	}
	// Meanwhile there is another backend.
	a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100), ready(netip.MustParseAddrPort("10.0.0.10:8080"), "", 100))...)
	close(answer)
	<-applied
	a.balances("tcp://192.0.2.1:80 balanced /XDP 2")
	if got := p.has().Frontends[web]; got == nil || len(got.Backends) != 2 {
		t.Errorf("the data plane has %+v", got)
	}
}

// A data plane that takes its time to carry out a frontend has not refused it, and does not
// count what comes for it either.
func TestAFrontendIsPendingUntilItsDataPlaneHasTakenIt(t *testing.T) {
	t.Parallel()
	p := &fakePlane{kind: model.DataPlaneXDP, held: make(chan struct{}), entered: make(chan struct{})}
	a := newBalancing(t, p)
	a.balancer.drivers.Planes[0].DataPlane = countingPlane{fakePlane: p}
	a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100))...)
	a.whole()
	applied := make(chan struct{})
	go func() { defer close(applied); a.balancer.apply() }()
	<-p.entered
	o, counters := a.balancer.observed(), a.balancer.counters()
	close(p.held)
	<-applied
	if len(o) != 1 || o[0].State != "pending" || o[0].Message != "the data plane has not applied it yet" {
		t.Errorf("meanwhile it says %+v", o)
	}
	if after := a.balancer.counters(); len(counters) != 0 || len(after) != 1 {
		t.Errorf("%d data planes count what comes for it meanwhile, and %d after that", len(counters), len(after))
	}
}

// What an earlier agent left in the kernel stays until everything that is wanted is known with
// its data plane. What the plane changes while the first question is asked is not, and a data
// plane that was told of the rest only would take away what is to stay.
func TestNothingGoesWhileTheFirstAnswersAreOutOfDate(t *testing.T) {
	t.Parallel()
	var told []string
	p := &fakePlane{kind: model.DataPlaneXDP, log: &told}
	a := newBalancing(t, p)
	a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100))...)
	a.gives(frontendChanges(t, frontendOn(mail, "edge-1"), ready(pod, "", 100))...)
	a.whole()
	questions := 0
	p.asked = func() {
		if questions++; questions == 2 {
			a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 50))...)
		}
	}
	if again := a.balancer.apply(); again == 0 || len(told) > 0 {
		t.Errorf("with answers that are out of date it looks again after %s, and the data plane was told %q", again, told)
	}
	a.balances("tcp://192.0.2.1:25 balanced /XDP 1", "tcp://192.0.2.1:80 balanced /XDP 1")
	if want := []string{"XDP=tcp://192.0.2.1:25,tcp://192.0.2.1:80"}; !slices.Equal(told, want) {
		t.Errorf("the data plane was told %q, want %q", told, want)
	}
}

package plane

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/southbound"
)

// candidate is a lease of one plane whose election the test plays.
type candidate struct {
	*lease
	t       *testing.T
	changes int
}

func (r *rig) candidate(identity string) *candidate {
	r.t.Helper()
	if err := ensureNamespace(context.Background(), r.client); err != nil {
		r.t.Fatal(err)
	}
	c := &candidate{t: r.t}
	c.lease = &lease{
		client: r.client, identity: identity, address: identity + ":7443",
		log: slog.New(slog.DiscardHandler), changed: func() { c.changes++ },
	}
	return c
}

func (c *candidate) record(holder string) resourcelock.LeaderElectionRecord {
	now := metav1.NewTime(time.Now())
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 6, AcquireTime: now, RenewTime: now}
}

func (c *candidate) read() {
	c.t.Helper()
	if _, _, err := c.Get(context.Background()); err != nil {
		c.t.Fatal(err)
	}
}

// hold takes or renews the Lease; free gives it back.
func (c *candidate) hold() {
	c.t.Helper()
	if err := c.Update(context.Background(), c.record(c.identity)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *candidate) free() {
	c.t.Helper()
	if err := c.Update(context.Background(), c.record("")); err != nil {
		c.t.Fatal(err)
	}
}

func (c *candidate) expect(want term) {
	c.t.Helper()
	want.Identity, _, _ = strings.Cut(want.Leader, ":")
	if got := c.current(); got != want {
		c.t.Fatalf("%s is at %+v, want %+v", c.identity, got, want)
	}
}

func TestEpochGrowsWithEveryLeadership(t *testing.T) {
	r := newRig(t)
	a, b := r.candidate("a"), r.candidate("b")
	if err := a.Create(context.Background(), a.record("a")); err != nil {
		t.Fatal(err)
	}
	a.expect(term{Epoch: 1, Held: true, Renewing: true, Leader: "a:7443"})
	a.hold()
	a.expect(term{Epoch: 1, Held: true, Renewing: true, Leader: "a:7443"})
	if a.changes != 1 {
		t.Errorf("a renewal was told as a change: %d", a.changes)
	}
	b.read()
	b.expect(term{Leader: "a:7443"})
	a.free()
	a.expect(term{Epoch: 1})
	b.read()
	b.expect(term{})
	b.hold()
	b.expect(term{Epoch: 2, Held: true, Renewing: true, Leader: "b:7443"})

	// The same plane leads again: another epoch.
	b.free()
	b.hold()
	b.expect(term{Epoch: 3, Held: true, Renewing: true, Leader: "b:7443"})

	// A plane that was started anew under its name knows nothing and takes a new one.
	b2 := r.candidate("b")
	b2.read()
	b2.hold()
	b2.expect(term{Epoch: 4, Held: true, Renewing: true, Leader: "b:7443"})
}

// A plane that holds the Lease and has published nothing yet, or ends, is neither a leader nor a standby.
func TestAPlaneStartsToLead(t *testing.T) {
	p := &Plane{config: Config{Identity: "a"}, lease: &lease{}}
	for _, c := range []struct {
		what              string
		term              term
		serving           uint64
		ended             bool
		leading, starting bool
	}{
		{"the leader is not known", term{}, 0, false, false, false},
		{"another plane leads", term{Leader: "b:7443"}, 0, false, false, false},
		{"another plane leads after this one", term{Epoch: 3, Leader: "b:7443"}, 0, false, false, false},
		{"the Lease is held", term{Epoch: 4, Held: true, Renewing: true, Leader: "a:7443"}, 0, false, false, true},
		{"agents are served", term{Epoch: 4, Held: true, Renewing: true, Leader: "a:7443"}, 4, false, true, false},
		{"agents are served, and the API is away", term{Epoch: 4, Held: true, Leader: "a:7443"}, 4, false, true, false},
		{"agents are served still, and another plane leads", term{Epoch: 4, Leader: "b:7443"}, 4, false, true, false},
		{"the plane ends, and its Lease is not free yet", term{Epoch: 4, Held: true, Renewing: true, Leader: "a:7443"}, 0, true, false, false},
	} {
		p.lease.term = c.term
		p.serving.Store(c.serving)
		p.ended.Store(c.ended)
		if s := p.planeStatus(1, nil); s.Leading != c.leading || s.Starting != c.starting || s.Ending != c.ended {
			t.Errorf("%s: leading %v, starting to lead %v, ending %v", c.what, s.Leading, s.Starting, s.Ending)
		}
	}
}

func TestAStandbySaysOnceWhoLeads(t *testing.T) {
	r := newRig(t)
	a, b, c := r.candidate("a"), r.candidate("b"), r.candidate("c")
	var lines strings.Builder
	c.log = slog.New(slog.NewTextHandler(&lines, nil))
	if err := a.Create(context.Background(), a.record("a")); err != nil {
		t.Fatal(err)
	}
	said := func(leader string, times int) {
		t.Helper()
		c.read()
		c.read() // the same again
		if n := strings.Count(lines.String(), "level=INFO msg=\"standing by: another plane leads\" leader="+leader+"\n"); n != times {
			t.Errorf("said %d times that %s leads, want %d: %s", n, leader, times, lines.String())
		}
	}
	said("a:7443", 1)
	a.hold()
	said("a:7443", 1)
	a.free()
	b.read()
	b.hold()
	said("b:7443", 1)
	said("a:7443", 1)
}

func TestLeadershipOutlivesAnAPIThatIsAway(t *testing.T) {
	r := newRig(t)
	a, b := r.candidate("a"), r.candidate("b")
	if err := a.Create(context.Background(), a.record("a")); err != nil {
		t.Fatal(err)
	}
	a.notRenewed()
	a.expect(term{Epoch: 1, Held: true, Leader: "a:7443"})
	// The API is back and nobody led meanwhile: nothing has to change.
	a.read()
	a.hold()
	a.expect(term{Epoch: 1, Held: true, Renewing: true, Leader: "a:7443"})
	// Away again, and another plane took the Lease.
	a.notRenewed()
	b.read()
	b.hold()
	a.read()
	a.expect(term{Epoch: 1, Leader: "b:7443"})
	if err := a.exceed(context.Background(), 9); err == nil {
		t.Error("a plane that does not lead raised the epoch")
	}
	// A plane that had lost it unawares does not give away what is another's.
	if err := a.Update(context.Background(), a.record("")); err == nil {
		t.Error("a plane gave back the Lease of another")
	}
	b.hold()
	b.expect(term{Epoch: 2, Held: true, Renewing: true, Leader: "b:7443"})
	// A stale version cannot take it back.
	stale := r.candidate("a")
	stale.read()
	b.hold()
	if err := stale.Update(context.Background(), stale.record("a")); err == nil {
		t.Error("a stale version of the Lease was written over")
	}
}

// TestASuccessorIsBelievedWhenTheLeaseIsLost: who says that it leads ends no leadership that is renewed, and none
// of a larger epoch.
func TestASuccessorIsBelievedWhenTheLeaseIsLost(t *testing.T) {
	r := newRig(t)
	a, b := r.candidate("a"), r.candidate("b")
	var told []string
	b.took = func(address string) { told = append(told, address) }
	if err := a.Create(context.Background(), a.record("a")); err != nil {
		t.Fatal(err)
	}
	by := southbound.Successor{Epoch: 2, Address: "b:7443", Identity: "b"}
	if err := a.succeeded(by); !errors.Is(err, southbound.ErrKeepsOn) {
		t.Errorf("a plane that renews its Lease answered %v", err)
	}
	a.expect(term{Epoch: 1, Held: true, Renewing: true, Leader: "a:7443"})
	a.notRenewed()
	before := by
	before.Epoch = 1
	if err := a.succeeded(before); !errors.Is(err, southbound.ErrKeepsOn) {
		t.Errorf("a plane in the same epoch answered %v", err)
	}
	a.expect(term{Epoch: 1, Held: true, Leader: "a:7443"})
	b.read()
	b.hold()
	b.hold()
	if !slices.Equal(told, []string{"a:7443"}) {
		t.Errorf("who took the Lease once tells %q", told)
	}
	for range 2 { // it may be told twice
		if err := a.succeeded(by); err != nil {
			t.Error(err)
		}
		a.expect(term{Epoch: 1, Leader: "b:7443"})
	}
	// A Lease that was given back was nobody's.
	b.free()
	c := r.candidate("c")
	c.took = func(address string) { t.Errorf("%s was told of a Lease that was given back", address) }
	c.read()
	c.hold()
}

// deafClient refuses renewals while it is told to, as an API does that is too slow for them.
type deafClient struct {
	client.Client
	deaf    atomic.Bool
	refused atomic.Int64
}

func (c *deafClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if l, ok := o.(*coordinationv1.Lease); ok && holder(l) != "" && c.deaf.Load() {
		c.refused.Add(1)
		return errors.New("nothing is written now")
	}
	return c.Client.Update(ctx, o, opts...)
}

// TestALateRenewalGivesNothingBack: a leader whose renewals fail for a while, and then do not, leads on in
// the same epoch. It gives the Lease back when it ends.
func TestALateRenewalGivesNothingBack(t *testing.T) {
	r := newRig(t)
	a := r.candidate("a")
	api := &deafClient{Client: a.client}
	a.client = api
	terms := make(chan term, 64)
	a.changed = func() { terms <- a.current() }
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- a.run(ctx, quickLease) }()
	until := func(what string, is func(term) bool) (seen []term) {
		t.Helper()
		for {
			select {
			case now := <-terms:
				if seen = append(seen, now); is(now) {
					return seen
				}
			case <-time.After(patience):
				t.Fatalf("%s: not within %s, only %+v", what, patience, seen)
			}
		}
	}
	until("it leads", func(now term) bool { return now.Renewing })
	api.deaf.Store(true)
	until("it does not renew", func(now term) bool { return !now.Renewing })
	// The election gives back first what it could not renew, and then tries to take it.
	at := api.refused.Load()
	eventually(t, "it tries again", func() error {
		if api.refused.Load() < at+2 {
			return errors.New("it does not")
		}
		return nil
	})
	api.deaf.Store(false)
	for _, now := range until("it renews", func(now term) bool { return now.Renewing }) {
		if !now.Held || now.Epoch != 1 {
			t.Errorf("meanwhile it was at %+v", now)
		}
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	until("it gives the Lease back", func(now term) bool { return !now.Held })
}

func TestExceed(t *testing.T) {
	r := newRig(t)
	a := r.candidate("a")
	ctx := context.Background()
	if err := a.Create(ctx, a.record("a")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ seen, want uint64 }{{0, 1}, {7, 8}, {7, 8}, {3, 8}, {8, 9}} {
		if err := a.exceed(ctx, c.seen); err != nil {
			t.Fatal(err)
		}
		a.expect(term{Epoch: c.want, Held: true, Renewing: true, Leader: "a:7443"})
	}
	a.hold()
	a.expect(term{Epoch: 9, Held: true, Renewing: true, Leader: "a:7443"})
	b := r.candidate("b")
	b.read()
	b.hold()
	b.expect(term{Epoch: 10, Held: true, Renewing: true, Leader: "b:7443"})
	if err := a.exceed(ctx, 20); err == nil {
		t.Error("the epoch was raised for a plane that had lost the Lease unawares")
	}
	a.expect(term{Epoch: 9, Leader: "b:7443"})
}

func TestUnreadableEpochIsStartedOver(t *testing.T) {
	r := newRig(t)
	a := r.candidate("a")
	if err := a.Create(context.Background(), a.record("a")); err != nil {
		t.Fatal(err)
	}
	at := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: leaseName}}
	edit(r, at, func(l *coordinationv1.Lease) { l.Annotations[epochAnnotation] = "many" })
	b := r.candidate("b")
	b.read()
	b.hold()
	b.expect(term{Epoch: 1, Held: true, Renewing: true, Leader: "b:7443"})
	// The plane that knows an epoch keeps above it.
	a.read()
	a.hold()
	a.expect(term{Epoch: 2, Held: true, Renewing: true, Leader: "a:7443"})
	if err := r.client.Get(context.Background(), client.ObjectKeyFromObject(at), at); err != nil || at.Annotations[epochAnnotation] != "2" {
		t.Errorf("the annotation is %q, error %v", at.Annotations[epochAnnotation], err)
	}
}

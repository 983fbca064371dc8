package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/record"
)

// TestSubscribesWithWhatItHolds: after a reconnect, and after a restart, only
// differences have to travel, and the plane learns the largest revision.
func TestSubscribesWithWhatItHolds(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	a, stop := m.start()
	c, asked := p.call()
	if c.machine != "edge-1" {
		t.Errorf("it comes as %q", c.machine)
	}
	for _, typ := range planeTypes {
		if req := asked[typ]; req == nil || !slices.Equal(req.GetResourceNamesSubscribe(), []string{"*"}) || len(req.GetInitialResourceVersions()) != 0 {
			t.Errorf("at first it asks for %s with %v", typ, req)
		}
	}
	if got := revisionOf(asked[typeCluster]); got != "" {
		t.Errorf("at first it has accepted %q", got)
	}
	c.must(t, whole(t, at(2, 5), 1)...)
	// The largest counts, not the last checkpoint's.
	c.must(t, responseOf(t, at(2, 7), gatetest.Cluster(t, "c2", "s2", 1)))
	c.end <- nil

	check := func(what string, asked map[delta.Type]*discoveryv3.DeltaDiscoveryRequest) {
		if got := revisionOf(asked[typeCluster]); got != "2/7" {
			t.Errorf("%s it has accepted %q, want 2/7", what, got)
		}
		want := map[string]string{"c1": gatetest.Cluster(t, "c1", "s1", 1).Resource.Version, "c2": gatetest.Cluster(t, "c2", "s2", 1).Resource.Version}
		if got := asked[typeCluster].GetInitialResourceVersions(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s it holds clusters %v, want %v", what, got, want)
		}
		if got := asked[typeEndpoint].GetInitialResourceVersions(); got["s1"] == "" {
			t.Errorf("%s it holds endpoints %v", what, got)
		}
		if got := asked[typeCheckpoint].GetInitialResourceVersions(); len(got) != 0 {
			t.Errorf("%s it claims the checkpoint %v, which says that all is here", what, got)
		}
	}
	c, asked = p.call()
	check("after a reconnect", asked)
	if got := a.Status(); got.Accepted != "2/7" || got.Machine != "edge-1" || got.Problems == nil {
		t.Errorf("status is %+v", got)
	}
	stop()
	m.config.Token = nil // the identity is enough
	m.start()
	_, asked = p.call()
	check("after a restart", asked)
	_ = c
}

// TestRefusesAnOlderPlane: an old leader, or one whose data was restored from a
// backup, changes nothing.
func TestRefusesAnOlderPlane(t *testing.T) {
	t.Parallel()
	for name, older := range map[string]delta.Revision{"revision": at(2, 4), "epoch": at(1, 9)} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t, newAuthority(t))
			a, _ := newMachine(t, "edge-1", p).start()
			c, _ := p.call()
			c.must(t, whole(t, at(2, 5), 1)...)
			before, _ := a.desired.held()
			c.send(t, responseOf(t, older, gatetest.Cluster(t, "c1", "s1", 7), gatetest.Removal(typeCluster, "c1"), gatetest.Cluster(t, "c3", "s3", 1)))
			select {
			case <-c.gone:
			case <-time.After(patience):
				t.Fatal("it goes on listening to it")
			}
			for len(c.requests) > 0 {
				if req := <-c.requests; req.GetResponseNonce() == fmt.Sprint(c.nonce) {
					t.Errorf("it answered: %v", req)
				}
			}
			c, asked := p.call()
			if got := revisionOf(asked[typeCluster]); got != "2/5" {
				t.Errorf("it has accepted %q", got)
			}
			after, accepted := a.desired.held()
			if fmt.Sprint(before) != fmt.Sprint(after) || accepted != at(2, 5) {
				t.Errorf("it was %v, is %v at %s", before, after, accepted)
			}
			trouble := a.Status().Trouble
			for _, part := range []string{p.address, older.String(), "2/5", "old leader", "backup"} {
				if !strings.Contains(trouble, part) {
					t.Errorf("%q does not say %q", trouble, part)
				}
			}
			// The same revision again, and a larger one, are in order.
			c.must(t, responseOf(t, at(2, 5), gatetest.Endpoints(t, "s9", 1)))
			c.must(t, responseOf(t, at(3, 1), gatetest.Cluster(t, "c3", "s3", 1)))
			if got := a.Status(); got.Accepted != "3/1" || got.Trouble != "" || got.Plane != p.address {
				t.Errorf("status is %+v", got)
			}
		})
	}
}

func TestFollowsTheLeader(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	leader, standby := newPlane(t, a), newPlane(t, a)
	m := newMachine(t, "edge-1", leader)
	m.config.Planes = []string{standby.address}
	standby.with(func() { standby.leader = leader.address })
	agent, _ := m.start()
	c, _ := leader.call()
	c.must(t, whole(t, at(1, 1), 1)...)
	if got := agent.Status().Plane; got != leader.address {
		t.Errorf("it is connected to %q", got)
	}
	// They change places: the old leader says so as it ends the stream.
	standby.with(func() { standby.leader = "" })
	leader.with(func() { leader.leader = standby.address })
	c.end <- leader.standby()
	c, asked := standby.call()
	if got := revisionOf(asked[typeCluster]); got != "1/1" {
		t.Errorf("it has accepted %q", got)
	}
	c.must(t, responseOf(t, at(2, 1), gatetest.Cluster(t, "c2", "s2", 1)))
}

// TestGoesOnWithAnotherPlane: one that was lost may be gone with its machine.
func TestGoesOnWithAnotherPlane(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	lost, other := newPlane(t, a), newPlane(t, a)
	m := newMachine(t, "edge-1", lost)
	m.config.Planes = []string{lost.address, other.address}
	m.start()
	c, _ := lost.call()
	c.must(t, whole(t, at(1, 1), 1)...)
	c.end <- status.Error(codes.Unavailable, "gone")
	select {
	case <-other.calls:
	case <-lost.calls:
		t.Error("the agent goes back to the plane that it has lost, without asking the other one")
	case <-time.After(patience):
		t.Error("the agent does not come")
	}
}

// TestRefusesWhatItCannotRead: by name, and nothing but that.
func TestRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	a, _ := newMachine(t, "edge-1", p).start()
	c, _ := p.call()
	bad := gatetest.Cluster(t, "c-bad", "s1", 1)
	bad.Resource.Body.Value = []byte{0xff}
	says := c.tell(t, responseOf(t, at(1, 1), gatetest.Cluster(t, "c1", "s1", 1), bad, gatetest.Cluster(t, "c2", "s2", 1)))
	if !strings.Contains(says, "c-bad") || strings.Contains(says, "c1") || strings.Contains(says, "c2") {
		t.Errorf("it says %q", says)
	}
	versions, accepted := a.desired.held()
	if got := versions[typeCluster]; len(got) != 2 || got["c1"] == "" || got["c2"] == "" {
		t.Errorf("it took %v", got)
	}
	if accepted != at(0, 0) {
		t.Errorf("it accepted %s", accepted)
	}
	for _, resp := range []*discoveryv3.DeltaDiscoveryResponse{
		{TypeUrl: "type.googleapis.com/unknown", SystemVersionInfo: "1/1"},
		{TypeUrl: string(typeCluster), SystemVersionInfo: "soon"},
		{TypeUrl: string(typeCluster), SystemVersionInfo: "1/1", Resources: []*discoveryv3.Resource{{}}},
	} {
		if says := c.tell(t, resp); says == "" {
			t.Errorf("it takes %v", resp)
		}
	}
	c.must(t, whole(t, at(1, 1), 2)...)
}

// TestRenewsAfterTwoThirds of the certificate's life, with the same key, while the
// stream goes on; a plane that cannot sign costs nothing.
func TestRenewsAfterTwoThirds(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	path := filepath.Join(m.config.DataDir, "identity", "identity.json")
	_, stop := m.start()
	c, _ := p.call()
	c.must(t, whole(t, at(1, 1), 1)...)
	old, err := loadIdentity(path)
	if err != nil {
		t.Fatal(err)
	}
	stop()

	p.authority.clock.set(old.renewAt())
	p.with(func() { p.mute = true })
	_, stop = m.start()
	c, _ = p.call()
	c.must(t, responseOf(t, at(1, 2), gatetest.Cluster(t, "c1", "s1", 2)))
	eventually(t, "the renewal fails", func() bool { return m.renewals("failed") == 1 })
	if id, err := loadIdentity(path); err != nil || !id.NotAfter().Equal(old.NotAfter()) {
		t.Errorf("the identity was changed: %v", err)
	}
	c.must(t, responseOf(t, at(1, 3), gatetest.Cluster(t, "c1", "s1", 3)))
	stop()

	p.with(func() { p.mute = false })
	a, _ := m.start()
	c, _ = p.call()
	c.must(t, responseOf(t, at(1, 4), gatetest.Cluster(t, "c1", "s1", 4)))
	eventually(t, "it is renewed", func() bool { return m.renewals("renewed") == 1 })
	fresh, err := loadIdentity(path)
	if err != nil {
		t.Fatal(err)
	}
	if !fresh.NotAfter().Equal(p.authority.clock.Now().Add(machineLife)) || fresh.record.Key != old.record.Key {
		t.Errorf("the new one ends at %s; same key: %v", fresh.NotAfter(), fresh.record.Key == old.record.Key)
	}
	if got := a.Status().Expires; !got.Equal(fresh.NotAfter()) {
		t.Errorf("status says %s", got)
	}
	// The open stream goes on, and the next one shows the new certificate: the old
	// one is over by then.
	c.must(t, responseOf(t, at(1, 5), gatetest.Cluster(t, "c1", "s1", 5)))
	p.authority.clock.set(old.NotAfter().Add(time.Second))
	c.end <- nil
	c, _ = p.call()
	c.must(t, responseOf(t, at(1, 6), gatetest.Cluster(t, "c1", "s1", 6)))
}

// TestRenewedMachineIsKnownToARestoredPlane: the backup is of before the renewal, and
// lists the key that the machine had then.
func TestRenewedMachineIsKnownToARestoredPlane(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	a, _ := m.start()
	c, _ := p.call()
	c.must(t, whole(t, at(1, 1), 1)...)
	backup := p.authority.listed("edge-1")
	p.authority.clock.set(a.membership.current().renewAt())
	c.end <- nil
	c, _ = p.call()
	c.must(t, responseOf(t, at(1, 2), gatetest.Cluster(t, "c1", "s1", 2)))
	eventually(t, "it is renewed", func() bool { return m.renewals("renewed") == 1 })

	p.authority.list("edge-1", backup...)
	c.end <- nil
	eventually(t, "it comes back or is refused", func() bool {
		return len(p.calls) > 0 || strings.Contains(a.Status().Trouble, joinAgain)
	})
	if trouble := a.Status().Trouble; strings.Contains(trouble, joinAgain) {
		t.Fatal(trouble)
	}
	c, _ = p.call()
	c.must(t, responseOf(t, at(2, 1), gatetest.Cluster(t, "c1", "s1", 3)))
}

// TestExpiredWhileRunning: traffic goes on, and it is said what to do.
func TestExpiredWhileRunning(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	a, _ := m.start()
	c, _ := p.call()
	c.must(t, whole(t, at(1, 1), 1)...)
	p.authority.clock.set(a.membership.current().NotAfter().Add(time.Second))
	c.end <- nil
	eventually(t, "it is said", func() bool { return strings.Contains(a.Status().Trouble, joinAgain) })
	if err := a.Readyz(t.Context()); err != nil {
		t.Errorf("it does not serve: %v", err)
	}
}

// TestFirstStartWithoutAWayToJoin ends, and says why; with a remembered state it
// goes on.
func TestFirstStartWithoutAWayToJoin(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	token := m.config.Token
	m.config.Token = nil
	c := m.config
	c.Proxy, c.Rand, c.Log = idleProxy{t: t}, rand.New(rand.NewPCG(1, 2)), slog.New(slog.DiscardHandler)
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, a.Run(t.Context()), errNoIdentity, joinAgain)

	m.config.Token = token
	_, stop := m.start()
	stream, _ := p.call()
	stream.must(t, whole(t, at(1, 1), 1)...)
	stop()
	if err := os.Remove(filepath.Join(c.DataDir, "identity", "identity.json")); err != nil {
		t.Fatal(err)
	}
	m.config.Token = nil
	a, _ = m.start()
	eventually(t, "it is said", func() bool { return strings.Contains(a.Status().Trouble, joinAgain) })
	if err := a.Readyz(t.Context()); err != nil {
		t.Errorf("it does not serve what it remembers: %v", err)
	}
}

// TestAsksForATokenWhenItNeedsOne: a machine with an identity that its plane takes has none made.
func TestAsksForATokenWhenItNeedsOne(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	var asked atomic.Int32
	file := m.tokenFile
	m.config.Token = func(ctx context.Context) (string, error) {
		asked.Add(1)
		return TokenFile(file)(ctx)
	}
	_, stop := m.start()
	p.call()
	if n := asked.Load(); n != 1 {
		t.Errorf("it asked %d times to join", n)
	}
	stop()
	asked.Store(0)
	m.start()
	c, _ := p.call()
	if n := asked.Load(); n != 0 {
		t.Errorf("with an identity it asked %d times", n)
	}
	file = p.token("second", "edge-1")
	p.with(func() { p.deleted = true })
	c.end <- nil
	p.call()
	if asked.Load() == 0 {
		t.Error("it joined again without asking")
	}
}

// TestJoinsAgain: a machine that was deleted, or whose plane was set up anew, comes
// back as soon as a new token is in the file, and serves all the while.
func TestJoinsAgain(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	a, stop := m.start()
	c, _ := p.call()
	c.must(t, whole(t, at(1, 1), 1)...)

	p.with(func() { p.deleted, p.taken = true, 2 }) // a deleted machine was alive a moment ago
	c.end <- nil
	eventually(t, "it is said", func() bool { return strings.Contains(a.Status().Trouble, joinAgain) })
	if err := a.Readyz(t.Context()); err != nil {
		t.Errorf("it does not serve: %v", err)
	}
	replaceToken := func(p *plane, id string) {
		t.Helper()
		text, err := os.ReadFile(p.token(id, "edge-1"))
		if err != nil {
			t.Fatal(err)
		}
		if err := record.WriteFile(m.tokenFile, text); err != nil {
			t.Fatal(err)
		}
	}
	replaceToken(p, "second")
	c, _ = p.call()
	c.must(t, responseOf(t, at(1, 2), gatetest.Cluster(t, "c1", "s1", 2)))
	stop()

	// Another authority at the same place.
	anew := newPlane(t, newAuthority(t))
	m.config.Planes = []string{anew.address}
	a, _ = m.start()
	eventually(t, "it is said", func() bool {
		trouble := a.Status().Trouble
		return strings.Contains(trouble, joinAgain) && strings.Contains(trouble, "authority")
	})
	replaceToken(anew, "third")
	c, _ = anew.call()
	c.must(t, responseOf(t, at(2, 1), gatetest.Cluster(t, "c1", "s1", 3)))
}

// TestOutagesAreSaidOnce: the same reason again is no other reason.
func TestOutagesAreSaidOnce(t *testing.T) {
	var log bytes.Buffer
	l := &planeLink{
		log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), presence: func(bool) {},
		counters: &counters{connected: prometheus.NewGauge(prometheus.GaugeOpts{Name: "connected"})},
	}
	gone, away := fmt.Errorf("refused: %w", errStranger), errors.New("no route to host")
	for _, err := range []error{gone, gone, gone, away, away, gone} {
		l.lost("192.0.2.1:7443", err, false)
	}
	var said []string
	for line := range strings.Lines(log.String()) {
		_, message, _ := strings.Cut(line, "msg=")
		message, _, _ = strings.Cut(message, " plane=")
		said = append(said, message)
	}
	if want := []string{`"no plane; traffic continues unchanged"`, `"no plane"`, `"still no plane, for another reason"`}; !slices.Equal(said, want) {
		t.Errorf("it says %q, want %q", said, want)
	}
}

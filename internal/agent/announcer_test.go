package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

func TestNothingIsAnnouncedBeforeTheWholeState(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	a.becomes(proxyReady, 0) // it served before this agent
	a.gives(peerChange(t, router), vipChange(t, bgpVIP(one, "http-80")))
	a.listens("http-80")
	a.says("-") // there may be more
	a.told(one, model.VIPWithheld, "the agent has just started")
	a.gives(vipChange(t, bgpVIP(two, "http-90")))
	a.whole()
	if again := a.says("-"); again != beginGrace {
		t.Errorf("it looks again after %s, want %s", again, beginGrace)
	}
	a.told(two, model.VIPWithheld, "the proxy does not serve listener http-90 yet")
	a.listens("http-80", "http-90")
	a.says(one.String(), two.String())
	if w := a.spoken[0]; len(w.Peers) != 1 || w.Peers[0].Name != "router" || w.Machine != "edge-1" {
		t.Errorf("the speaker was told %+v", w)
	}
}

// What a peer kept of a proxy that is gone must go at once, and not when the next one is
// ready.
func TestBeginningWithAFreshProxyIsAtOnce(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	a.becomes("starting", 1)
	a.gives(peerChange(t, router), vipChange(t, bgpVIP(one, "http-80")))
	a.says("-") // no state yet
	a.whole()
	a.says()
	if w := a.spoken[0]; len(w.Peers) != 1 {
		t.Errorf("the speaker was told %+v", w)
	}
	a.becomes(proxyReady, 1)
	a.listens("http-80")
	a.says(one.String())
}

func TestBeginningHasAnEnd(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	a.gives(vipChange(t, bgpVIP(one, "http-80")), vipChange(t, bgpVIP(two, "http-90")))
	a.listens("http-80")
	a.after(beginGrace)
	if again := a.says("-"); again > repairEvery { // no state: there is nothing to begin with
		t.Errorf("it looks again after %s", again)
	}
	a.whole()
	a.says(one.String())
	a.told(two, model.VIPWithheld, "the proxy does not serve listener http-90 yet")
}

func TestWhatNothingServesHoldsUpNothing(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	a.gives(vipChange(t, bgpVIP(one)), vipChange(t, bgpVIP(two, "http-80")))
	a.whole()
	a.listens("http-80")
	a.says(two.String())
	a.told(one, model.VIPWithheld, "no proxy or data plane on this machine serves it")
	a.told(two, model.VIPWithheld, "no BGPPeer selects this machine")
}

func TestProxyDecides(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) *announcing {
		a := newAnnouncing(t)
		a.gives(vipChange(t, bgpVIP(one, "http-80")))
		a.whole()
		a.listens("http-80")
		a.says(one.String())
		a.after(time.Hour) // in which nothing happens
		return a
	}
	t.Run("draining serves", func(t *testing.T) {
		a := begin(t)
		a.becomes("draining", 1)
		a.says(one.String())
	})
	t.Run("one that ended", func(t *testing.T) {
		a := begin(t)
		a.becomes("backoff", 1)
		a.says()
		a.told(one, model.VIPWithheld, "the proxy is backoff: so it says")
		a.becomes("starting", 2)
		a.says()
		a.becomes(proxyReady, 2)
		a.says(one.String())
	})
	t.Run("one that ended and was replaced before anybody looked", func(t *testing.T) {
		a := begin(t)
		a.becomes("starting", 2)
		a.says()
	})
	t.Run("one that is silent", func(t *testing.T) {
		a := begin(t)
		a.becomes("starting", 1)
		if again := a.says(one.String()); again != silentGrace {
			t.Errorf("it looks again after %s, want %s", again, silentGrace)
		}
		a.after(silentGrace - 1)
		a.says(one.String())
		a.after(1)
		a.says()
		a.becomes(proxyReady, 1)
		a.says(one.String())
		a.becomes("starting", 1) // it is silent anew
		a.says(one.String())
	})
	t.Run("a listener that goes", func(t *testing.T) {
		a := begin(t)
		a.listens()
		a.says()
		a.told(one, model.VIPWithheld, "the proxy does not serve listener http-80 yet")
	})
}

// TestOneListenerDoesNotTakeTheOthersOffTheAir when it is added, and when the proxy never takes it.
func TestOneListenerDoesNotTakeTheOthersOffTheAir(t *testing.T) {
	t.Parallel()
	const lacks = "the proxy does not serve listener http-90 yet"
	t.Run("that is added", func(t *testing.T) {
		a := newAnnouncing(t)
		a.gives(vipChange(t, bgpVIP(one, "http-80")))
		a.whole()
		a.listens("http-80")
		a.says(one.String())
		a.gives(vipChange(t, bgpVIP(one, "http-80", "http-90")))
		a.says(one.String())
		a.carries(one)
		a.told(one, model.VIPAnnounced, lacks)
		a.listens("http-80", "http-90")
		a.says(one.String())
		a.told(one, model.VIPAnnounced, "")
		a.listens()
		a.says()
	})
	t.Run("that is refused from the start", func(t *testing.T) {
		a := newAnnouncing(t)
		a.becomes(proxyReady, 0) // it was there before the agent
		a.gives(vipChange(t, bgpVIP(one, "http-80", "http-90")))
		a.whole()
		a.listens("http-80")
		a.says("-")
		a.after(beginGrace)
		a.says(one.String())
		a.becomes("backoff", 1)
		a.says()
		a.becomes(proxyReady, 2)
		if again := a.says(); again != beginGrace { // the others may come yet
			t.Errorf("it looks again after %s, want %s", again, beginGrace)
		}
		a.after(beginGrace)
		a.says(one.String())
	})
	t.Run("that is refused later", func(t *testing.T) {
		a := newAnnouncing(t)
		a.whole()
		a.says()
		a.gives(vipChange(t, bgpVIP(two, "http-80", "http-90")))
		a.listens("http-80")
		a.after(time.Hour)
		a.says()
		a.told(two, model.VIPWithheld, lacks)
		a.after(beginGrace)
		a.says(two.String())
	})
}

// TestAProxyThatLivesOnKeepsItsListeners while it waits for a plane that is away, and when
// its stream ends; a new one has none.
func TestAProxyThatLivesOnKeepsItsListeners(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	listener, cluster := gatetest.Listener(t, "http-80", "x"), gatetest.Cluster(t, "c1", "s1", 1)
	whole := []delta.Change{cluster, listener, vipChange(t, bgpVIP(one, "http-80")), checkpointAt(t, at(1, 1))}
	if _, err := restore(a.agent, remembered{revision: at(1, 1), target: whole, good: []delta.Change{cluster, listener}}); err != nil {
		t.Fatal(err)
	}
	a.says(one.String()) // it runs, and has not even connected
	connect := func(held map[string]string) {
		s := a.relay.connect(func() {})
		a.relay.open(s, &discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: held}, nil)
	}
	for range 2 {
		connect(map[string]string{"c1": "1"})
		a.says(one.String())
	}
	connect(nil)
	a.says()
	a.told(one, model.VIPWithheld, "the proxy does not serve listener http-80 yet")
}

func TestClaims(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	v := model.VIP{Address: one, Mode: model.AnnounceL2, Listeners: []model.ListenerID{"http-80"}, Candidates: []string{"edge-2", "edge-1"}, Interfaces: []string{"eth0"}}
	a.gives(vipChange(t, v))
	a.whole()
	a.listens("http-80")
	a.says()
	if c := a.candidacies[len(a.candidacies)-1]; len(c) != 1 || c[0].VIP != one || !c[0].Ready || !slices.Equal(c[0].Candidates, v.Candidates) || !slices.Equal(c[0].Interfaces, v.Interfaces) {
		t.Errorf("the candidacies are %+v", c)
	}
	if len(a.held) > 0 || !slices.Equal(a.kept, []netip.Addr{one}) {
		t.Errorf("the loopback holds %v and leaves %v, want the VIP left to the segment", a.held, a.kept)
	}
	a.told(one, model.VIPWithheld, "the agent has just started")
	a.with(func() {
		a.owned = []model.VIPObserved{{Address: one, State: model.VIPStandby, Message: "edge-2 owns it"}}
	})
	a.told(one, model.VIPStandby, "edge-2 owns it")

	a.listens() // one that cannot serve must say so, for another to own the VIP
	a.says()
	if c := a.candidacies[len(a.candidacies)-1]; len(c) != 1 || c[0].Ready {
		t.Errorf("the candidacies are %+v", c)
	}
	a.told(one, model.VIPWithheld, "the proxy does not serve listener http-80 yet")
}

func TestUnknownWayToAnnounce(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	a.gives(vipChange(t, model.VIP{Address: one, Mode: "carrier pigeon", Listeners: []model.ListenerID{"http-80"}}), vipChange(t, bgpVIP(two, "http-80")))
	a.whole()
	a.listens("http-80")
	a.says(two.String())
	a.told(one, model.VIPWithheld, "this agent does not know the announcement mode of the VIP's pool: upgrade the agent")
	if slices.Contains(a.held, one) {
		t.Errorf("it is held")
	}
}

// TestAddressesStayUntilTheStateIsKnown though nothing is remembered: an Envoy may serve at
// those that an earlier agent left, and routers send there.
func TestAddressesStayUntilTheStateIsKnown(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	a.after(time.Hour)
	a.says("-")
	a.gives(vipChange(t, bgpVIP(one, "http-80")))
	a.says("-")
	if a.sets > 0 {
		t.Errorf("the loopback was told to hold %v, and not others", a.held)
	}
	a.whole()
	a.listens("http-80")
	a.says(one.String())
	if !slices.Equal(a.held, []netip.Addr{one}) {
		t.Errorf("held are %v", a.held)
	}
}

func TestAddressesLinger(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	a.gives(vipChange(t, bgpVIP(one, "http-80")), vipChange(t, bgpVIP(two, "http-80")))
	a.whole()
	a.listens("http-80")
	a.says(one.String(), two.String())
	holds := func(want ...netip.Addr) {
		t.Helper()
		if !slices.Equal(a.held, want) {
			t.Errorf("held are %v, want %v", a.held, want)
		}
	}
	holds(one, two)
	a.gives(gatetest.Removal(typeVIP, one.String()))
	if again := a.says(two.String()); again != linger {
		t.Errorf("it looks again after %s, want %s", again, linger)
	}
	holds(one, two)
	a.after(linger / 2)
	a.gives(gatetest.Removal(typeVIP, two.String()))
	if again := a.says(); again != linger/2 {
		t.Errorf("it looks again after %s, want %s: the first comes first", again, linger/2)
	}
	a.after(linger / 2)
	a.says()
	holds(two)
	a.gives(vipChange(t, bgpVIP(two, "http-80"))) // wanted again in time
	a.after(linger)
	a.says(two.String())
	holds(two)
	if list := a.observed(); len(list) != 1 {
		t.Errorf("observed are %+v", list)
	}
}

func TestAddressThatCannotBeHeld(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	a.refused[two] = errors.New("hold 2001:db8::2: IPv6 is off")
	a.gives(vipChange(t, bgpVIP(one, "http-80")), vipChange(t, bgpVIP(two, "http-80")))
	a.whole()
	a.listens("http-80")
	a.after(beginGrace)
	for range 3 { // tried each time, said once
		if again := a.says(one.String()); again != retryHold {
			t.Errorf("it looks again after %s, want %s", again, retryHold)
		}
	}
	a.told(two, model.VIPWithheld, "hold 2001:db8::2: IPv6 is off")
	if n := strings.Count(a.said.String(), "IPv6 is off"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
	delete(a.refused, two)
	if again := a.says(one.String(), two.String()); again != repairEvery {
		t.Errorf("it looks again after %s, want %s", again, repairEvery)
	}
}

func TestPasswordsAndPeers(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	p := router
	p.NeedsPassword = true
	a.gives(peerChange(t, p))
	a.whole()
	a.says()
	last := func() model.Speaking { return a.spoken[len(a.spoken)-1] }
	if got := last().Peers; len(got) != 1 || !got[0].NeedsPassword || got[0].Password != "" {
		t.Errorf("the peers are %#v", got)
	}
	a.gives(passwordChange(t, "router", "s3cret"))
	a.says()
	if got := last().Peers; len(got) != 1 || got[0].Password != "s3cret" {
		t.Errorf("the peers have not the password")
	}
	a.gives(gatetest.Removal(typePassword, "router"))
	a.says()
	if got := last().Peers; len(got) != 1 || got[0].Password != "s3cret" {
		t.Errorf("a peer that needs a password has lost it with the Secret: its session would end")
	}
	p.NeedsPassword = false
	a.gives(peerChange(t, p))
	a.says()
	if got := last().Peers; len(got) != 1 || got[0].Password != "" {
		t.Errorf("a password that is not needed any more is still there")
	}
	p.NeedsPassword = true
	a.gives(passwordChange(t, "router", "s3cret"), peerChange(t, p))
	a.gives(gatetest.Removal(typePassword, "router"), gatetest.Removal(typePeer, "router"))
	a.says()
	if got := last().Peers; len(got) != 0 {
		t.Errorf("the peers are %#v", got)
	}
	a.gives(peerChange(t, p))
	a.says()
	if got := last().Peers; len(got) != 1 || got[0].Password != "" {
		t.Errorf("a peer of the same name has the password of the one before")
	}
}

func TestPasswordsAreNotOnTheDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := newKeeper(slog.New(slog.DiscardHandler), false, func(float64) {})
	k.open(dir, dir)
	t.Cleanup(k.state.close)
	t.Cleanup(k.secret.close)
	k.add(memoryBatch{revision: at(1, 1), target: []delta.Change{peerChange(t, router), passwordChange(t, "router", "s3cret")}})
	if !k.flush() {
		t.Fatal(k.healthy())
	}
	for name, want := range map[string]bool{"state": false, "secrets": true} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(raw, []byte("s3cret")); got != want {
			t.Errorf("the password is in %s: %t, want %t", name, got, want)
		}
	}
	_, r := recall(t, filepath.Join(dir, "secrets"))
	a := newAnnouncing(t)
	if _, err := restore(a.agent, r); err != nil {
		t.Fatal(err)
	}
	if got := a.secrets["router"]; got != "s3cret" {
		t.Errorf("the password that was remembered is not known")
	}
}

func TestUnreadableNetwork(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	bad := delta.Change{Type: typeVIP, Name: "bad", Resource: gatetest.Pack(t, "bad", &agentv1.Vip{Address: []byte{1, 2, 3}})}
	err := a.agent.desired.receive(responseOf(t, at(1, 1), bad, vipChange(t, bgpVIP(one, "http-80"))))
	if !errors.Is(err, errUnreadable) {
		t.Errorf("the error is %v", err)
	}
	if len(a.vips) != 1 { // the neighbour is taken
		t.Errorf("there are %d VIPs", len(a.vips))
	}
}

func TestObserved(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	a.gives(peerChange(t, router), vipChange(t, bgpVIP(one, "http-80")))
	a.whole()
	a.listens("http-80")
	a.says(one.String())
	session := func(s model.Session) {
		s.Peer = "router"
		a.with(func() { a.parts.sessions = []model.Session{s} })
	}
	session(model.Session{State: model.SessionConnect})
	a.told(one, model.VIPWithheld, "no BGP session advertises it: session with router is not established (connect): it has just started")
	session(model.Session{State: model.SessionConnect, Reason: model.SessionRefused})
	a.told(one, model.VIPWithheld, "no BGP session advertises it: session with router is not established (connect): Refused")
	session(model.Session{State: model.SessionConnect, Reason: model.SessionRefused, Message: "nobody listens"})
	a.told(one, model.VIPWithheld, "no BGP session advertises it: session with router is not established (connect): nobody listens")
	session(model.Session{State: model.SessionConnect, Message: "peer router (192.0.2.9:179): nobody listens: start it"})
	a.told(one, model.VIPWithheld, "no BGP session advertises it: session with router (192.0.2.9:179) is not established (connect): nobody listens: start it")
	session(model.Session{State: model.SessionEstablished})
	a.told(one, model.VIPWithheld, "no BGP session advertises it: router has not received the prefix: it is being sent")
	since := a.observed()[0].Since
	a.after(time.Minute)
	a.carries(one)
	a.told(one, model.VIPAnnounced, "")
	if got := a.observed()[0].Since; got.Sub(since) != time.Minute {
		t.Errorf("it is announced since %s, withheld since %s", got, since)
	}
	a.after(time.Minute)
	if got := a.observed()[0].Since; got.Sub(since) != time.Minute {
		t.Errorf("a state that stays has a new time")
	}
	// What a session that is down had advertised does not count.
	s := model.Session{State: model.SessionIdle, Message: "gone", Advertised: []netip.Prefix{netip.PrefixFrom(one, 32)}}
	session(s)
	a.told(one, model.VIPWithheld, "no BGP session advertises it: session with router is not established (idle): gone")
}

// TestDesiredAndAnnouncerDoNotWaitForEachOther lets a plane, the loop, and a report work
// on both at once.
func TestDesiredAndAnnouncerDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	a := newAnnouncing(t)
	a.whole()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { _ = a.run(ctx) })
	running.Go(func() {
		for ctx.Err() == nil {
			a.observed()
			signal(a.announcer.drivers.Changed).raise()
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 500 {
			v := netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 1+i%250))
			a.gives(vipChange(t, bgpVIP(v, "http-80")))
			a.relay.tick()
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("they wait for each other")
	}
	cancel()
	running.Wait()
}

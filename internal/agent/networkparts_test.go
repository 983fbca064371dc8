package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// parts are a machine's network, its proxy and its clock, as a test sets them.
type parts struct {
	mu          sync.Mutex
	now         time.Time
	proxy       model.ProxyStatus
	spoken      []model.Speaking // each that was Set
	candidacies [][]model.Candidacy
	sessions    []model.Session
	owned       []model.VIPObserved
	held        []netip.Addr
	kept        []netip.Addr
	sets        int // of the loopback
	refused     map[netip.Addr]error
	withdrew    int
	said        bytes.Buffer
}

func (p *parts) with(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *parts) Run(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }

func (p *parts) Status() (s model.ProxyStatus) {
	p.with(func() { s = p.proxy })
	return s
}

func (p *parts) Traffic(context.Context) (model.Traffic, error) {
	return model.Traffic{Requests: []model.RequestFigures{{Listener: "http-80", Group: "team/app/80", Classes: [model.StatusClasses]uint64{2: 7}}}}, nil
}

func (p *parts) Warming(context.Context) ([]string, error) { return nil, nil }
func (p *parts) Active(context.Context) ([]string, error)  { return nil, nil }

func (p *parts) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

type fakeSpeaker struct{ *parts }

func (s fakeSpeaker) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (s fakeSpeaker) Set(w model.Speaking)          { s.with(func() { s.spoken = append(s.spoken, w) }) }

func (s fakeSpeaker) Sessions() (all []model.Session) {
	s.with(func() { all = slices.Clone(s.sessions) })
	return all
}

func (s fakeSpeaker) Withdraw(context.Context) error {
	s.with(func() { s.withdrew++ })
	return nil
}

type fakeSegment struct{ *parts }

func (s fakeSegment) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (s fakeSegment) Set(c []model.Candidacy) {
	s.with(func() { s.candidacies = append(s.candidacies, c) })
}

func (s fakeSegment) Status() (all []model.VIPObserved) {
	s.with(func() { all = slices.Clone(s.owned) })
	return all
}

type fakeLoopback struct{ *parts }

func (l fakeLoopback) Set(want []netip.Addr, keep ...netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.kept = nil, keep
	l.sets++
	var errs []error
	for _, a := range want {
		if err := l.refused[a]; err != nil {
			errs = append(errs, err)
		} else {
			l.held = append(l.held, a)
		}
	}
	return errors.Join(errs...)
}

func (l fakeLoopback) Refused() map[netip.Addr]error { return l.refused }

// Two VIPs, and what there is to say of them.
var (
	one    = netip.MustParseAddr("192.0.2.1")
	two    = netip.MustParseAddr("2001:db8::2")
	router = model.Peer{Name: "router", Address: netip.MustParseAddr("192.0.2.254"), LocalASN: 1, PeerASN: 2, IPv4: true}
)

// announcing is the announcer of an agent that does not run, with fakes for what it drives.
type announcing struct {
	*announcer
	*parts
	agent     *Agent
	t         *testing.T
	listeners []string // of the proxy
}

func newAnnouncing(t *testing.T) *announcing {
	t.Helper()
	p := &parts{now: time.Unix(1000, 0), proxy: model.ProxyStatus{State: proxyReady, Starts: 1}, refused: map[netip.Addr]error{}}
	now := func() (at time.Time) {
		p.with(func() { at = p.now })
		return at
	}
	agent := idle(t, Config{
		Proxy: p, Now: now, Log: slog.New(slog.NewTextHandler(p, nil)),
		Network: Network{Speaker: fakeSpeaker{p}, Segment: fakeSegment{p}, Loopback: fakeLoopback{p}},
	})
	agent.announcer.started = now()
	return &announcing{announcer: agent.announcer, parts: p, agent: agent, t: t}
}

// idle is an agent that does not run, with what its config lacks.
func idle(t testing.TB, c Config) *Agent {
	t.Helper()
	c.Name, c.Planes, c.DataDir, c.Rand = "edge-1", []string{"192.0.2.1:7443"}, t.TempDir(), rand.New(rand.NewPCG(1, 2))
	c.Addresses = func() ([]netip.Addr, error) { return nil, nil }
	c.RunDir = cmp.Or(c.RunDir, c.DataDir)
	if c.Proxy == nil {
		c.Proxy = steadyProxy{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// restore gives an agent what was remembered.
func restore(a *Agent, r remembered) (whole bool, err error) {
	a.relay.recall(r.good, false, false)
	return a.desired.restore(r.revision, r.target)
}

// gives sends changes as a plane would.
func (a *announcing) gives(changes ...delta.Change) {
	a.t.Helper()
	for _, c := range changes {
		if err := a.agent.desired.receive(responseOf(a.t, at(1, 1), c)); err != nil {
			a.t.Fatal(err)
		}
	}
}

// whole says that the state is.
func (a *announcing) whole() { a.gives(checkpointAt(a.t, at(1, 1))) }

// listens has a new proxy accept listeners, and no others.
func (a *announcing) listens(names ...string) {
	a.t.Helper()
	var changes []delta.Change
	for _, n := range a.listeners {
		changes = append(changes, gatetest.Removal(typeListener, n))
	}
	a.gives(changes...)
	changes, a.listeners = nil, names
	for _, n := range names {
		changes = append(changes, gatetest.Listener(a.t, n, "x"))
	}
	a.gives(changes...)
	stream := a.relay.connect(func() {})
	ask := func(req *discoveryv3.DeltaDiscoveryRequest) {
		if _, err := a.relay.request(stream, req); err != nil {
			a.t.Fatal(err)
		}
		for resp := a.relay.next(stream); resp != nil; resp = a.relay.next(stream) {
			ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}
			if _, err := a.relay.request(stream, ack); err != nil {
				a.t.Fatal(err)
			}
		}
	}
	ask(a.relay.open(stream, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typeCluster)}, nil))
	ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typeListener)})
}

func (a *announcing) becomes(state string, starts uint32) {
	a.with(func() { a.parts.proxy = model.ProxyStatus{State: state, Starts: starts, Message: "so it says"} })
}

func (a *announcing) after(d time.Duration) { a.with(func() { a.parts.now = a.parts.now.Add(d) }) }

func vipChange(t *testing.T, v model.VIP) delta.Change {
	name := wire.VIPName(v.Address)
	return delta.Change{Type: typeVIP, Name: name, Resource: gatetest.Pack(t, name, wire.VIP(v, func(id model.ListenerID) string { return string(id) }))}
}

func peerChange(t *testing.T, p model.Peer) delta.Change {
	return delta.Change{Type: typePeer, Name: p.Name, Resource: gatetest.Pack(t, p.Name, wire.Peer(p))}
}

func passwordChange(t *testing.T, peer, password string) delta.Change {
	return delta.Change{Type: typePassword, Name: peer, Resource: gatetest.Pack(t, peer, &agentv1.BgpPassword{Password: password})}
}

func bgpVIP(a netip.Addr, listeners ...model.ListenerID) model.VIP {
	return model.VIP{Address: a, Pool: "p", Mode: model.AnnounceBGP, Listeners: listeners}
}

// says applies and compares the prefixes that the speaker was last told, "-" for no Set at all.
func (a *announcing) says(want ...string) (again time.Duration) {
	a.t.Helper()
	again = a.apply()
	got := []string{"-"}
	a.with(func() {
		if n := len(a.spoken); n > 0 {
			got = nil
			for _, p := range a.spoken[n-1].Prefixes {
				got = append(got, p.Prefix.Addr().String())
			}
		}
	})
	if !slices.Equal(got, want) {
		a.t.Errorf("the speaker was told %v, want %v", got, want)
	}
	return again
}

// told compares what is observed of a VIP.
func (a *announcing) told(vip netip.Addr, state model.VIPState, message string) {
	a.t.Helper()
	for _, o := range a.observed() {
		if o.Address == vip {
			if o.State != state || o.Message != message {
				a.t.Errorf("%s is %s: %q, want %s: %q", vip, o.State, o.Message, state, message)
			}
			return
		}
	}
	a.t.Errorf("nothing is observed of %s", vip)
}

// carries has a session carry prefixes.
func (a *announcing) carries(prefixes ...netip.Addr) {
	s := model.Session{Peer: "router", State: model.SessionEstablished}
	for _, p := range prefixes {
		s.Advertised = append(s.Advertised, netip.PrefixFrom(p, p.BitLen()))
	}
	a.with(func() { a.parts.sessions = []model.Session{s} })
}

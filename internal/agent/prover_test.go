package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// provingPlane takes proofs as the plane does, at two addresses.
type provingPlane struct {
	agentv1.UnimplementedObserverServer
	endpoints []string // all but the first are told

	mu    sync.Mutex
	seen  []netip.Addr
	masks netip.Addr // where it sees everybody, behind a translation of addresses
	older bool
}

func newProvingPlane(t *testing.T, at ...string) *provingPlane {
	t.Helper()
	p := &provingPlane{}
	server := grpc.NewServer()
	agentv1.RegisterObserverServer(server, p)
	for _, a := range at {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", a)
		if err != nil {
			t.Skip("this machine has no such address: ", err)
		}
		p.endpoints = append(p.endpoints, l.Addr().String())
		go func() { _ = server.Serve(l) }()
	}
	t.Cleanup(server.Stop)
	return p
}

func (p *provingPlane) Prove(ctx context.Context, _ *agentv1.ProveRequest) (*agentv1.ProveResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.older {
		return nil, status.Error(codes.Unimplemented, "unknown method Prove")
	}
	from, _ := peer.FromContext(ctx)
	seen := from.Addr.(*net.TCPAddr).AddrPort().Addr().Unmap()
	if p.masks.IsValid() {
		seen = p.masks
	}
	p.seen = append(p.seen, seen)
	return &agentv1.ProveResponse{Address: seen.AsSlice(), Endpoints: p.endpoints[1:]}, nil
}

// sees are the addresses that it was called from, sorted, each once.
func (p *provingPlane) sees() []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortFunc(p.seen, netip.Addr.Compare)
	return slices.Clone(slices.Compact(p.seen))
}

// prover of a machine with these addresses; tried gets a token after each pass.
func (p *provingPlane) prover(t *testing.T, own ...string) (_ *prover, tried signal) {
	t.Helper()
	dial := func(to string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///"+to, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	}
	conn, err := dial(p.endpoints[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	tried = newSignal()
	return &prover{
		plane: p.endpoints[0], conn: conn, own: func() []string { return own }, look: time.Millisecond, trials: map[netip.Addr]*trial{}, log: slog.New(slog.DiscardHandler),
		dial:  func(to string, from netip.Addr) (*grpc.ClientConn, error) { return dial(to, dialFrom(from)) },
		tried: tried.raise,
	}, tried
}

func addrs(texts ...string) (list []netip.Addr) {
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// The plane is called from each address, at an end of its family.
func TestEachAddressIsProven(t *testing.T) {
	plane := newProvingPlane(t, "127.0.0.1:0", "[::1]:0")
	p, _ := plane.prover(t, "127.0.0.1", "127.0.0.2", "192.0.2.77", "::1")
	if !p.meet(t.Context()) {
		t.Fatal("the plane takes no proofs")
	}
	if p.pass(t.Context()) {
		t.Error("one failure is taken for the last")
	}
	if got, want := plane.sees(), addrs("127.0.0.1", "127.0.0.2", "::1"); !slices.Equal(got, want) {
		t.Errorf("the plane was called from %v, want %v", got, want)
	}
	// This machine has not the last one: it is tried again, later and later.
	lost := p.trials[netip.MustParseAddr("192.0.2.77")]
	if lost == nil || lost.proven || lost.wait != proveAgain || time.Until(lost.again) < proveAgain/2 {
		t.Fatalf("an address of nobody: %+v", lost)
	}
	for i := 2; i <= proveTries; i++ {
		lost.again = time.Time{}
		if over := p.pass(t.Context()); over != (i == proveTries) || lost.proven || lost.wait != proveAgain<<(i-1) {
			t.Errorf("an address of nobody, tried %d times: %+v, over: %t", i, lost, over)
		}
	}
	// What is proven is left alone, and what goes and comes is proven anew.
	before := len(plane.seen)
	p.pass(t.Context())
	if len(plane.seen) != before {
		t.Error("what is proven was proven again")
	}
	own := p.own()
	p.own = func() []string { return own[:1] }
	p.pass(t.Context())
	p.own = func() []string { return own }
	p.pass(t.Context())
	if got := len(plane.seen); got != before+2 {
		t.Errorf("after two went and came there are %d calls, want %d", got, before+2)
	}
}

// Behind a translation of addresses the plane sees another one: that proves nothing.
func TestTranslatedAddressIsNotProven(t *testing.T) {
	plane := newProvingPlane(t, "127.0.0.1:0")
	plane.masks = netip.MustParseAddr("198.51.100.1")
	p, _ := plane.prover(t, "127.0.0.2")
	if !p.meet(t.Context()) {
		t.Fatal("the plane takes no proofs")
	}
	p.pass(t.Context())
	if x := p.trials[netip.MustParseAddr("127.0.0.2")]; x == nil || x.proven {
		t.Errorf("the trial is %+v", x)
	}
}

// An older plane is asked once, and told nothing.
func TestOlderPlaneTakesNoProofs(t *testing.T) {
	plane := newProvingPlane(t, "127.0.0.1:0")
	plane.older = true
	p, tried := plane.prover(t, "127.0.0.2")
	p.run(t.Context())
	if len(tried) != 0 || len(plane.sees()) != 0 {
		t.Error("proofs were tried")
	}
}

// An address that comes later is proven, too, and the plane hears when all were tried.
func TestLaterAddressesAreProven(t *testing.T) {
	plane := newProvingPlane(t, "127.0.0.1:0")
	p, tried := plane.prover(t)
	var mu sync.Mutex
	own := []string{"127.0.0.2"}
	p.own = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return own
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.run(ctx) }()
	defer func() { cancel(); <-done }()
	<-tried
	mu.Lock()
	own = append(own, "127.0.0.3")
	mu.Unlock()
	deadline := time.Now().Add(patience)
	for !slices.Contains(plane.sees(), netip.MustParseAddr("127.0.0.3")) {
		if time.Now().After(deadline) {
			t.Fatalf("the plane was called from %v", plane.sees())
		}
		time.Sleep(time.Millisecond)
	}
}

// A plane that did not look has said nothing of the address.
func TestRefusalsAreNoTrials(t *testing.T) {
	standby, err := status.New(codes.Unavailable, "this plane does not lead").WithDetails(&agentv1.LeaderHint{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{standby.Err(), true},
		{status.Error(codes.ResourceExhausted, "too many"), true},
		{status.Error(codes.FailedPrecondition, "no stream"), true},
		{status.Error(codes.Unavailable, "connection refused"), false},
		{status.Error(codes.DeadlineExceeded, "no answer"), false},
		{errors.New("the plane sees it as another"), false},
	} {
		if got := undecided(c.err); got != c.want {
			t.Errorf("%v: %t, want %t", c.err, got, c.want)
		}
	}
}

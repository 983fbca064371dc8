package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// proveLook is how often a machine looks whether it has addresses to prove.
	proveLook = 5 * time.Second
	// proveTime bounds the proof of one address, proveDial each way to the plane.
	proveTime = 10 * time.Second
	proveDial = 5 * time.Second
	// proveAgain is when an address that could not be proven is tried again, first and at most: a
	// container network's never can be.
	proveAgain     = 5 * time.Second
	proveAgainMost = 10 * time.Minute
	// proveTries is after how many an address counts as tried: the plane takes away what failed
	// then, and one failure may be a busy machine's.
	proveTries = 3
	// proveAtOnce is how many addresses are proven at a time, each by a connection: the plane
	// takes eight of a machine.
	proveAtOnce = 3
	// proveMost is how many addresses the plane shows of a machine.
	proveMost = 64
)

// prover shows one plane that the machine's addresses are its own: from each of them it calls the
// plane once (ADR 50).
type prover struct {
	plane  string // host:port of the connection that there is
	conn   grpc.ClientConnInterface
	dial   func(to string, from netip.Addr) (*grpc.ClientConn, error)
	own    func() []string
	tried  func() // called when each address is proven or was tried often enough, and again after that
	look   time.Duration
	trials map[netip.Addr]*trial
	others []string // ways to the plane, as it said
	log    *slog.Logger
}

// trial is what came of proving an address.
type trial struct {
	proven   bool
	failures int
	again    time.Time
	wait     time.Duration
}

// over says that it came to something.
func (t *trial) over() bool { return t.proven || t.failures >= proveTries }

// run proves what there is to prove until ctx is done. It returns early where the plane asks for no
// proofs.
func (p *prover) run(ctx context.Context) {
	for ctx.Err() == nil {
		if p.others == nil && !p.meet(ctx) {
			return
		}
		if p.others != nil { // nothing is tried without a way of its family
			if over := p.pass(ctx); over && ctx.Err() == nil {
				p.tried()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(p.look):
		}
	}
}

// meet asks the plane where else it is, which proves the address that the machine has called from.
// It says whether the plane takes proofs.
func (p *prover) meet(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, proveTime)
	defer cancel()
	answer, err := agentv1.NewObserverClient(p.conn).Prove(ctx, &agentv1.ProveRequest{})
	if err != nil {
		return status.Code(err) != codes.Unimplemented
	}
	p.others = append([]string{}, answer.GetEndpoints()...)
	if a, ok := netip.AddrFromSlice(answer.GetAddress()); ok {
		p.trials[a] = &trial{proven: true}
	}
	return true
}

// pass tries each address whose time has come, and says whether all trials are over.
func (p *prover) pass(ctx context.Context) (over bool) {
	var due, own []netip.Addr
	for _, text := range p.own() {
		a, err := netip.ParseAddr(text)
		if err != nil || len(own) == proveMost {
			continue
		}
		own = append(own, a)
		if t := p.trials[a]; t == nil || !t.proven && time.Now().After(t.again) {
			due = append(due, a)
		}
	}
	for a := range p.trials {
		if !slices.Contains(own, a) {
			delete(p.trials, a) // it may come back, and not to be proven by what was
		}
	}
	var running sync.WaitGroup
	errs := make([]error, len(due))
	slots := make(chan struct{}, proveAtOnce)
	for i, a := range due {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			errs[i] = p.prove(ctx, a)
		})
	}
	running.Wait()
	for i, a := range due {
		t := p.trials[a]
		if t == nil {
			t = &trial{wait: proveAgain / 2}
			p.trials[a] = t
		}
		t.wait = min(2*t.wait, proveAgainMost)
		t.proven, t.again = errs[i] == nil, time.Now().Add(t.wait)
		if !t.proven && !undecided(errs[i]) {
			if t.failures++; t.failures == proveTries {
				p.log.Info("cannot prove an address of this machine to the plane; retrying with growing pauses", "address", a, "error", errs[i])
			}
		}
	}
	for _, t := range p.trials {
		if !t.over() {
			return false
		}
	}
	return true
}

// prove calls the plane from an address, by the first way that works.
func (p *prover) prove(ctx context.Context, from netip.Addr) (err error) {
	ctx, cancel := context.WithTimeout(ctx, proveTime)
	defer cancel()
	err = fmt.Errorf("%w at an address of the family of %s", errUnreachable, from)
	for _, to := range append([]string{p.plane}, p.others...) {
		if !sameFamily(to, from) {
			continue
		}
		if err = p.call(ctx, to, from); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (p *prover) call(ctx context.Context, to string, from netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, proveDial)
	defer cancel()
	conn, err := p.dial(to, from)
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := agentv1.NewObserverClient(conn).Prove(ctx, &agentv1.ProveRequest{})
	if err != nil {
		return err
	}
	if seen, _ := netip.AddrFromSlice(answer.GetAddress()); seen != from {
		return fmt.Errorf("the plane sees %s as %s", from, seen)
	}
	return nil
}

// undecided says that the plane did not look, which says nothing of the address: it may be taken from
// the machine only for what was tried.
func undecided(err error) bool {
	s, answered := status.FromError(err)
	if !answered {
		return false
	}
	switch s.Code() {
	case codes.ResourceExhausted, codes.FailedPrecondition:
		return true
	case codes.Unavailable:
		return len(s.Details()) > 0 // a standby's answer names the leader; a network's does not
	default:
		return false
	}
}

// sameFamily says whether host:port may be reached from an address; a name may.
func sameFamily(to string, from netip.Addr) bool {
	host, _, err := net.SplitHostPort(to)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return err != nil || a.Unmap().Is4() == from.Is4()
}

// dialFrom is how a connection leaves from one of the machine's addresses.
func dialFrom(a netip.Addr) grpc.DialOption {
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0))}
	return grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", to) })
}

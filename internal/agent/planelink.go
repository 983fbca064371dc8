package agent

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	joinTimeout = 10 * time.Second
	// connectLimit is how long a plane may take to take a connection, TLS included.
	connectLimit = 5 * time.Second
	backoffFirst = 200 * time.Millisecond
	backoffMost  = 2 * time.Second
	// maxResponse bounds what a plane may send at once, bytes. It splits at 2 MiB; a
	// single resource may be larger.
	maxResponse = 64 << 20
)

// planeLink is the connection to a plane: one at a time, with the discovery stream
// and the reports on it.
type planeLink struct {
	machine    string
	planes     []string
	desired    *desired
	report     *reporter
	tapper     *tapper
	membership *membership
	joiner     joiner
	// rejoin gets another identity with a token; nil and no error when it cannot. Used by follow
	// alone.
	rejoin   func(context.Context) (*identity, error)
	log      *slog.Logger
	now      func() time.Time
	random   *rand.Rand // used by run, and by renewals while run waits for them
	counters *counters
	// presence is told when the plane comes and when it goes.
	presence func(there bool)
	proved   event         // the machine's addresses have been tried, to the plane that there is
	member   chan struct{} // closed once there is an identity or a state to serve
	said     string        // why joining again failed; of run alone

	mu        sync.Mutex
	connected string // address of the plane, empty for none
	reason    error  // why there is none
	blocked   error  // why there is no identity
}

func newPlaneLink(c Config, d *desired, r *reporter, t *tapper, membership *membership, presence func(bool), member chan struct{}, n *counters) *planeLink {
	j := joiner{Now: c.Now, Timeout: joinTimeout, Account: c.Account, Token: c.Token, Role: c.Role, tries: newTries(c.Log)}
	return &planeLink{
		planes: c.Planes, desired: d, report: r, tapper: t, membership: membership, log: c.Log, now: c.Now, random: c.Rand, counters: n,
		presence: presence, member: member,
		machine: c.Name, joiner: j, rejoin: j.rejoin(membership.path, c.Planes, c.Name),
	}
}

// run gets an identity and keeps connected to a plane. An error cannot be mended by waiting,
// and nothing is remembered.
func (l *planeLink) run(ctx context.Context) error {
	said, join := "", sync.OnceFunc(func() { close(l.member) })
	if l.desired.latest().whole {
		join()
	}
	for wait := backoffFirst; ; wait = min(2*wait, backoffMost) {
		id, err := l.joiner.identify(ctx, l.membership.path, l.planes, l.machine)
		if id != nil {
			l.membership.replace(id)
		}
		l.mu.Lock()
		l.blocked = err
		l.mu.Unlock()
		if err == nil {
			join()
			l.follow(ctx)
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		whole := l.desired.latest().whole
		final := !errors.Is(err, errUnreachable) && !errors.Is(err, errPin)
		// What a cluster gives to a pod may come, or be right, a moment later.
		mends := l.joiner.Account != nil && !errors.Is(err, errName)
		if final && !mends && !whole {
			return err
		}
		if err.Error() != said {
			said = err.Error()
			if whole {
				l.log.Error("no plane for this machine; traffic continues with the stored configuration", "error", err, "planes", l.planes)
			} else {
				l.log.Error("this machine has not joined yet and serves nothing", "error", err, "planes", l.planes)
			}
		}
		switch {
		case final && mends:
			wait = accountPause
		case final:
			wait = time.Minute
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait + time.Duration(l.random.Int64N(int64(wait/4)))):
		}
	}
}

// follow keeps connected until ctx is done.
func (l *planeLink) follow(ctx context.Context) {
	wait := backoffFirst
	for next, hint := 0, ""; ctx.Err() == nil; {
		address := hint
		if address == "" {
			address = l.planes[next%len(l.planes)]
			next++
		}
		hint = ""
		began := l.now()
		lived, err := l.serve(ctx, address)
		if ctx.Err() != nil {
			return
		}
		l.lost(address, err, lived)
		if l.replace(ctx, err) {
			continue
		}
		if lived || l.now().Sub(began) > 30*time.Second {
			// The next one, not the one that was lost: it may be gone with its machine, and a
			// connection to that one hangs. A standby says who leads.
			wait, next = backoffFirst, slices.Index(l.planes, address)+1
		}
		if to := leaderOf(err); to != "" && to != address {
			hint = to
		}
		// Full jitter: a plane that comes back is not met by all agents at once.
		pause := backoffFirst + time.Duration(l.random.Int64N(int64(wait)))
		if wait = min(2*wait, backoffMost-backoffFirst); hint != "" {
			pause = time.Duration(l.random.Int64N(int64(backoffFirst)))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// replace joins again when that may help, and says whether it did.
func (l *planeLink) replace(ctx context.Context, err error) bool {
	if !errors.Is(err, errStranger) && !errors.Is(err, errExpired) {
		return false
	}
	id, err := l.rejoin(ctx)
	if err != nil && err.Error() != l.said {
		l.said = err.Error()
		l.log.Error("this machine cannot join again", "error", err)
	}
	if id == nil {
		return false
	}
	l.membership.replace(id)
	l.said = ""
	l.log.Info("joined again, with a new token")
	return true
}

// lost notes and says that there is no plane, once per outage.
func (l *planeLink) lost(address string, err error, lived bool) {
	l.mu.Lock()
	reason := fmt.Errorf("plane %s: %w", address, err)
	first := l.reason == nil
	changed := first || l.reason.Error() != reason.Error()
	l.connected, l.reason = "", reason
	l.mu.Unlock()
	l.counters.connected.Set(0)
	l.presence(false)
	switch {
	case first || lived:
		l.log.Warn("no plane; traffic continues unchanged", "plane", address, "error", err)
	case changed && (errors.Is(err, errStranger) || errors.Is(err, errExpired)):
		l.log.Warn("still no plane, for another reason", "plane", address, "error", err) // waiting does not mend it
	case changed:
		l.log.Debug("no plane", "plane", address, "error", err)
	}
}

func (l *planeLink) found(address string) {
	l.mu.Lock()
	l.connected, l.reason = address, nil
	l.mu.Unlock()
	l.membership.forgetOffer()
	l.counters.connected.Set(1)
	l.presence(true)
	l.log.Info("connected to plane", "plane", address)
}

// status is the plane's address, or why there is none.
func (l *planeLink) status() (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connected, l.reason
}

// unjoined says why there is no identity.
func (l *planeLink) unjoined() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blocked
}

// serve talks to one plane until that ends. lived says that it sent something.
func (l *planeLink) serve(ctx context.Context, address string) (lived bool, err error) {
	id := l.membership.current()
	if err := id.expired(l.now()); err != nil {
		return false, err
	}
	conn, err := l.dial(id, address)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	var side sync.WaitGroup
	defer side.Wait()
	defer cancel()
	silent := func() {}
	if _, reason := l.status(); reason == nil { // else it was said already that there is none
		silent = l.joiner.tries.await(address)
	}
	defer silent()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return false, explain(err, id.Machine)
	}
	if err := l.subscribe(stream, id.Machine); err != nil {
		return false, err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return lived, explain(err, id.Machine)
		}
		if !lived {
			lived = true
			silent()
			l.joiner.tries.answered()
			l.found(address)
			l.report.setProved(false) // not to this plane
			side.Go(func() { l.report.run(ctx, conn) })
			side.Go(func() { l.renewals(ctx, conn) })
			side.Go(func() { l.tapper.run(ctx, conn) })
			side.Go(func() { l.prover(conn, address).run(ctx) })
		}
		ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}
		if err := l.desired.receive(resp); err != nil {
			var stale errStale
			if errors.As(err, &stale) {
				l.log.Error("plane refused", "plane", address, "error", err)
				return lived, err
			}
			l.log.Error("response of the plane refused", "type", resp.GetTypeUrl(), "error", err)
			ack.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: cut(err.Error(), maxMessage)}
		}
		if err := stream.Send(ack); err != nil && !errors.Is(err, io.EOF) { // EOF: Recv says why
			return lived, explain(err, id.Machine)
		}
	}
}

func (l *planeLink) dial(id *identity, address string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, append(options,
		grpc.WithTransportCredentials(credentials.NewTLS(id.tlsConfig(l.now))),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse), grpc.MaxCallSendMsgSize(maxResponse)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		// gRPC's own 20 s are long where another plane waits.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectLimit}),
		grpc.WithDisableServiceConfig(),
	)...)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	return conn, nil
}

// prover proves the machine's addresses to the plane at the other end of a connection.
func (l *planeLink) prover(conn grpc.ClientConnInterface, address string) *prover {
	return &prover{
		plane: address, conn: conn, own: l.report.own, look: proveLook, trials: map[netip.Addr]*trial{}, log: l.log,
		dial: func(to string, from netip.Addr) (*grpc.ClientConn, error) {
			return l.dial(l.membership.current(), to, dialFrom(from))
		},
		tried: func() {
			if l.report.setProved(true) {
				l.proved.raise()
			}
		},
	}
}

// subscribe asks for everything that the machine's parts receive, naming what is there already,
// so that only differences travel.
func (l *planeLink) subscribe(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, machine string) error {
	held, accepted := l.desired.held()
	for i, t := range l.desired.types {
		req := &discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: string(t), ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: held[t],
		}
		if i == 0 {
			req.Node = &corev3.Node{Metadata: &structpb.Struct{}}
			if accepted != (delta.Revision{}) {
				req.Node.Metadata.Fields = map[string]*structpb.Value{
					agentv1.RevisionField: structpb.NewStringValue(accepted.String()),
				}
			}
		}
		if err := stream.Send(req); err != nil {
			if errors.Is(err, io.EOF) {
				_, err = stream.Recv()
			}
			return explain(err, machine)
		}
	}
	return nil
}

// explain words the failures that an operator can mend.
func explain(err error, machine string) error {
	again := fmt.Sprintf("run `fairlead token create --machine %s` at the plane (with --role backend for a machine with backends only), and start this agent with the token (--token-file)", machine)
	said := explained{err}
	switch {
	case status.Code(err) == codes.Unauthenticated:
		return fmt.Errorf("%w: the plane refuses this machine's certificate (%w); was the Machine deleted? To join again, %s", errStranger, said, again)
	case status.Code(err) == codes.AlreadyExists:
		return fmt.Errorf("another machine is connected under this machine's name: %w", said)
	case strings.Contains(status.Convert(err).Message(), x509.UnknownAuthorityError{}.Error()):
		// gRPC tells the handshake's failure as text only.
		return fmt.Errorf("%w: %w; if the plane was set up anew, restore its backup; otherwise, or if its authority was retired while this machine was away, %s", errStranger, said, again)
	case err == nil:
		return nil
	default:
		return said
	}
}

// renewals renews the certificate when two thirds of its life are over, or when the plane
// gives something else with it now. The open streams go on; the next connection uses the
// new one.
func (l *planeLink) renewals(ctx context.Context, conn grpc.ClientConnInterface) {
	for {
		id := l.membership.current()
		at := l.membership.renewAt(id)
		// Looked at again within a minute, so that a stepped clock is seen.
		wait := min(max(0, at.Sub(l.now())), time.Minute)
		select {
		case <-ctx.Done():
			return
		case <-l.membership.offers:
			continue
		case <-time.After(wait):
		}
		if l.now().Before(at) {
			continue
		}
		fresh, err := renew(ctx, conn, id)
		if err == nil {
			err = fresh.save(l.membership.path)
		}
		if err != nil && ctx.Err() != nil {
			return
		}
		l.membership.renewed(fresh, err)
		if err != nil {
			l.counters.renewals.WithLabelValues("failed").Inc()
			l.log.Warn("cannot renew the certificate", "error", err, "expires", id.NotAfter(), "again_in", renewAgain)
			continue
		}
		l.counters.renewals.WithLabelValues("renewed").Inc()
		l.log.Info("certificate renewed", "expires", fresh.NotAfter())
	}
}

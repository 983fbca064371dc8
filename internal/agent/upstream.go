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

// upstream is the connection to a plane: one at a time, with the discovery stream
// and the reports on it.
type upstream struct {
	machine    string
	planes     []string
	desired    *desired
	report     *reporter
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

func newUpstream(c Config, d *desired, r *reporter, membership *membership, presence func(bool), member chan struct{}, n *counters) *upstream {
	j := joiner{Now: c.Now, Timeout: joinTimeout, Account: c.Account, Token: c.Token, Role: c.Role, tries: newTries(c.Log)}
	return &upstream{
		planes: c.Planes, desired: d, report: r, membership: membership, log: c.Log, now: c.Now, random: c.Rand, counters: n,
		presence: presence, member: member,
		machine: c.Name, joiner: j, rejoin: j.rejoin(membership.path, c.Planes, c.Name),
	}
}

// run gets an identity and keeps connected to a plane. An error cannot be mended by waiting,
// and nothing is remembered.
func (u *upstream) run(ctx context.Context) error {
	said, join := "", sync.OnceFunc(func() { close(u.member) })
	if u.desired.latest().whole {
		join()
	}
	for wait := backoffFirst; ; wait = min(2*wait, backoffMost) {
		id, err := u.joiner.identify(ctx, u.membership.path, u.planes, u.machine)
		if id != nil {
			u.membership.replace(id)
		}
		u.mu.Lock()
		u.blocked = err
		u.mu.Unlock()
		if err == nil {
			join()
			u.follow(ctx)
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		whole := u.desired.latest().whole
		final := !errors.Is(err, errUnreachable) && !errors.Is(err, errPin)
		// What a cluster gives to a pod may come, or be right, a moment later.
		mends := u.joiner.Account != nil && !errors.Is(err, errName)
		if final && !mends && !whole {
			return err
		}
		if err.Error() != said {
			said = err.Error()
			if whole {
				u.log.Error("no plane for this machine; traffic continues with the stored configuration", "error", err, "planes", u.planes)
			} else {
				u.log.Error("this machine has not joined yet and serves nothing", "error", err, "planes", u.planes)
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
		case <-time.After(wait + time.Duration(u.random.Int64N(int64(wait/4)))):
		}
	}
}

// follow keeps connected until ctx is done.
func (u *upstream) follow(ctx context.Context) {
	wait := backoffFirst
	for next, hint := 0, ""; ctx.Err() == nil; {
		address := hint
		if address == "" {
			address = u.planes[next%len(u.planes)]
			next++
		}
		hint = ""
		began := u.now()
		lived, err := u.serve(ctx, address)
		if ctx.Err() != nil {
			return
		}
		u.lost(address, err, lived)
		if u.replace(ctx, err) {
			continue
		}
		if lived || u.now().Sub(began) > 30*time.Second {
			// The next one, not the one that was lost: it may be gone with its machine, and a
			// connection to that one hangs. A standby says who leads.
			wait, next = backoffFirst, slices.Index(u.planes, address)+1
		}
		if to := leaderOf(err); to != "" && to != address {
			hint = to
		}
		// Full jitter: a plane that comes back is not met by all agents at once.
		pause := backoffFirst + time.Duration(u.random.Int64N(int64(wait)))
		if wait = min(2*wait, backoffMost-backoffFirst); hint != "" {
			pause = time.Duration(u.random.Int64N(int64(backoffFirst)))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// replace joins again when that may help, and says whether it did.
func (u *upstream) replace(ctx context.Context, err error) bool {
	if !errors.Is(err, errStranger) && !errors.Is(err, errExpired) {
		return false
	}
	id, err := u.rejoin(ctx)
	if err != nil && err.Error() != u.said {
		u.said = err.Error()
		u.log.Error("this machine cannot join again", "error", err)
	}
	if id == nil {
		return false
	}
	u.membership.replace(id)
	u.said = ""
	u.log.Info("joined again, with a new token")
	return true
}

// lost notes and says that there is no plane, once per outage.
func (u *upstream) lost(address string, err error, lived bool) {
	u.mu.Lock()
	reason := fmt.Errorf("plane %s: %w", address, err)
	first := u.reason == nil
	changed := first || u.reason.Error() != reason.Error()
	u.connected, u.reason = "", reason
	u.mu.Unlock()
	u.counters.connected.Set(0)
	u.presence(false)
	switch {
	case first || lived:
		u.log.Warn("no plane; traffic continues unchanged", "plane", address, "error", err)
	case changed && (errors.Is(err, errStranger) || errors.Is(err, errExpired)):
		u.log.Warn("still no plane, for another reason", "plane", address, "error", err) // waiting does not mend it
	case changed:
		u.log.Debug("no plane", "plane", address, "error", err)
	}
}

func (u *upstream) found(address string) {
	u.mu.Lock()
	u.connected, u.reason = address, nil
	u.mu.Unlock()
	u.membership.forgetOffer()
	u.counters.connected.Set(1)
	u.presence(true)
	u.log.Info("connected to plane", "plane", address)
}

// status is the plane's address, or why there is none.
func (u *upstream) status() (string, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.connected, u.reason
}

// unjoined says why there is no identity.
func (u *upstream) unjoined() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.blocked
}

// serve talks to one plane until that ends. lived says that it sent something.
func (u *upstream) serve(ctx context.Context, address string) (lived bool, err error) {
	id := u.membership.current()
	if err := id.expired(u.now()); err != nil {
		return false, err
	}
	conn, err := u.dial(id, address)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	var side sync.WaitGroup
	defer side.Wait()
	defer cancel()
	silent := func() {}
	if _, reason := u.status(); reason == nil { // else it was said already that there is none
		silent = u.joiner.tries.await(address)
	}
	defer silent()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return false, explain(err, id.Machine)
	}
	if err := u.subscribe(stream, id.Machine); err != nil {
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
			u.joiner.tries.answered()
			u.found(address)
			u.report.setProved(false) // not to this plane
			side.Go(func() { u.report.run(ctx, conn) })
			side.Go(func() { u.renewals(ctx, conn) })
			side.Go(func() { u.prover(conn, address).run(ctx) })
		}
		ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}
		if err := u.desired.receive(resp); err != nil {
			var stale errStale
			if errors.As(err, &stale) {
				u.log.Error("plane refused", "plane", address, "error", err)
				return lived, err
			}
			u.log.Error("response of the plane refused", "type", resp.GetTypeUrl(), "error", err)
			ack.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: cut(err.Error(), maxMessage)}
		}
		if err := stream.Send(ack); err != nil && !errors.Is(err, io.EOF) { // EOF: Recv says why
			return lived, explain(err, id.Machine)
		}
	}
}

func (u *upstream) dial(id *identity, address string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, append(options,
		grpc.WithTransportCredentials(credentials.NewTLS(id.tlsConfig(u.now))),
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
func (u *upstream) prover(conn grpc.ClientConnInterface, address string) *prover {
	return &prover{
		plane: address, conn: conn, own: u.report.own, look: proveLook, trials: map[netip.Addr]*trial{}, log: u.log,
		dial: func(to string, from netip.Addr) (*grpc.ClientConn, error) {
			return u.dial(u.membership.current(), to, dialFrom(from))
		},
		tried: func() {
			if u.report.setProved(true) {
				u.proved.raise()
			}
		},
	}
}

// subscribe asks for everything that the machine's parts receive, naming what is there already,
// so that only differences travel.
func (u *upstream) subscribe(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, machine string) error {
	held, accepted := u.desired.held()
	for i, t := range u.desired.types {
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
func (u *upstream) renewals(ctx context.Context, conn grpc.ClientConnInterface) {
	for {
		id := u.membership.current()
		at := u.membership.renewAt(id)
		// Looked at again within a minute, so that a stepped clock is seen.
		wait := min(max(0, at.Sub(u.now())), time.Minute)
		select {
		case <-ctx.Done():
			return
		case <-u.membership.offers:
			continue
		case <-time.After(wait):
		}
		if u.now().Before(at) {
			continue
		}
		fresh, err := renew(ctx, conn, id)
		if err == nil {
			err = fresh.save(u.membership.path)
		}
		if err != nil && ctx.Err() != nil {
			return
		}
		u.membership.renewed(fresh, err)
		if err != nil {
			u.counters.renewals.WithLabelValues("failed").Inc()
			u.log.Warn("cannot renew the certificate", "error", err, "expires", id.NotAfter(), "again_in", renewAgain)
			continue
		}
		u.counters.renewals.WithLabelValues("renewed").Inc()
		u.log.Info("certificate renewed", "expires", fresh.NotAfter())
	}
}

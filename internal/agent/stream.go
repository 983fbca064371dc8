package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// maxRequest bounds one request of Envoy, bytes: 20,000 names with their versions
	// are 2 MiB.
	maxRequest = 64 << 20
	// maxRelayStreams bounds what a client of the socket may open at a time.
	maxRelayStreams = 16
)

// servedStream is the one stream that is served at a time, the newest: Envoy has one, and a new
// one means that the old one is gone.
type servedStream struct {
	mu     sync.Mutex
	cancel context.CancelFunc
}

// streamServer serves Envoy on a unix socket by delta ADS.
type streamServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	*relay
}

// listenUnix opens the socket, readable by our user only. A socket that an earlier
// agent left is replaced: the lock on the data directory says that it is dead.
func listenUnix(path string) (net.Listener, error) {
	if len(path) > 107 { // sun_path of unix(7)
		return nil, fmt.Errorf("listen on %s: the path has %d bytes, a Unix socket allows 107: choose a shorter run directory", path, len(path))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for the proxy: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect socket: %w", err), l.Close())
	}
	return l, nil
}

// serve serves Envoy until ctx is done.
func (r *relay) serve(ctx context.Context) error {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxConcurrentStreams(maxRelayStreams),
		agentv1.Uncompressed(), // an Envoy may be somebody else's by now
		grpc.ConnectionTimeout(5*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, streamServer{relay: r})
	r.sampler.register(server)
	r.loads.register(server)
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(r.listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the proxy: %w", err)
	}
	return nil
}

// errReplaced ends a stream when a newer one is there.
var errReplaced = status.Error(codes.Aborted, "a newer stream replaced this one")

// errAgain ends a stream that Envoy must open anew.
var errAgain = status.Error(codes.Aborted, "reconnect to learn which resources were removed")

// DeltaAggregatedResources serves one stream of Envoy.
func (r streamServer) DeltaAggregatedResources(st discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, cancel := context.WithCancel(st.Context())
	defer cancel()
	requests := make(chan *discoveryv3.DeltaDiscoveryRequest)
	broken := make(chan error, 1)
	go func() {
		for {
			req, err := st.Recv()
			if err != nil {
				broken <- err
				cancel()
				return
			}
			select {
			case requests <- req:
			case <-ctx.Done():
				return
			}
		}
	}()
	select {
	case <-r.ready: // until then Envoy keeps what it has
	case <-ctx.Done():
		return ended(broken)
	}
	// A stream counts as Envoy's with its first request.
	var first *discoveryv3.DeltaDiscoveryRequest
	select {
	case first = <-requests:
	case <-ctx.Done():
		return ended(broken)
	}
	r.served.mu.Lock()
	if r.served.cancel != nil {
		r.served.cancel()
	}
	r.served.cancel = cancel
	wake := newSignal()
	stream := r.connect(wake.raise)
	r.served.mu.Unlock()
	defer r.disconnect(stream)
	r.log.Debug("proxy connected", "node", first.GetNode().GetId())
	c := &conversation{relay: r.relay, stream: stream, wake: wake}
	return c.run(ctx, st, first, requests, broken)
}

// conversation is one stream while it is served.
type conversation struct {
	relay    *relay
	stream   *delta.Stream
	wake     signal
	opened   bool                                 // the first request for clusters came
	early    []*discoveryv3.DeltaDiscoveryRequest // came before it
	listener *discoveryv3.DeltaDiscoveryRequest   // a new Envoy's first, held back
	asked    bool                                 // for listeners
}

func (c *conversation) run(ctx context.Context, st discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer,
	first *discoveryv3.DeltaDiscoveryRequest, requests <-chan *discoveryv3.DeltaDiscoveryRequest, broken <-chan error,
) error {
	if err := c.receive(ctx, first); err != nil {
		return err
	}
	hold := time.NewTimer(time.Hour)
	defer hold.Stop()
	for {
		for resp := c.relay.next(c.stream); resp != nil; resp = c.relay.next(c.stream) {
			if err := st.Send(resp); err != nil {
				return fmt.Errorf("send to the proxy: %w", err)
			}
		}
		if c.relay.ends(c.stream) {
			return errAgain
		}
		if c.listener != nil {
			if warm, at := c.relay.warm(); warm {
				req := c.listener
				c.listener = nil
				if err := c.pass(req); err != nil {
					return err
				}
				continue
			} else {
				hold.Reset(at.Sub(c.relay.now()))
			}
		}
		select {
		case req := <-requests:
			if err := c.receive(ctx, req); err != nil {
				return err
			}
		case <-c.wake:
		case <-hold.C:
		case <-ctx.Done():
			return ended(broken)
		}
	}
}

// receive handles a request in its turn. Clusters come first: what Envoy says of them
// tells a new Envoy from one that lives on. Listeners of a new one wait until there
// is something behind them.
func (c *conversation) receive(ctx context.Context, req *discoveryv3.DeltaDiscoveryRequest) error {
	switch t := delta.Type(req.GetTypeUrl()); {
	case !c.opened && t != typeCluster:
		if len(c.early) >= len(gate.Types)*2 {
			return status.Error(codes.InvalidArgument, "clusters must be requested first")
		}
		c.early = append(c.early, req)
		return nil
	case !c.opened:
		if err := c.await(ctx, len(req.GetInitialResourceVersions()) > 0); err != nil {
			return err
		}
		c.opened = true
		if err := c.pass(c.relay.openStream(ctx, c.stream, req)); err != nil {
			return err
		}
		early := c.early
		c.early = nil
		for _, r := range early {
			if err := c.receive(ctx, r); err != nil {
				return err
			}
		}
		return nil
	case t == typeListener && !c.asked:
		c.asked = true
		if len(req.GetInitialResourceVersions()) == 0 {
			c.listener = req
			return nil
		}
	case t == typeListener && c.listener != nil:
		held := c.listener
		c.listener = nil
		if err := c.pass(held); err != nil {
			return err
		}
	}
	return c.pass(req)
}

// openStream says what clusters Envoy brings. After a restart of this agent Envoy is asked
// which of them it uses: what is remembered may be of an Envoy before it.
func (r *relay) openStream(ctx context.Context, stream *delta.Stream, req *discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryRequest {
	var active map[string]struct{}
	if r.asksActive(req.GetInitialResourceVersions()) {
		names, err := r.proxy.Active(ctx)
		if err == nil {
			active = make(map[string]struct{}, len(names))
			for _, n := range names {
				active[n] = struct{}{}
			}
		} else {
			r.log.Warn("the proxy does not report which clusters it uses; using the stored list", "error", err)
		}
	}
	return r.open(stream, req, active)
}

func (c *conversation) pass(req *discoveryv3.DeltaDiscoveryRequest) error {
	served, err := c.relay.request(c.stream, req)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if !served {
		return errReplaced
	}
	return nil
}

// ended is why a stream is over.
func ended(broken <-chan error) error {
	select {
	case err := <-broken:
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	default:
		return errReplaced
	}
}

// await waits while what is remembered is withheld from the Envoy of the conversation.
func (c *conversation) await(ctx context.Context, lives bool) error {
	r := c.relay
	over, until, wait := r.withhold(lives)
	if !wait {
		return nil
	}
	defer r.granted()
	var late <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(until.Sub(r.now()))
		defer timer.Stop()
		late = timer.C
	}
	r.log.Info("the stored configuration is held back until a plane answers", "because", r.withholds())
	select {
	case <-over:
		return nil
	case <-late:
		r.log.Info("no plane has answered; the proxy gets the stored configuration")
		return nil
	case <-ctx.Done():
		return errReplaced
	}
}

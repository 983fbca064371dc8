// Package fleet is many machines in one process, as a plane sees them: each joins with a token of its
// own, holds a certificate of its own, and follows everything on a delta-xDS stream over mutual TLS of
// its own, with a stream of reports beside it.
//
// It refuses to do anything with what it is sent but to count and to acknowledge it: there is no Envoy
// and no kernel behind it. Invariant: what a machine keeps does not grow with the plane's resources.
// The names and versions that a restarted agent would remember are kept once for all, from the first
// machine, since all have the same view.
package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// types are what an agent follows, in its order: the checkpoint comes last.
var types = []string{
	agentv1.ClusterType, agentv1.EndpointType, agentv1.SecretType, agentv1.RouteType, agentv1.ScopeType, agentv1.ListenerType,
	agentv1.MachineConfigType, agentv1.NodeType, agentv1.FrontendBackendsType, agentv1.FrontendType, agentv1.CheckType,
	agentv1.BgpPasswordType, agentv1.BgpPeerType, agentv1.VipType, agentv1.CheckpointType,
}

const (
	// The agent's own pauses between two tries.
	backoffFirst = 200 * time.Millisecond
	backoffMost  = 2 * time.Second
	// reportGather and reportAgain are the agent's: a change is reported after so long, and nothing new
	// after a little less than a third of the default time-to-live.
	reportGather = 50 * time.Millisecond
	reportAgain  = 3 * time.Second

	maxMessage = 64 << 20
)

// Dialer connects a machine to a plane.
type Dialer func(ctx context.Context, machine int, address string) (net.Conn, error)

// Options say who the machines are.
type Options struct {
	// Machines is how many there are.
	Machines int
	// Planes are host:port of the planes' agent endpoints.
	Planes []string
	// Token gives the join token of a machine.
	Token func(ctx context.Context, machine string) (string, error)
	Dial  Dialer
	Now   func() time.Time
}

// Fleet is many machines.
type Fleet struct {
	o        Options
	machines []*machine
	world    world
	bytes    atomic.Int64 // of responses received
	streams  atomic.Int64 // that were opened

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when a machine's state changed
}

// machine is one of the fleet.
type machine struct {
	fleet *Fleet
	index int
	name  string
	tls   *tls.Config

	connected bool           // under the fleet's mu, as the next two
	at        delta.Revision // of the last checkpoint
	reached   time.Time      // when that came
	stop      context.CancelFunc
	done      chan struct{}
	moved     chan struct{} // gets a token when at changed
}

// New makes a fleet; Join lets it in.
func New(o Options) *Fleet {
	f := &Fleet{o: o, changed: make(chan struct{})}
	for i := range o.Machines {
		f.machines = append(f.machines, &machine{fleet: f, index: i, name: fmt.Sprintf("fleet-%d", i), moved: make(chan struct{}, 1)})
	}
	return f
}

// Start connects all machines at once. With memory, each claims what all had before, as an agent that
// is started again does; without, it is sent everything.
func (f *Fleet) Start(ctx context.Context, memory bool) {
	for _, m := range f.machines {
		run, cancel := context.WithCancel(ctx)
		m.stop, m.done = cancel, make(chan struct{})
		go func() {
			defer close(m.done)
			m.run(run, memory)
		}()
	}
}

// Stop ends all machines at once, and returns when they have.
func (f *Fleet) Stop() {
	for _, m := range f.machines {
		m.stop()
	}
	for _, m := range f.machines {
		<-m.done
	}
}

// Received is how many bytes of responses the machines were sent, and Streams how many streams they opened.
func (f *Fleet) Received() int64 { return f.bytes.Load() }

// Streams is how many discovery streams were opened, lost tries included.
func (f *Fleet) Streams() int64 { return f.streams.Load() }

// Await waits until so many machines are connected and hold the state of a revision, or of a later one,
// and returns when each of them did.
func (f *Fleet) Await(ctx context.Context, n int, r delta.Revision) ([]time.Time, error) {
	return f.await(ctx, n, r, time.Time{})
}

func (f *Fleet) await(ctx context.Context, n int, r delta.Revision, since time.Time) ([]time.Time, error) {
	for {
		var when []time.Time
		f.mu.Lock()
		changed := f.changed
		for _, m := range f.machines {
			if m.connected && m.at.Compare(r) >= 0 && !m.reached.Before(since) {
				when = append(when, m.reached)
			}
		}
		f.mu.Unlock()
		if len(when) >= n {
			return when, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return when, fmt.Errorf("%d of %d machines hold revision %s: %w", len(when), n, r, ctx.Err())
		}
		// Looking at a thousand machines for each step of each of them would be a million looks.
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// AwaitSince is Await for machines that came to hold it at or after a time: those that were connected
// before do not count until they are again.
func (f *Fleet) AwaitSince(ctx context.Context, n int, r delta.Revision, since time.Time) ([]time.Time, error) {
	return f.await(ctx, n, r, since)
}

// Last is when a machine came to hold a new revision last, and whether all are connected. A revision
// that concerns some machines only moves no other.
func (f *Fleet) Last() (at time.Time, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all = true
	for _, m := range f.machines {
		all = all && m.connected
		if m.reached.After(at) {
			at = m.reached
		}
	}
	return at, all
}

// At is the largest revision that a machine holds.
func (f *Fleet) At() (r delta.Revision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.machines {
		if m.at.Compare(r) > 0 {
			r = m.at
		}
	}
	return r
}

func (f *Fleet) note(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// run keeps a machine connected until ctx is done.
func (m *machine) run(ctx context.Context, memory bool) {
	var held map[string]map[string]string
	if memory {
		held = m.fleet.world.shared()
	}
	wait := backoffFirst
	planes := m.fleet.o.Planes
	for next, hint := m.index, ""; ctx.Err() == nil; {
		address := hint
		if address == "" {
			address = planes[next%len(planes)]
			next++
		}
		hint = ""
		lived, err := m.serve(ctx, address, held)
		m.fleet.note(func() { m.connected = false })
		if lived {
			wait, held = backoffFirst, m.fleet.world.shared()
		}
		pause := backoffFirst + rand.N(wait)
		wait = min(2*wait, backoffMost-backoffFirst)
		if hint = leaderOf(err); hint == address {
			hint = ""
		} else if hint != "" {
			pause = rand.N(backoffFirst)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// leaderOf is the address that a standby's refusal names, empty for none.
func leaderOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if hint, ok := d.(*agentv1.LeaderHint); ok {
			return hint.GetAddress()
		}
	}
	return ""
}

func (m *machine) dial(address string, config *tls.Config) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(config)), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return m.fleet.o.Dial(ctx, m.index, to) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		// A thousand connections with the default 32 KiB each way are most of the memory of the process.
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10),
	)
}

// serve follows one plane until that ends. lived says that it sent a checkpoint.
func (m *machine) serve(ctx context.Context, address string, held map[string]map[string]string) (lived bool, err error) {
	conn, err := m.dial(address, m.tls)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	var side sync.WaitGroup
	defer side.Wait()
	defer cancel()
	m.fleet.streams.Add(1)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName, grpc.ForceCodec(raw{}))
	if err != nil {
		return false, err
	}
	if err := m.subscribe(stream, held); err != nil {
		var said []byte
		return false, errors.Join(err, stream.RecvMsg(&said))
	}
	reporting := false
	for {
		var message []byte
		if err := stream.RecvMsg(&message); err != nil {
			return lived, err
		}
		m.fleet.bytes.Add(int64(len(message)))
		var keep *world
		if m.index == 0 {
			keep = &m.fleet.world
		}
		r, err := scan(message, keep)
		if err != nil {
			return lived, err
		}
		if !reporting {
			reporting = true
			side.Go(func() { m.report(ctx, conn) })
		}
		ack, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.kind, ResponseNonce: r.nonce})
		if err != nil {
			return lived, err
		}
		if err := stream.SendMsg(ack); err != nil {
			return lived, errors.Join(err, stream.RecvMsg(&message))
		}
		if r.checkpoint != (delta.Revision{}) {
			lived = true
			m.fleet.note(func() { m.connected, m.at, m.reached = true, r.checkpoint, m.fleet.o.Now() })
			select {
			case m.moved <- struct{}{}:
			default:
			}
		}
	}
}

// subscribe asks for everything, naming what is held.
func (m *machine) subscribe(stream grpc.ClientStream, held map[string]map[string]string) error {
	for i, t := range types {
		req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: t, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: held[t]}
		if i == 0 {
			req.Node = &corev3.Node{Metadata: &structpb.Struct{}}
			m.fleet.mu.Lock()
			at := m.at
			m.fleet.mu.Unlock()
			if at != (delta.Revision{}) {
				req.Node.Metadata.Fields = map[string]*structpb.Value{agentv1.RevisionField: structpb.NewStringValue(at.String())}
			}
		}
		message, err := proto.Marshal(req)
		if err != nil {
			return err
		}
		if err := stream.SendMsg(message); err != nil {
			return err
		}
	}
	return nil
}

// report says that the machine's proxy is ready and uses what was acknowledged, when that changes and
// from time to time.
func (m *machine) report(ctx context.Context, conn grpc.ClientConnInterface) {
	stream, err := agentv1.NewObserverClient(conn).Observe(ctx)
	if err != nil {
		return // the discovery stream ends as well, and says why
	}
	go func() {
		for err := error(nil); err == nil; {
			_, err = stream.Recv()
		}
	}()
	for {
		m.fleet.mu.Lock()
		at := &agentv1.Checkpoint{Epoch: m.at.Epoch, Revision: m.at.Number}
		m.fleet.mu.Unlock()
		if stream.Send(&agentv1.Report{AgentVersion: "fleet", Applied: &agentv1.Applied{Epoch: at.GetEpoch(), Revision: at.GetRevision()}, Carried: at, Proxy: &agentv1.Proxy{State: agentv1.Proxy_STATE_READY}}) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-m.moved:
			select {
			case <-ctx.Done():
			case <-time.After(reportGather):
			}
		case <-time.After(reportAgain):
		}
	}
}

package southbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// Authority signs certificates; Authorities are one, and so is a CA.
type Authority interface {
	// Sign issues a certificate for the key of a request and the given identity,
	// whatever the request says, as a chain in PEM, and what comes with it: the authority that
	// has signed it is of that Trust. ErrRequest and ErrName are the caller's faults.
	Sign(csr []byte, id Identity) (chain []byte, with Trust, err error)
	// Trust is what comes with a certificate now. The owner calls TrustChanged when it is
	// another.
	Trust() Trust
	// Serving is the plane's own certificate. It is asked for on every handshake.
	Serving() (*tls.Certificate, error)
}

// Tokens knows the one-time tokens. Errors that wrap ErrToken are the caller's fault
// and their text is told to it.
type Tokens interface {
	// Check says whom the token is for, without spending it.
	Check(ctx context.Context, t Token, key KeyID) (Identity, error)
	// Spend says whom the token is for and makes it useless for every other key. The
	// same key may spend it again until it expires: its agent may have died before
	// it stored the certificate.
	Spend(ctx context.Context, t Token, key KeyID) (Identity, error)
}

// Accounts knows the tokens that a cluster gives to its pods.
type Accounts interface {
	// Review says for which machine the pod that shows a token speaks: the node that it
	// runs on. The token stays good until it expires. An error that wraps ErrToken is
	// the caller's fault and its text is told to it; one that wraps ErrAway is nobody's,
	// and the caller tries again.
	Review(ctx context.Context, token string) (Identity, error)
}

// Leader knows whether this plane leads.
type Leader interface {
	// Leading gives the epoch of the leadership; false on a standby.
	Leading() (epoch uint64, leads bool)
	// Address is host:port of the leader's agent endpoint, empty if unknown.
	Address() string
	// Exceed asks for an epoch larger than one that a machine has seen: the plane was
	// restored from a backup. It is called only while the plane leads. Everything has
	// to be published anew in the new epoch; until then the machine is sent nothing.
	Exceed(ctx context.Context, epoch uint64) error
}

// Config of a Server.
type Config struct {
	Views     *Views           // required
	Authority Authority        // required
	Tokens    Tokens           // required
	Leader    Leader           // required
	Accounts  Accounts         // of pods; nil: no pod joins
	Now       func() time.Time // required
	Log       *slog.Logger     // required
	// Known says whether a machine's key counts, from memory alone: connections with another key are
	// strangers', and so few, short and small. Nil: every key that an authority signed counts.
	Known func(machine string, key KeyID) bool
	// Joined says whether a machine has keys that count and this is none of them, from memory alone. Its name is
	// not given to another key in the first moments of a leadership, when the machine may not have come back
	// yet. Nil: no machine has.
	Joined func(machine string, key KeyID) bool
	// Expected says whether a machine has an address, from memory alone: connections from there do not stand in
	// line with strangers'. A plane that has just begun knows nothing else of where machines call from. Nil: none has.
	Expected func(address netip.Addr) bool
	// Succeeded accepts the message of another plane that it leads, or returns an error if it cannot lead. Nil: no
	// such message is accepted.
	Succeeded func(Successor) error
	// Endpoints are where this plane is reached, host:port, in both families where it can be. Nil: nowhere.
	Endpoints func() []string
	// TTL is the time without a report after which a machine is lost. Default 15 s.
	TTL time.Duration
	// MaxMachines limits the machines in memory. Default 4,096.
	MaxMachines int
	// MaxStrangers bounds connections without a client certificate. Default 64.
	MaxStrangers int
	// StrangerTime is how long such a connection may last. Default 30 s.
	StrangerTime time.Duration
}

// Defaults of a Config.
const (
	DefaultTTL          = 15 * time.Second
	DefaultMaxMachines  = 4096
	DefaultMaxStrangers = 64
	DefaultStrangerTime = 30 * time.Second
)

const (
	// A reconnecting agent names every resource that it holds in one message: this
	// is enough for 80,000 of a type.
	maxRequestBytes = 8 << 20
	// An agent needs five: discovery, reports, taps, a renewal and a proof.
	maxStreams     = 6
	maxHeaderBytes = 16 << 10
	handshakeTime  = 10 * time.Second
	idleTime       = 2 * time.Minute
	pingTime       = 10 * time.Second
)

// Server serves machines. It is safe for concurrent use.
type Server struct {
	agentv1.UnimplementedEnrollmentServer
	agentv1.UnimplementedObserverServer
	agentv1.UnimplementedSuccessionServer
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	config    Config
	verifier  verifier
	admission *admission
	joins     *joins

	mu       sync.Mutex
	machines map[string]*machine
	proofs   proofs
	// who reports which addresses
	reporters reporters
	watchers  []func(machine string)
	// asked is the number of the last question; questions are those that wait.
	asked     uint64
	questions map[*question]struct{}
	sessions  map[*session]struct{}
	taps      taps
	led       time.Time // when this leadership was first seen; zero: it does not lead
	raised    struct {  // the epoch, for the last time
		above uint64
		at    time.Time
	}
}

// New returns a server that is not serving yet.
func New(c Config) (*Server, error) {
	if c.Views == nil || c.Authority == nil || c.Tokens == nil || c.Leader == nil || c.Now == nil || c.Log == nil {
		return nil, errors.New("southbound: Views, Authority, Tokens, Leader, Now and Log are required")
	}
	if c.Endpoints == nil {
		c.Endpoints = func() []string { return nil }
	}
	if c.TTL <= 0 {
		c.TTL = DefaultTTL
	}
	if c.MaxMachines <= 0 {
		c.MaxMachines = DefaultMaxMachines
	}
	if c.MaxStrangers <= 0 {
		c.MaxStrangers = DefaultMaxStrangers
	}
	if c.StrangerTime <= 0 {
		c.StrangerTime = DefaultStrangerTime
	}
	s := &Server{
		taps:   taps{open: map[uint64]*Tap{}, flows: map[uint64]*FlowTap{}},
		config: c, verifier: verifier{trust: c.Authority.Trust, now: c.Now}, joins: newJoins(c.Now),
		machines: map[string]*machine{}, proofs: newProofs(), reporters: reporters{}, sessions: map[*session]struct{}{}, questions: map[*question]struct{}{},
	}
	s.admission = newAdmission(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13,
		// Join has no certificate yet; the verifier sees to all other calls.
		ClientAuth: tls.RequestClientCert,
		// Tells clients which certificate to show, by the authority's name: all have the same.
		ClientCAs:              c.Authority.Trust().Pool,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.Authority.Serving() },
		SessionTicketsDisabled: true,
		Time:                   c.Now,
	}), s.verifier, c.MaxStrangers, c.MaxMachines, c.StrangerTime)
	s.admission.known, s.admission.expected = c.Known, c.Expected
	return s, nil
}

// Options are those of a gRPC server that Register is called with: TLS, and limits
// that keep slow and hostile clients from exhausting the process.
func (s *Server) Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(s.admission),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(maxRequestBytes),
		agentv1.Uncompressed(),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTime, Time: pingTime, Timeout: pingTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingTime / 2, PermitWithoutStream: true}),
	}
}

// Register adds the five services to a gRPC server.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	agentv1.RegisterEnrollmentServer(g, s)
	agentv1.RegisterObserverServer(g, s)
	agentv1.RegisterTapperServer(g, tapServer{Server: s})
	agentv1.RegisterSuccessionServer(g, s)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
}

// Serve serves on a listener, which it closes, until ctx is done. It returns nil then,
// and otherwise the error that ended it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	g := grpc.NewServer(s.Options()...)
	s.Register(g)
	stop := context.AfterFunc(ctx, g.Stop)
	defer stop()
	if err := g.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve machines on %s: %w", l.Addr(), err)
	}
	return nil
}

// StepDown ends every stream, tells the agents the leader's address, and forgets their proven addresses.
// It is called when leadership is lost.
func (s *Server) StepDown() {
	err := s.standby()
	s.mu.Lock()
	defer s.mu.Unlock()
	for session := range s.sessions {
		session.end(err)
	}
	s.led = time.Time{}
	s.proofs = newProofs()
	for _, m := range s.machines {
		m.proved = false
	}
}

// begun is when this plane began to lead; zero where it does not. s.mu is held: StepDown takes it after the
// leadership has ended.
func (s *Server) begun(now time.Time) time.Time {
	if _, leads := s.config.Leader.Leading(); leads && (s.led.IsZero() || now.Before(s.led)) { // or the clock was set back
		s.led = now
	}
	return s.led
}

// standby is the answer of a plane that does not lead.
func (s *Server) standby() error {
	address := s.config.Leader.Address()
	text := "this plane does not lead, and no leader is known"
	if address != "" {
		text = "this plane does not lead; the leader is at " + address
	}
	st := status.New(codes.Unavailable, text)
	if detailed, err := st.WithDetails(&agentv1.LeaderHint{Address: address}); err == nil {
		st = detailed
	}
	return st.Err()
}

// session is one open stream of a machine.
type session struct {
	caller
	from netip.Addr // what the machine calls from; not valid where that is no address
	end  context.CancelCauseFunc
	ask  chan struct{} // gets a token when the machine is to be asked for something
	// pace is the machine's; set once it has the name.
	pace pace
	// figures is the number of the last question for figures, query the last one for flows.
	figures atomic.Uint64
	query   atomic.Pointer[agentv1.FlowQuery]
}

// begin is the common start of all kinds of streams: it checks who calls and
// whether this plane leads, and claims the machine's name for the caller. The
// context ends with the stream or when the server ends it; done must be called.
func (s *Server) begin(ctx context.Context, kind streamKind) (_ context.Context, who *session, done func(), _ error) {
	c, err := s.verifier.caller(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if _, leads := s.config.Leader.Leading(); !leads {
		return nil, nil, nil, s.standby()
	}
	ctx, end := context.WithCancelCause(ctx)
	who = &session{caller: c, from: callsFrom(ctx), end: end, ask: make(chan struct{}, 1)}
	if err := s.claim(who, kind); err != nil {
		end(err)
		s.config.Log.Warn("machine refused", "machine", c.Machine, "reason", err)
		return nil, nil, nil, err
	}
	done = func() {
		end(nil)
		s.release(who, kind)
	}
	// StepDown and TrustChanged end the sessions that they see; this one may have come just after.
	if _, leads := s.config.Leader.Leading(); !leads {
		done()
		return nil, nil, nil, s.standby()
	}
	if !s.config.Authority.Trust().has(c.issuer) {
		done()
		return nil, nil, nil, errRetired
	}
	return ctx, who, done, nil
}

// ended is what a stream returns once its context is done.
func ended(ctx context.Context) error {
	err := context.Cause(ctx)
	if errors.Is(err, io.EOF) {
		return nil // the client has finished
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(ctx.Err()).Err()
}

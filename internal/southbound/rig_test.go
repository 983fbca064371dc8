package southbound

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	typeA delta.Type = "type.example/a"
	typeB delta.Type = "type.example/b"

	// patience bounds waits that are expected to succeed.
	patience = 20 * time.Second
)

// clock is a time that only tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// term is a Leader that tests steer.
type term struct {
	mu       sync.Mutex
	epoch    uint64
	leads    bool
	address  string
	exceeded []uint64
	fail     error
}

func (l *term) Leading() (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch, l.leads
}

func (l *term) Address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.address
}

func (l *term) Exceed(_ context.Context, epoch uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exceeded = append(l.exceeded, epoch)
	if l.fail == nil {
		l.epoch = epoch + 1
	}
	return l.fail
}

func (l *term) set(epoch uint64, leads bool, address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch, l.leads, l.address = epoch, leads, address
}

// tokenStore keeps tokens as the plane does, in memory.
type tokenStore struct {
	mu     sync.Mutex
	now    func() time.Time
	tokens map[string]*storedToken
	checks atomic.Int64
}

type storedToken struct {
	hash    string
	id      Identity
	expires time.Time
	spentBy KeyID
}

func (s *tokenStore) Check(_ context.Context, t Token, key KeyID) (Identity, error) {
	s.checks.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	stored, err := s.find(t, key)
	if err != nil {
		return Identity{}, err
	}
	return stored.id, nil
}

func (s *tokenStore) Spend(_ context.Context, t Token, key KeyID) (Identity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stored, err := s.find(t, key)
	if err != nil {
		return Identity{}, err
	}
	stored.spentBy = key
	return stored.id, nil
}

func (s *tokenStore) find(t Token, key KeyID) (*storedToken, error) {
	stored := s.tokens[t.ID]
	switch {
	case stored == nil || !t.Matches(stored.hash):
		return nil, fmt.Errorf("%w: it is unknown", ErrToken)
	case s.now().After(stored.expires):
		return nil, fmt.Errorf("%w: it has expired", ErrToken)
	case stored.spentBy != "" && stored.spentBy != key:
		return nil, fmt.Errorf("%w: it was used", ErrToken)
	}
	return stored, nil
}

// rig is a server on an in-memory listener with real TLS.
type rig struct {
	t        *testing.T
	clock    *clock
	leader   *term
	tokens   *tokenStore
	ca       *CA
	views    *Views
	server   *Server
	listener *bufconn.Listener
	from     atomic.Pointer[net.TCPAddr] // where the next connection comes from; nil: nowhere

	mu      sync.Mutex
	changes chan struct{} // closed and replaced when a watcher is called
}

func newRig(t *testing.T, tweak ...func(*Config)) *rig {
	t.Helper()
	r := &rig{
		t:       t,
		clock:   &clock{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)},
		leader:  &term{epoch: 1, leads: true},
		views:   NewViews(),
		changes: make(chan struct{}),
	}
	r.tokens = &tokenStore{now: r.clock.Now, tokens: map[string]*storedToken{}}
	var err error
	if r.ca, err = NewCA(r.clock.Now); err != nil {
		t.Fatal(err)
	}
	config := Config{
		Views: r.views, Authority: r.ca, Tokens: r.tokens, Leader: r.leader, Now: r.clock.Now,
		Log: slog.New(slog.NewTextHandler(testLog{t}, nil)), TTL: 15 * time.Second,
	}
	for _, f := range tweak {
		f(&config)
	}
	if r.server, err = New(config); err != nil {
		t.Fatal(err)
	}
	r.server.Watch(func(string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		close(r.changes)
		r.changes = make(chan struct{})
	})
	r.listener = bufconn.Listen(1 << 16)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(ctx, addressed{r.listener, &r.from}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r
}

// addressed is a listener whose connections come from an address.
type addressed struct {
	net.Listener
	from *atomic.Pointer[net.TCPAddr]
}

func (l addressed) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if from := l.from.Load(); err == nil && from != nil {
		return callingFrom{conn, from}, nil
	}
	return conn, err
}

type callingFrom struct {
	net.Conn
	from *net.TCPAddr
}

func (c callingFrom) RemoteAddr() net.Addr { return c.from }

// testLog writes the server's log into the test's.
type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	// A stream may end, and say so, when the test is over.
	defer func() { _ = recover() }()
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// token stores a token for a machine and returns what is sent in a Join.
func (r *rig) token(machine string) string {
	r.t.Helper()
	token, err := NewToken(rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	r.tokens.tokens[token.ID] = &storedToken{
		hash: token.Hash(), id: Identity{Machine: machine, Role: "edge"}, expires: r.clock.Now().Add(time.Hour),
	}
	return token.Reveal()
}

// agent is one machine's end: its key, certificate and connection.
type agent struct {
	r    *rig
	key  *ecdsa.PrivateKey
	cert *tls.Certificate
	conn *grpc.ClientConn
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func request(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	// The subject is a lie, which must not matter.
	template := &x509.CertificateRequest{DNSNames: []string{"machine:other"}}
	template.Subject.CommonName = "machine:other"
	csr, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

// dial connects with the certificate, or without one.
func (r *rig) dial(cert *tls.Certificate) *grpc.ClientConn {
	r.t.Helper()
	return r.dialBy(cert, func(ctx context.Context, _ string) (net.Conn, error) { return r.listener.DialContext(ctx) })
}

// dialBy is dial with connections of one's own.
func (r *rig) dialBy(cert *tls.Certificate, dial func(context.Context, string) (net.Conn, error)) *grpc.ClientConn {
	r.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.ca.Roots())
	config := &tls.Config{RootCAs: roots, ServerName: agentv1.ServerName, Time: r.clock.Now, MinVersion: tls.VersionTLS13}
	if cert != nil {
		// Sent whatever the server says that it accepts, as an impostor would.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	conn, err := grpc.NewClient("passthrough:///plane", grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithContextDialer(dial))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

// join makes a machine with a new key.
func (r *rig) join(machine string) *agent {
	r.t.Helper()
	key := newKey(r.t)
	answer, err := agentv1.NewEnrollmentClient(r.dial(nil)).Join(r.ctx(), &agentv1.JoinRequest{Token: r.token(machine), Csr: request(r.t, key)})
	if err != nil {
		r.t.Fatal(err)
	}
	if answer.GetMachine() != machine || string(answer.GetAuthorities()) != string(r.ca.Roots()) {
		r.t.Fatalf("joined as %q", answer.GetMachine())
	}
	return r.agent(key, answer.GetChain())
}

func (r *rig) agent(key *ecdsa.PrivateKey, chain []byte) *agent {
	r.t.Helper()
	cert := &tls.Certificate{PrivateKey: key}
	for block, rest := pem.Decode(chain); block != nil; block, rest = pem.Decode(rest) {
		cert.Certificate = append(cert.Certificate, block.Bytes)
	}
	return &agent{r: r, key: key, cert: cert, conn: r.dial(cert)}
}

// impostor is a machine whose certificate the authority signed for another key: no
// token gives one while the machine is alive, a stolen authority would.
func (r *rig) impostor(machine string) *agent {
	r.t.Helper()
	key := newKey(r.t)
	chain, _, err := r.ca.Sign(request(r.t, key), Identity{Machine: machine})
	if err != nil {
		r.t.Fatal(err)
	}
	return r.agent(key, chain)
}

// ads is an agent's discovery stream.
type ads struct {
	*agent
	client discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cancel context.CancelFunc
	first  bool
}

func (a *agent) discover() *ads {
	a.r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	a.r.t.Cleanup(cancel)
	client, err := discoveryv3.NewAggregatedDiscoveryServiceClient(a.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		a.r.t.Fatal(err)
	}
	return &ads{agent: a, client: client, cancel: cancel, first: true}
}

func (s *ads) send(req *discoveryv3.DeltaDiscoveryRequest) {
	s.r.t.Helper()
	if err := s.client.Send(req); err != nil && !errors.Is(err, io.EOF) {
		s.r.t.Fatal(err)
	}
}

// follow subscribes to everything of the types, with what is held of the first.
func (s *ads) follow(accepted string, held map[string]string, types ...delta.Type) {
	s.r.t.Helper()
	for i, t := range types {
		req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(t), ResourceNamesSubscribe: []string{"*"}}
		if i == 0 {
			req.InitialResourceVersions = held
		}
		if s.first {
			s.first = false
			req.Node = &corev3.Node{Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
				agentv1.RevisionField: structpb.NewStringValue(accepted),
			}}}
		}
		s.send(req)
	}
}

// next receives a response as "type[ name=version... name-...]@revision".
func (s *ads) next() (*discoveryv3.DeltaDiscoveryResponse, string) {
	s.r.t.Helper()
	resp, err := s.client.Recv()
	if err != nil {
		s.r.t.Fatalf("receive: %v", err)
	}
	return resp, describe(resp)
}

func describe(resp *discoveryv3.DeltaDiscoveryResponse) string {
	text := resp.GetTypeUrl()[max(strings.LastIndexByte(resp.GetTypeUrl(), '/'), strings.LastIndexByte(resp.GetTypeUrl(), '.'))+1:]
	for _, r := range resp.GetResources() {
		if resp.GetTypeUrl() == agentv1.CheckpointType {
			c := &agentv1.Checkpoint{}
			if err := r.GetResource().UnmarshalTo(c); err != nil {
				return err.Error()
			}
			text += fmt.Sprintf(" %d/%d", c.GetEpoch(), c.GetRevision())
			continue
		}
		text += " " + r.GetName() + "=" + r.GetVersion()
	}
	for _, n := range resp.GetRemovedResources() {
		text += " " + n + "-"
	}
	return text + "@" + resp.GetSystemVersionInfo()
}

func (s *ads) ack(resp *discoveryv3.DeltaDiscoveryResponse) {
	s.r.t.Helper()
	s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()})
}

func (s *ads) nack(resp *discoveryv3.DeltaDiscoveryResponse, message string) {
	s.r.t.Helper()
	s.send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: message},
	})
}

// expect receives and acks responses of different types, in any order but for the
// checkpoint, which must be where it is listed.
func (s *ads) expect(want ...string) {
	s.r.t.Helper()
	var got []string
	for range want {
		resp, text := s.next()
		got = append(got, text)
		s.ack(resp)
	}
	if last := len(want) - 1; last >= 0 && strings.HasPrefix(want[last], "Checkpoint") {
		slices.Sort(got[:last])
		slices.Sort(want[:last])
	} else {
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		s.r.t.Fatalf("received\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// fails waits for the end of the stream.
func (s *ads) fails(code codes.Code, text string) *status.Status {
	s.r.t.Helper()
	for {
		_, err := s.client.Recv()
		if err == nil {
			continue
		}
		return wantStatus(s.r.t, err, code, text)
	}
}

func wantStatus(t *testing.T, err error, code codes.Code, text string) *status.Status {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != code || !strings.Contains(st.Message(), text) {
		t.Fatalf("got %v %q, want %v %q", st.Code(), st.Message(), code, text)
	}
	return st
}

// wait returns once the condition holds; it is asked whenever a watcher is called.
func (r *rig) wait(what string, machine string, condition func(MachineState) bool) MachineState {
	r.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		changes := r.changes
		r.mu.Unlock()
		state, _ := r.server.Machine(machine)
		if condition(state) {
			return state
		}
		select {
		case <-changes:
		case <-deadline.C:
			r.t.Fatalf("%s: never, state is %+v", what, state)
		}
	}
}

// publish takes "name=content" and "name-" for a view and for machines.
func (r *rig) publish(epoch, number uint64, u Update) {
	r.t.Helper()
	if err := r.views.Publish(delta.Revision{Epoch: epoch, Number: number}, u); err != nil {
		r.t.Fatal(err)
	}
}

func changes(t delta.Type, texts ...string) []delta.Change {
	var cs []delta.Change
	for _, text := range texts {
		name, content, ok := strings.Cut(text, "=")
		c := delta.Change{Type: t, Name: strings.TrimSuffix(name, "-")}
		if ok {
			c.Resource = &delta.Resource{Name: name, Version: content, Body: &anypb.Any{TypeUrl: string(t), Value: []byte(content)}}
		}
		cs = append(cs, c)
	}
	return cs
}

package plane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// fakeAgent is a machine's side of the protocol: it joins, takes what it is sent,
// and reports as applied what it is told to.
type fakeAgent struct {
	t    *testing.T
	name string
	key  *ecdsa.PrivateKey
	cert tls.Certificate
	root *x509.CertPool

	mu       sync.Mutex
	reports  []string       // the addresses that it reports
	unproved bool           // it has not tried to prove them
	issuer   []byte         // who has signed cert, as it reports; nil: it is of an older version
	trust    *agentv1.Trust // what it was told that comes with a certificate
	held     map[delta.Type]map[string]*discoveryv3.Resource
	rev      delta.Revision // largest that was accepted
	point    delta.Revision // the last checkpoint
	received map[delta.Type]int
	problems []*agentv1.Problem
	stuck    bool // accepts, and applies nothing
	lags     bool // its kernel stays as it is
	leaving  uint64
	left     uint64 // the last leaving of which it was told that all have noticed
	proxy    agentv1.Proxy_State
	sessions []model.Session
	vips     []model.VIPObserved
	results  []model.CheckResult
	ejected  []model.Ejection
	tunnel   *agentv1.Tunnel
	// observes changes what it says of a frontend that it has; nil: it balances all whose
	// VIP it has.
	observes func(*model.FrontendObserved)
	takes    func()                  // called with the lock held when it has taken something
	flows    []model.Flow            // its flow table
	mute     bool                    // it does not say what that has
	counted  []model.FrontendFigures // its figures
	requests []model.RequestFigures  // its proxy's
	asked    chan *agentv1.Instruction
	ended    error // why the last discovery stream ended
	streams  int   // how many discovery streams are open
	changed  chan struct{}
	report   chan struct{}
}

func newFakeAgent(t *testing.T, name string) *fakeAgent {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &fakeAgent{
		t: t, name: name, key: key, held: map[delta.Type]map[string]*discoveryv3.Resource{}, received: map[delta.Type]int{},
		proxy: agentv1.Proxy_STATE_READY, changed: make(chan struct{}, 1), report: make(chan struct{}, 1),
		reports: addressesOf(name), tunnel: &agentv1.Tunnel{Mtu: 1500}, asked: make(chan *agentv1.Instruction, 16),
	}
}

// addressesOf are one of each family that no machine of another name has, most likely.
func addressesOf(name string) []string {
	sum := sha256.Sum256([]byte(name))
	return []string{fmt.Sprintf("198.18.%d.%d", sum[0], sum[1]), fmt.Sprintf("2001:db8:18::%x%02x", sum[0], sum[1])}
}

func (a *fakeAgent) request() []byte {
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return csr
}

// join spends a printed token.
func (a *fakeAgent) join(address, printed string) error {
	parts := strings.Split(printed, ".")
	if len(parts) != 4 {
		return fmt.Errorf("token %q has %d parts", printed, len(parts))
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		ServerName: agentv1.ServerName, MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: true, // the pin is checked instead
		VerifyConnection: func(s tls.ConnectionState) error {
			for _, c := range s.PeerCertificates {
				sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
				if c.IsCA && base64.RawURLEncoding.EncodeToString(sum[:]) == parts[3] {
					return nil
				}
			}
			return errors.New("no authority of the token's pin")
		},
	})))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	issued, err := agentv1.NewEnrollmentClient(conn).Join(ctx, &agentv1.JoinRequest{Token: parts[1] + "." + parts[2], Csr: a.request()})
	if err != nil {
		return err
	}
	a.take(issued)
	return nil
}

func (a *fakeAgent) take(issued *agentv1.Certificate) {
	if issued.GetMachine() != a.name {
		a.t.Errorf("the certificate is for %q", issued.GetMachine())
	}
	a.cert = tls.Certificate{PrivateKey: a.key}
	for block, rest := pem.Decode(issued.GetChain()); block != nil; block, rest = pem.Decode(rest) {
		a.cert.Certificate = append(a.cert.Certificate, block.Bytes)
	}
	a.root = x509.NewCertPool()
	if !a.root.AppendCertsFromPEM(issued.GetAuthorities()) {
		a.t.Error("no authorities")
	}
	signer, err := x509.ParseCertificate(a.cert.Certificate[1])
	if err != nil {
		a.t.Fatal(err)
	}
	pin := sha256.Sum256(signer.RawSubjectPublicKeyInfo)
	a.with(func() { a.issuer = pin[:] })
}

func (a *fakeAgent) dial(address string) *grpc.ClientConn {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		ServerName: agentv1.ServerName, MinVersion: tls.VersionTLS13, RootCAs: a.root, Certificates: []tls.Certificate{a.cert},
	})))
	if err != nil {
		a.t.Fatal(err)
	}
	return conn
}

// renew gets a certificate for a new key.
func (a *fakeAgent) renew(address string) error {
	conn := a.dial(address)
	defer func() { _ = conn.Close() }()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	a.key = key
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	issued, err := agentv1.NewEnrollmentClient(conn).Renew(ctx, &agentv1.RenewRequest{Csr: a.request()})
	if err != nil {
		return err
	}
	a.take(issued)
	return nil
}

// wanted are the types that an agent subscribes to, the checkpoint last.
var wanted = []delta.Type{typeMachine, typeCluster, typeEndpoint, typeListener, typeScope, typeRoute, typeSecret, agentv1.NodeType, agentv1.FrontendBackendsType, agentv1.FrontendType, agentv1.CheckType, agentv1.VipType, agentv1.CheckpointType}

// connect opens both streams and keeps them until the returned function is called or
// the plane ends them.
func (a *fakeAgent) connect(address string) (disconnect func()) {
	a.t.Helper()
	conn := a.dial(address)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	a.with(func() { a.ended = nil })
	wg.Go(func() {
		err := a.discover(ctx, conn)
		a.with(func() { a.ended = err })
	})
	wg.Go(func() { a.observe(ctx, conn) })
	stop := sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		_ = conn.Close()
	})
	a.t.Cleanup(stop)
	return stop
}

func (a *fakeAgent) discover(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	for i, typ := range wanted {
		req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typ), ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: map[string]string{}}
		a.mu.Lock()
		for name, r := range a.held[typ] {
			req.InitialResourceVersions[name] = r.GetVersion()
		}
		if i == 0 {
			req.Node = &corev3.Node{Id: a.name}
			if a.rev != (delta.Revision{}) {
				req.Node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{agentv1.RevisionField: structpb.NewStringValue(a.rev.String())}}
			}
		}
		a.mu.Unlock()
		if err := stream.Send(req); err != nil {
			_, err = stream.Recv()
			return err
		}
	}
	a.with(func() { a.streams++ })
	defer a.with(func() { a.streams-- })
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := a.accept(resp); err != nil {
			a.t.Error(err)
			return err
		}
		if stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}) != nil {
			continue // Recv says why
		}
		signal(a.report)
	}
}

func (a *fakeAgent) accept(resp *discoveryv3.DeltaDiscoveryResponse) error {
	rev, err := delta.ParseRevision(resp.GetSystemVersionInfo())
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if rev.Compare(a.rev) < 0 {
		return fmt.Errorf("%s was sent %s after %s", a.name, rev, a.rev)
	}
	a.rev = rev
	typ := delta.Type(resp.GetTypeUrl())
	if a.held[typ] == nil {
		a.held[typ] = map[string]*discoveryv3.Resource{}
	}
	for _, r := range resp.GetResources() {
		a.held[typ][r.GetName()] = r
		a.received[typ]++
		if typ == agentv1.CheckpointType {
			point := &agentv1.Checkpoint{}
			if err := r.GetResource().UnmarshalTo(point); err != nil {
				return err
			}
			a.point = delta.Revision{Epoch: point.GetEpoch(), Number: point.GetRevision()}
		}
	}
	for _, name := range resp.GetRemovedResources() {
		delete(a.held[typ], name)
		a.received[typ]++
	}
	if a.takes != nil {
		a.takes()
	}
	signal(a.changed)
	return nil
}

// observe reports on every change and twice a second.
func (a *fakeAgent) observe(ctx context.Context, conn *grpc.ClientConn) {
	stream, err := agentv1.NewObserverClient(conn).Observe(ctx)
	if err != nil {
		return
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	go func() {
		for {
			instruction, err := stream.Recv()
			if err != nil {
				return
			}
			a.with(func() { a.left, a.trust = max(a.left, instruction.GetLeft()), instruction.GetTrust() })
			a.asked <- instruction
		}
	}()
	var applied, carried delta.Revision
	var instruction *agentv1.Instruction
	for {
		a.mu.Lock()
		if !a.stuck {
			applied = a.point
		}
		if !a.lags {
			carried = a.point
		}
		report := &agentv1.Report{
			AgentVersion: "test", Addresses: a.reports, Proved: !a.unproved,
			Applied:  &agentv1.Applied{Epoch: applied.Epoch, Revision: applied.Number, Problems: a.problems},
			Proxy:    &agentv1.Proxy{State: a.proxy, Version: "1.40.0"},
			Sessions: wire.Sessions(a.sessions), Vips: wire.VIPStates(a.vips),
			Frontends: wire.FrontendStates(a.observed()), Tunnel: a.tunnel,
			Checks: wire.CheckResults(a.results), Ejected: wire.Ejected(a.ejected), Leaving: a.leaving,
			Carried: &agentv1.Checkpoint{Epoch: carried.Epoch, Revision: carried.Number}, Issuer: a.issuer,
		}
		if n := instruction.GetAskFigures(); n > 0 {
			report.Figures = &agentv1.Figures{Asked: n}
			report.Figures.Frontends, report.Figures.Requests = wire.FrontendFigures(a.counted), wire.RequestFigures(a.requests)
		}
		if q := instruction.GetAskFlows(); q != nil && !a.mute {
			report.Flows = wire.Flows(q.GetAsked(), a.flows, false)
		}
		instruction = nil
		a.mu.Unlock()
		if stream.Send(report) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-stream.Context().Done():
			return
		case <-tick.C:
		case <-a.report:
		case instruction = <-a.asked:
		}
	}
}

// observed is what it says of its frontends. The caller holds the lock.
func (a *fakeAgent) observed() []model.FrontendObserved {
	var out []model.FrontendObserved
	for _, name := range slices.Sorted(maps.Keys(a.held[agentv1.FrontendType])) {
		m := &agentv1.Frontend{}
		key, err := model.ParseFrontend(name)
		if err != nil || a.get(agentv1.FrontendType, name, m) != nil {
			a.t.Errorf("%s has a frontend that cannot be read: %q, %v", a.name, name, err)
			continue
		}
		o := model.FrontendObserved{FrontendKey: key, State: model.FrontendDecap, DataPlane: model.DataPlaneXDP, Mode: model.ModeNAT}
		if slices.Contains(m.GetMachines(), a.name) {
			o.State = model.FrontendBalanced
		}
		if a.observes != nil {
			a.observes(&o)
		}
		out = append(out, o)
	}
	return out
}

func (a *fakeAgent) with(f func()) {
	a.mu.Lock()
	f()
	a.mu.Unlock()
	signal(a.changed)
	signal(a.report)
}

// await waits until what the agent holds is as wanted.
func (a *fakeAgent) await(what string, check func() error) {
	a.t.Helper()
	eventually(a.t, a.name+" "+what, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		return check()
	})
}

// get decodes a resource that the agent holds. The caller holds the lock.
func (a *fakeAgent) get(typ delta.Type, name string, into proto.Message) error {
	r := a.held[typ][name]
	if r == nil {
		return fmt.Errorf("it has no %s %q", typ, name)
	}
	return r.GetResource().UnmarshalTo(into)
}

// counts returns how many resources of each type it was sent since the last call.
func (a *fakeAgent) counts() map[delta.Type]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := maps.Clone(a.received)
	clear(a.received)
	return c
}

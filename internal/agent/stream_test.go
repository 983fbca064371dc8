package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate"
	"fairlead.dev/internal/gate/gatetest"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// asker is a client of the socket that asks as Envoy does.
type asker struct {
	t      *testing.T
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	has    map[key]string // versions; of what was removed, or is not there, none
	order  []key          // as they came
}

func dialRelay(t *testing.T, m *machineRig) *asker {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+SocketPath(m.config.RunDir), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return &asker{t: t, stream: stream, has: map[key]string{}}
}

func (e *asker) send(req *discoveryv3.DeltaDiscoveryRequest) {
	e.t.Helper()
	if err := e.stream.Send(req); err != nil {
		_, err = e.stream.Recv()
		e.t.Fatalf("send: %v", err)
	}
}

// ask subscribes to names of a type; to everything without names.
func (e *asker) ask(typ delta.Type, names ...string) {
	e.t.Helper()
	e.send(&discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: "edge-1"}, TypeUrl: string(typ), ResourceNamesSubscribe: names,
	})
}

// next receives one response without answering it.
func (e *asker) next() *discoveryv3.DeltaDiscoveryResponse {
	e.t.Helper()
	resp, err := e.stream.Recv()
	if err != nil {
		e.t.Fatalf("receive: %v; it has %v", err, e.has)
	}
	typ := delta.Type(resp.GetTypeUrl())
	for _, r := range resp.GetResources() {
		e.has[key{typ, r.GetName()}] = r.GetVersion()
		e.order = append(e.order, key{typ, r.GetName()})
	}
	for _, name := range resp.GetRemovedResources() {
		delete(e.has, key{typ, name})
	}
	return resp
}

func (e *asker) ack(resp *discoveryv3.DeltaDiscoveryResponse) {
	e.t.Helper()
	e.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()})
}

// until accepts what comes until it has the change's version, or, of a removal, not
// the name any more.
func (e *asker) until(c delta.Change) {
	e.t.Helper()
	want := ""
	if c.Resource != nil {
		want = c.Resource.Version
	}
	for e.has[key{c.Type, c.Name}] != want {
		e.ack(e.next())
	}
}

// pump accepts everything from now on, until the stream ends.
func (e *asker) pump() {
	go func() {
		for {
			resp, err := e.stream.Recv()
			if err != nil {
				return
			}
			if e.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}) != nil {
				return
			}
		}
	}()
}

// boot asks as an Envoy that has just started does, for what world holds.
func (e *asker) boot(w relayed) {
	e.t.Helper()
	e.ask(typeCluster)
	e.until(w.cluster)
	e.ask(typeEndpoint, w.endpoints.Name)
	e.until(w.endpoints)
	e.ask(typeListener)
	e.until(w.listener)
	e.ask(typeRoute, w.routes.Name)
	for e.has[key{typeRoute, w.routes.Name}] == "" {
		e.ack(e.next())
	}
}

// fails waits for the end of the stream.
func (e *asker) fails(code codes.Code, text string) {
	e.t.Helper()
	for {
		_, err := e.stream.Recv()
		if err == nil {
			continue
		}
		if st := status.Convert(err); st.Code() != code || !strings.Contains(st.Message(), text) {
			e.t.Fatalf("it ended with %v, want %v %q", err, code, text)
		}
		return
	}
}

// relayed is a state of one host.
type relayed struct{ cluster, endpoints, routes, listener delta.Change }

func (w relayed) responses(t *testing.T, r delta.Revision) []*discoveryv3.DeltaDiscoveryResponse {
	return []*discoveryv3.DeltaDiscoveryResponse{
		responseOf(t, r, w.cluster), responseOf(t, r, w.endpoints), responseOf(t, r, w.routes), responseOf(t, r, w.listener),
		responseOf(t, r, checkpointAt(t, r)),
	}
}

// serving is a machine that a plane has given a state.
func serving(t *testing.T) (*machineRig, *Agent, *call, relayed) {
	t.Helper()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	a, _ := m.start()
	c, _ := p.call()
	w := relayed{
		cluster: gatetest.Cluster(t, "c1", "s1", 1), endpoints: gatetest.Endpoints(t, "s1", 1),
		routes:   gatetest.Routes(t, "r1", gatetest.Host{Name: "h1", Salt: 1, Clusters: []string{"c1"}}),
		listener: gatetest.Listener(t, "l1", "1"),
	}
	c.must(t, w.responses(t, at(1, 1))...)
	return m, a, c, w
}

func TestRelayServesWhatTheGateLetsThrough(t *testing.T) {
	m, a, c, w := serving(t)
	e := dialRelay(t, m)
	e.ask(typeCluster)
	clusters := e.next()
	if e.has[key{typeCluster, "c1"}] != w.cluster.Resource.Version {
		t.Fatalf("at first it has %v", e.has)
	}
	e.ack(clusters)
	// Listeners and routes are asked for before the cluster is warm, which it is only
	// with its endpoints.
	e.ask(typeListener)
	e.ask(typeEndpoint, "s1")
	for e.has[key{typeEndpoint, "s1"}] == "" {
		resp := e.next()
		if resp.GetTypeUrl() == string(typeEndpoint) {
			break
		}
		e.ack(resp)
	}
	if i := slices.IndexFunc(e.order, func(k key) bool { return k.kind == typeListener || k.kind == typeRoute }); i >= 0 {
		t.Errorf("%v came before its cluster was warm", e.order[i])
	}
	if got := a.Status().Applied; got != "0/0" {
		t.Errorf("applied is %s before Envoy has anything", got)
	}
	e.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typeEndpoint), ResponseNonce: "1"}) // of no response: ignored
	again := dialRelay(t, m)
	again.boot(w)
	e.fails(codes.Aborted, "a newer stream replaced this one")

	// What changes is sent to it, in the same order.
	next := relayed{
		cluster: gatetest.Cluster(t, "c2", "s2", 1), endpoints: gatetest.Endpoints(t, "s2", 1),
		routes:   gatetest.Routes(t, "r1", gatetest.Host{Name: "h1", Salt: 2, Clusters: []string{"c2"}}),
		listener: w.listener,
	}
	before := again.has[key{typeRoute, "r1"}]
	c.must(t, next.responses(t, at(1, 2))...)
	again.until(next.cluster)
	if again.has[key{typeRoute, "r1"}] != before {
		t.Error("the route came before its cluster was warm")
	}
	again.ask(typeEndpoint, "s2")
	for again.has[key{typeRoute, "r1"}] == before {
		again.ack(again.next())
	}
	again.pump()
	eventually(t, "it is applied", func() bool { return a.Status().Applied == "1/2" })
	if err := a.Readyz(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRelaySocket(t *testing.T) {
	m, _, _, w := serving(t)
	path := SocketPath(m.config.RunDir)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	if dir, err := os.Stat(m.config.RunDir); err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("its directory is %v, %v", dir.Mode(), err)
	}
	dialRelay(t, m).boot(w)

	_, err = listenUnix("/" + strings.Repeat("x", 107))
	if err == nil || !strings.Contains(err.Error(), "108 bytes") || !strings.Contains(err.Error(), "choose a shorter run directory") {
		t.Errorf("a long path: %v", err)
	}
	stale := filepath.Join(m.config.RunDir, "stale.sock")
	if err := os.WriteFile(stale, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := listenUnix(stale)
	if err != nil {
		t.Fatalf("what an earlier agent left is in the way: %v", err)
	}
	_ = l.Close()
}

// TestRelayOutlivesGarbage: clients that speak something else, or nothing, disturb
// neither Envoy's stream nor the agent.
func TestRelayOutlivesGarbage(t *testing.T) {
	m, _, c, w := serving(t)
	e := dialRelay(t, m)
	e.boot(w)
	random := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for i, say := range []string{
		"", "G", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", string(noise), preface[:10], preface, preface + string(noise),
		preface + settings + string(noise), preface + settings + "\xff\xff\xff\x00\x00\x00\x00\x00\x01", "\x16\x03\x01\x02\x00\x01",
	} {
		raw, err := net.Dial("unix", SocketPath(m.config.RunDir))
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		_, _ = raw.Write([]byte(say)) // it may be cut off; the others stay, and say no more
		if i%3 == 0 {
			_ = raw.Close()
		}
	}
	silent := dialRelay(t, m) // a stream without a request is not Envoy's
	changed := gatetest.Cluster(t, "c1", "s1", 2)
	c.must(t, responseOf(t, at(1, 2), changed))
	e.until(changed)

	// One that breaks the protocol is told so. It is the newest, so Envoy's stream ends,
	// and the next one gets everything.
	rude := dialRelay(t, m)
	for range 2*len(gate.Types) + 1 {
		rude.ask(typeListener)
	}
	rude.fails(codes.InvalidArgument, "clusters must be requested first")
	e.fails(codes.Aborted, "a newer stream replaced this one")
	w.cluster = changed
	dialRelay(t, m).boot(w)
	_ = silent
}

// TestRelayUnpacksNothing holds that an Envoy that somebody has taken over has the agent unpack no message: a few
// kilobytes could be gigabytes.
func TestRelayUnpacksNothing(t *testing.T) {
	m, _, _, _ := serving(t)
	conn, err := grpc.NewClient("unix://"+SocketPath(m.config.RunDir), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx, grpc.WaitForReady(true), grpc.UseCompressor(gzip.Name))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "packed", Node: &corev3.Node{Id: strings.Repeat("e", 1000)}}); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if !strings.Contains(err.Error(), agentv1.ErrCompressed.Error()) {
		t.Errorf("it is answered %v", err)
	}
}

// TestRelayOutlivesASlowClient holds that a client which asks and then neither reads nor answers stops no other.
func TestRelayOutlivesASlowClient(t *testing.T) {
	m, a, c, w := serving(t)
	slow := dialRelay(t, m)
	slow.ask(typeCluster)
	slow.ask(typeEndpoint, "s1")
	// More than the sockets hold, one response each.
	long := strings.Repeat("x", 64<<10)
	for i := range 40 {
		c.must(t, responseOf(t, at(1, uint64(i+2)), gatetest.Cluster(t, fmt.Sprint("c", i, long), "s1", 1)))
	}
	if got := a.Status().Accepted; got != "1/41" {
		t.Errorf("it accepted %s", got)
	}
	e := dialRelay(t, m)
	e.ask(typeCluster)
	e.until(w.cluster)
	for i := range 40 {
		e.until(gatetest.Cluster(t, fmt.Sprint("c", i, long), "s1", 1))
	}
}
